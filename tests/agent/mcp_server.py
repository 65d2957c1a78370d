"""An MCP server written with the SDK: `python mcp_server.py FOLDER` serves stdio and writes into the folder what was called."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)


def build(folder: Path) -> MCPServer:
    """Its tools note each call as a line of `calls`; the description of `add` is the content of `about` where there is one."""
    server, about = MCPServer("odd"), folder / "about"

    def called(name: str) -> int:
        with (folder / "calls").open("a") as file:
            file.write(name + "\n")
        return (folder / "calls").read_text().split().count(name)

    @server.tool(description=about.read_text() if about.exists() else "Adds.", annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        called("add")
        return a + b

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    def die_once() -> str:
        """Ends the process at its first call."""
        if called("die_once") == 1:
            os._exit(7)
        return "alive"

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def die() -> str:
        """Ends the process."""
        called("die")
        os._exit(7)

    @server.tool()
    def leave() -> str:
        """Ends the process soon."""
        threading.Timer(0.1, os._exit, (0,)).start()
        return str(os.getpid())

    @server.tool()
    def environment() -> list[str]:
        """The names of its environment."""
        return sorted(os.environ)

    @server.tool()
    async def slow(ctx: Context) -> str:
        """Tells of its progress, then takes a minute."""
        called("slow")
        await ctx.report_progress(3, 10, "indexing")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            called("slow_cancelled")
            raise
        return "done"

    @server.tool()
    def fail() -> str:
        """Fails."""
        raise ToolError("the disk is full")

    @server.tool()
    def much() -> str:
        """Gives too much."""
        return "x" * 300_000

    @server.tool()
    def mixed() -> CallToolResult:
        """Gives one of each."""
        return CallToolResult(
            content=[
                TextContent(text="a text"),
                Image(data=b"12345", format="png").to_image_content(),
                ResourceLink(name="readme", uri="file:///readme.md", description="about it"),
                EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="inside")),
                EmbeddedResource(resource=BlobResourceContents(uri="file:///b.bin", blob="MTIz")),
            ],
            structured_content={"n": 1},
        )

    @server.tool()
    def weather() -> dict[str, Any]:
        """Structured, which the SDK also gives as text."""
        return {"city": "Paris", "degrees": 7}

    return server


if __name__ == "__main__":
    print("starting up", file=sys.stderr)
    build(Path(sys.argv[1])).run("stdio")
