"""One MCP server: connected at first use, kept, connected anew after it was lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gateway.chat import Json
from gateway.config.agents import McpServer
from gateway.errors import GatewayError
from gateway.upstream import Url
from gateway.upstream.choose import env_proxy

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.dispatcher import ProgressFnT
    from mcp.shared.message import SessionMessage
    from mcp.types import CallToolResult, Tool

STARTING = 300.0
"""seconds in which a server must have started: `npx` may have to download it first"""
_LISTING = 30.0
_FRESH = 60.0  # seconds for which a list of tools holds, unless the server says that it has changed
_REST, _MOST_REST = 1.0, 60.0
_SHORT_REST = 2.0  # a rest that a caller waits for
_ENDING = 10.0
_PAGES = 100
_LARGEST_EVENT = 16 * 1024 * 1024
_SHOWN = 300  # characters of a server's own words


class ServerDown(GatewayError):
    """The MCP server cannot be reached; nothing was sent to it."""

    status, code = 502, "mcp_unavailable"


class ConnectionBroke(GatewayError):
    """The connection was lost during a call: whether it took effect is unknown."""

    status, code = 502, "mcp_connection_broke"


class Life:
    """One life of a connection, in a task of its own: the SDK's task groups end in the task that began them."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.begun = time.monotonic()
        self.ready = asyncio.Event()  # it can be used, or it has failed
        self.fault: str | None = None
        self.client: Client | None = None
        self.listed: list[Tool] = []
        self.listed_at: float | None = None
        self.unreached = False  # it ended because its address could not be connected to
        self.running = 0
        self.overlapped = False
        self.counted = False  # as a failure of the connection
        self._over = asyncio.Event()
        self._words: deque[bytes] = deque(maxlen=8)  # the last of its standard error
        self._refused = 0
        self._task = asyncio.create_task(self._live())

    @property
    def alive(self) -> bool:
        return self.client is not None and self.ready.is_set() and not self._over.is_set() and not self._task.done()

    @property
    def starting(self) -> bool:
        return not self.ready.is_set()

    def end(self) -> None:
        self._over.set()
        if self.starting:
            self._task.cancel()

    async def ended(self) -> None:
        """Return when nothing of it is left, after seconds at the latest."""
        self.end()
        if not (await asyncio.wait({self._task}, timeout=_ENDING))[0]:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_ENDING)

    async def list(self) -> list[Tool]:
        """Its tools, asked for anew when the list is old or the server said that it has changed."""
        assert self.client is not None
        if self.listed_at is None or time.monotonic() - self.listed_at > _FRESH:
            self.listed_at = time.monotonic()  # before asking: a change that is announced meanwhile counts
            async with asyncio.timeout(_LISTING):
                self.listed = await _all_tools(self.client)
        return self.listed

    async def _live(self) -> None:
        try:
            await asyncio.to_thread(_import)  # it takes a second or more, in which others are served
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(STARTING):
                    self.client = await stack.enter_async_context(self._made(await self._transport(stack)))
                    await self.list()
                self.ready.set()
                await self._over.wait()
        except asyncio.CancelledError:
            self.fault = self.fault or "it was stopped while it started"
            raise
        except BaseException as error:  # whatever a server, its SDK or its host can do wrong ends this connection and nothing else
            cause = innermost(error)
            if isinstance(cause, KeyboardInterrupt | SystemExit):
                raise
            self.unreached = type(cause).__name__ in ("ConnectError", "ConnectTimeout")
            self.fault = self._why(cause)
        finally:
            self.client = None
            self._over.set()
            self.ready.set()

    def _made(self, transport: AbstractAsyncContextManager[TransportStreams]) -> Client:
        from mcp import Client
        from mcp.types import Implementation, ToolListChangedNotification

        import gateway

        async def hear(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                self.listed_at = None

        about = Implementation(name="thinkgate", version=gateway.__version__)
        return Client(transport, message_handler=hear, client_info=about, cache=None)

    async def _transport(self, stack: AsyncExitStack) -> AbstractAsyncContextManager[TransportStreams]:
        if self.server.url is None:
            return self._process()
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def note(response: httpx2.Response) -> None:
            self._refused = response.status_code if response.status_code >= 400 else self._refused

        # an answer may be silent for as long as the call may take, which is the caller's to limit
        timeout, headers = httpx2.Timeout(10.0, read=None), dict(self.server.headers)
        proxy = env_proxy(Url.parse(self.server.url), os.environ)
        client = httpx2.AsyncClient(headers=headers, timeout=timeout, proxy=proxy, trust_env=False, event_hooks={"response": [note]})
        await stack.enter_async_context(client)
        return streamable_http_client(self.server.url, http_client=client, max_sse_event_size=_LARGEST_EVENT)

    @asynccontextmanager
    async def _process(self) -> AsyncGenerator[TransportStreams]:
        """The server as a child process with the SDK's minimal environment. Its end is noticed when it comes."""
        from mcp import StdioServerParameters, stdio_client

        program, *arguments = self.server.command
        folder = self.server.folder
        if folder is not None and os.path.basename(program) != program:
            program = str(folder.absolute() / program)
        asked = StdioServerParameters(command=program, args=arguments, env=dict(self.server.env), cwd=folder)
        end, beginning = os.pipe()
        pipe = os.fdopen(end, "rb", 0)
        with os.fdopen(beginning, "w") as errors:
            listening, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: _Words(self._words), pipe)
            try:
                async with stdio_client(asked, errlog=errors) as (read, write):
                    errors.close()
                    yield _Watched(read, self._over), write
            finally:
                listening.close()

    def _why(self, cause: BaseException) -> str:
        if isinstance(cause, FileNotFoundError):
            return f"there is no {cause.filename or self.server.command[0]!r} to start"
        if isinstance(cause, TimeoutError):
            return "it did not answer in time"
        said = " ".join(b"".join(self._words).decode("utf-8", "replace").split())[-_SHOWN:]
        about = str(cause)[:_SHOWN] or type(cause).__name__
        if self.unreached:
            about = f"it cannot be reached ({about})"
        return about + (f" (HTTP {self._refused})" if self._refused else "") + (f"; it said: {said}" if said else "")


class Connection:
    """A server and what is known of its health. `patience`: seconds for which a caller waits for a start."""

    def __init__(self, server: McpServer, patience: float) -> None:
        self.server = server
        self._retired = False
        self._closed = False
        self._patience = patience
        self._life: Life | None = None
        self._failures = 0
        self._rests_until = 0.0

    async def tools(self) -> list[Tool]:
        """What the server has. ServerDown."""
        life = await self._living()
        try:
            return await life.list()
        except Exception as error:
            life.end()
            self._failed()
            raise ServerDown(f"its tools cannot be listed: {str(innermost(error))[:_SHOWN] or type(error).__name__}") from error

    async def call(self, name: str, arguments: Json, progress: ProgressFnT, *, again: bool) -> CallToolResult:
        """Call a tool; once more over a new connection where nothing was sent, or where `again` says that it does no harm.

        Raises ServerDown, ConnectionBroke, the SDK's MCPError, and whatever the SDK finds wrong with an answer.
        """
        try:
            unsent = await self._attempt(name, arguments, progress)
            if not isinstance(unsent, bool):
                return unsent
            if unsent or again:
                unsent = await self._attempt(name, arguments, progress)
                if not isinstance(unsent, bool):
                    return unsent
        finally:
            self._leave_if_retired()
        if unsent:
            raise ServerDown("it lost the session twice")
        raise ConnectionBroke("the connection broke during the call; whether it took effect is unknown")

    async def _attempt(self, name: str, arguments: Json, progress: ProgressFnT) -> CallToolResult | bool:
        """The result, or, of a call that the connection did not outlive, whether it surely was not sent."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        life = await self._living()
        assert life.client is not None
        life.overlapped = life.running > 0
        life.running += 1
        try:
            result = await life.client.call_tool(name, arguments, progress_callback=progress)
        except Exception as error:
            code, message = (error.code, error.message) if isinstance(error, MCPError) else (0, "")
            forgotten = _forgot_session(code, message)
            if life.alive and code != CONNECTION_CLOSED and not forgotten:
                raise
            await life.ended()
            self._failed(at_once=True)
            return forgotten or (life.unreached and not life.overlapped)
        finally:
            life.running -= 1
        self._failures = 0
        return result

    async def _living(self) -> Life:
        """A life that can be used, begun if there is none. Concurrent callers wait for the same one."""
        if self._closed:
            raise ServerDown("the gateway is shutting down")
        life = self._life
        if life is None or not (life.alive or life.starting):
            await self._rest()
            if self._life is life:
                self._life = Life(self.server)
            life = self._life
            assert life is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, life.begun + self._patience - time.monotonic())):
                await life.ready.wait()
        if life.alive:
            return life
        if life.starting:
            raise ServerDown(f"it is still starting after {self._patience:g} s")
        fault = life.fault or "it ended"
        if not life.counted:
            life.counted = True
            self._failed()
        raise ServerDown(fault)

    async def _rest(self) -> None:
        rest = self._rests_until - time.monotonic()
        if rest > _SHORT_REST:
            fault = self._life.fault if self._life is not None else None
            raise ServerDown(f"{fault or 'it ended'}; it is tried again in {rest:.0f} s")
        if rest > 0:
            await asyncio.sleep(rest)

    def _failed(self, *, at_once: bool = False) -> None:
        """Rest, longer with each failure in a row. `at_once`: not after the first, which ended a good connection."""
        self._failures += 1
        rest = 0.0 if at_once and self._failures == 1 else min(_MOST_REST, _REST * 2 ** (self._failures - 1))
        self._rests_until = time.monotonic() + rest

    def _leave_if_retired(self) -> None:
        if self._retired and self._life is not None and not self._life.running:
            self._life.end()

    def retire(self) -> None:
        """End when no call runs any more; a late call of an old run connects for itself."""
        self._retired = True
        self._leave_if_retired()

    async def aclose(self) -> None:
        self._closed = True
        if self._life is not None:
            await self._life.ended()


class _Words(asyncio.Protocol):
    """Keeps the last of what a child process writes to its standard error, for the reason why it failed."""

    def __init__(self, kept: deque[bytes]) -> None:
        self._kept = kept

    def data_received(self, data: bytes) -> None:
        self._kept.append(data[-1024:])


class _Watched:
    """A read stream that tells when it has ended."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], over: asyncio.Event) -> None:
        self._stream = stream
        self._over = over

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._over.set()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


def _import() -> None:
    import mcp
    import mcp.client.streamable_http  # noqa: F401 - loaded here, in a thread, so that no first call waits for it in the loop


async def _all_tools(client: Client) -> list[Tool]:
    if client.server_capabilities.tools is None:
        return []
    page = await client.list_tools()
    tools = list(page.tools)
    for _ in range(_PAGES):
        if page.next_cursor is None:
            break
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _forgot_session(code: int, message: str) -> bool:
    """Whether the server no longer knows the session, as after its restart; it then has not looked at the request.

    The codes are those of the SDKs in Python (-32600) and TypeScript (-32001, -32000), 2026-11.
    """
    return code in (-32600, -32001, -32000) and "session" in message.lower()


def innermost(error: BaseException) -> BaseException:
    """The first real error in groups of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
