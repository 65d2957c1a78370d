"""Our own tools as an MCP server over streamable HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from gateway.agent.mcp.sessions import Kept, Sessions
from gateway.agent.tools import Context, Observation, Tool
from gateway.chat import Json, dumps, loads
from gateway.errors import GatewayError, InvalidRequest, NotFound, Overloaded
from gateway.store import Shared

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from gateway.agent.tools.registry import Registry

LARGEST = 1024 * 1024
"""bytes of a request"""
KEPT = 512 * 1024
"""bytes of all arguments that go into one session"""

_SESSION, _NAMED, _KEPT = b"mcp-session-id", b"x-session-id", "gateway.kept"
_ABOUT = "Tools that need no other service. What sequential_thinking and todo_write keep lives as long as the session."

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Serving:
    """The ASGI application behind `/mcp`; the SDK is imported, and the tools are made, at the first request.

    The SDK serves each request by itself; sessions are ours, so that they are the same in all
    processes that share state. `initialize` begins one, which only its own key can use. The
    protocol of 2026-07-28 has none: what such a client calls itself in `X-Session-Id` is its
    session then, and without that each request is one of its own.
    """

    def __init__(self, shared: Shared | None = None) -> None:
        self.sessions = Sessions(shared)
        self._opening = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    @property
    def opened(self) -> bool:
        return self._manager is not None

    async def answer(self, scope: Scope, body: bytes, receive: Receive, send: Send, owner: str) -> None:
        """One message of whoever `owner` names; "" is everybody with a key of the server. NotFound: its session is over, or was another's."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        id, kept, begun = await self._session(headers, body, owner)
        scope[_KEPT] = kept
        before = kept.calls

        async def named(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":  # the call is done; whoever has the answer may ask any process next
                if begun and message["status"] == 200:
                    message["headers"] = [*message["headers"], (_SESSION, self.sessions.begin(owner).encode("ascii"))]
                    await self.sessions.settled()
                elif id and kept.calls > before:
                    self.sessions.save(id, kept)
                    await self.sessions.settled()
            await send(message)

        manager = self._manager or await self._open()
        await manager.handle_request(scope, receive, named)

    async def end(self, headers: MutableMapping[bytes, bytes], owner: str) -> None:
        """The client has ended its session. NotFound: it has none."""
        if (given := headers.get(_SESSION)) is None:
            raise InvalidRequest("the header Mcp-Session-Id says which session shall end", param="mcp-session-id")
        id = given.decode("latin-1")
        if await self.sessions.find(id, owner) is None:
            raise _unknown()
        self.sessions.forget(id)
        await self.sessions.settled()

    async def _session(self, headers: MutableMapping[bytes, bytes], body: bytes, owner: str) -> tuple[str, Kept, bool]:
        """The session of a request: its id ("": none), what is kept of it, and whether the request begins one."""
        if (given := headers.get(_SESSION)) is not None:
            id = given.decode("latin-1")
            kept = await self.sessions.find(id, owner)
            if kept is None:
                raise _unknown()
            return id, kept, False
        if (given := headers.get(_NAMED)) is not None:
            return *await self.sessions.named(given.decode("latin-1"), owner), False
        return "", Kept(owner), _initializes(body)

    async def aclose(self) -> None:
        """End all sessions."""
        self._over.set()
        if self._task is not None:
            await self._task

    async def _open(self) -> StreamableHTTPSessionManager:
        async with self._opening:
            if self._over.is_set():
                raise Overloaded("the gateway is shutting down", code="shutting_down")
            if self._manager is None:
                registry = await asyncio.to_thread(_own)  # its imports take a second, in which others are served
                from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

                manager = StreamableHTTPSessionManager(self._server(registry), json_response=True, stateless=True, max_request_body_size=LARGEST)
                ready = asyncio.Event()
                self._task = asyncio.create_task(self._run(manager, ready))
                await ready.wait()
                self._manager = manager
            return self._manager

    async def _run(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        async with manager.run():
            ready.set()
            await self._over.wait()

    def _server(self, registry: Registry) -> Server[Any]:
        from mcp import MCPError, types
        from mcp.server.lowlevel import Server
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

        import gateway

        listed = [_described(tool) for tool in registry]

        async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
            return types.ListToolsResult(tools=listed)

        async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            if registry.find(params.name) is None:
                raise MCPError(types.INVALID_PARAMS, registry.unknown(params.name))
            seen = await _call(registry, params.name, params.arguments or {}, ctx.request.scope[_KEPT])
            return types.CallToolResult(content=[types.TextContent(text=seen.text)], is_error=not seen.ok)

        async def discover(ctx: Any, params: types.RequestParams) -> types.DiscoverResult:
            # clients that know both begin a session, which the tools need; those that know only the newest need not ask
            return types.DiscoverResult(supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS), capabilities=server.get_capabilities())

        server: Server[Any] = Server("thinkgate", version=gateway.__version__, instructions=_ABOUT, on_list_tools=list_tools, on_call_tool=call_tool)
        server.add_request_handler("server/discover", types.RequestParams, discover)
        return server


def _unknown() -> NotFound:
    return NotFound("this session is over, or was never begun; begin a new one", code="session_not_found")


def _initializes(body: bytes) -> bool:
    if b"initialize" not in body:
        return False
    try:
        message = loads(body)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("method") == "initialize"


async def _call(registry: Registry, name: str, arguments: Json, kept: Kept) -> Observation:
    kept.calls += 1
    kept.size += len(dumps(arguments))
    if kept.size > KEPT:
        return Observation(f"{KEPT} bytes went into this session, which is all that may; begin a new one", ok=False)
    try:
        return await registry.execute(name, arguments, Context(session=kept.values))
    except (ValueError, GatewayError) as error:  # arguments that do not fit
        return Observation(str(error), ok=False)


def _described(tool: Tool) -> Any:
    from mcp import types

    hints = types.ToolAnnotations.model_validate(tool.annotations) if tool.annotations else None
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters, annotations=hints)


def _own() -> Registry:
    """The tools that are served."""
    import mcp.server.lowlevel
    import mcp.server.streamable_http_manager  # noqa: F401 - loaded here, in a thread, so that no first call waits for it in the loop

    from gateway.agent.tools.calculator import Calculator
    from gateway.agent.tools.registry import Registry
    from gateway.agent.tools.thinking import SequentialThinking
    from gateway.agent.tools.todo import TodoWrite

    return Registry([SequentialThinking(), TodoWrite(), Calculator()])
