"""Our own tools as an MCP server over streamable HTTP."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.agent.tools import Context, Observation, Tool
from gateway.chat import Json, dumps
from gateway.errors import GatewayError, Overloaded

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from gateway.agent.tools.registry import Registry

SESSIONS = 1000
IDLE = 1800.0
"""seconds after which a session that nobody used is forgotten"""
LARGEST = 1024 * 1024
"""bytes of a request, and of all arguments that one session keeps"""

_SESSION, _NAMED = "mcp-session-id", "x-session-id"
_ABOUT = "Tools that need no other service. What sequential_thinking and todo_write keep lives as long as the session."

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class _Kept:
    """What the tools keep of one session."""

    values: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    used: float = 0.0


class Serving:
    """The ASGI application behind `/mcp`; the SDK is imported, and the tools are made, at the first request.

    Clients of the handshake get a session, which only its own key can use; at most SESSIONS
    at a time. The protocol of 2026-07-28 has none: what such a client calls itself in
    `X-Session-Id` is its session then, and without that each request is one of its own.
    """

    def __init__(self) -> None:
        self.kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._opening = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    @property
    def opened(self) -> bool:
        return self._manager is not None

    async def answer(self, scope: Scope, receive: Receive, send: Send, owner: str) -> None:
        """One request of whoever `owner` names; "" is everybody with a key of the server."""
        manager = self._manager or await self._open()
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        if owner:
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=owner, scopes=[]))
        await manager.handle_request(scope, receive, send)

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

                manager = StreamableHTTPSessionManager(
                    self._server(registry), json_response=True, session_idle_timeout=IDLE, max_sessions=SESSIONS, max_request_body_size=LARGEST
                )
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
            kept = self._session(ctx.request)
            seen = await _call(registry, params.name, params.arguments or {}, kept)
            return types.CallToolResult(content=[types.TextContent(text=seen.text)], is_error=not seen.ok)

        async def discover(ctx: Any, params: types.RequestParams) -> types.DiscoverResult:
            # clients that know both begin a session, which the tools need; those that know only the newest need not ask
            return types.DiscoverResult(supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS), capabilities=server.get_capabilities())

        server: Server[Any] = Server("thinkgate", version=gateway.__version__, instructions=_ABOUT, on_list_tools=list_tools, on_call_tool=call_tool)
        server.add_request_handler("server/discover", types.RequestParams, discover)
        return server

    def _session(self, request: Any) -> _Kept:
        """What is kept of the session of a request."""
        if (name := request.headers.get(_SESSION)) is not None:
            key = "", name  # the SDK made it and knows whose it is
        elif (name := request.headers.get(_NAMED)) is not None:
            user = request.scope.get("user")
            key = f"key {user.access_token.client_id if user is not None else ''}", name
        else:
            return _Kept()
        now = time.monotonic()
        kept = self.kept.setdefault(key, _Kept())
        self.kept.move_to_end(key)
        kept.used = now
        while len(self.kept) > SESSIONS or next(iter(self.kept.values())).used < now - IDLE:
            self.kept.popitem(last=False)
        return kept

    def forget(self, session: str) -> None:
        """Its client has ended this session."""
        self.kept.pop(("", session), None)


async def _call(registry: Registry, name: str, arguments: Json, kept: _Kept) -> Observation:
    kept.size += len(dumps(arguments))
    if kept.size > LARGEST:
        return Observation(f"this session has kept {LARGEST} bytes, which is all that it may; begin a new one", ok=False)
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
    import mcp.server.auth.middleware.bearer_auth
    import mcp.server.lowlevel
    import mcp.server.streamable_http_manager  # noqa: F401

    from gateway.agent.tools.calculator import Calculator
    from gateway.agent.tools.registry import Registry
    from gateway.agent.tools.thinking import SequentialThinking
    from gateway.agent.tools.todo import TodoWrite

    return Registry([SequentialThinking(), TodoWrite(), Calculator()])
