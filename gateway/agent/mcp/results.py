"""What a call to an MCP server gave, as the text that the model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.agent.tools import Observation
from gateway.chat import Json, dumps, loads

if TYPE_CHECKING:
    from mcp.types import CallToolResult

LARGEST = 200_000
"""characters of a result; what is more does not reach the run"""


def read(result: CallToolResult) -> Observation:
    """Texts as they are, structured content where no text says the same, one line for what is no text."""
    blocks = [_block(block) for block in result.content]
    texts = [block.text for block in result.content if block.type == "text"]
    structured = result.structured_content
    if structured is not None and not any(_says(text, structured) for text in texts):
        blocks.append(dumps(structured).decode())
    text = "\n\n".join(block for block in blocks if block)
    if len(text) > LARGEST:
        text = f"{text[:LARGEST]}\n[{len(text) - LARGEST} more characters were left out]"
    data: Json | None = {"structured": structured} if structured is not None and len(text) < LARGEST else None
    nothing = "(the tool failed without saying why)" if result.is_error else "(the tool gave nothing back)"
    return Observation(text or nothing, ok=not result.is_error, data=data)


def _block(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return f"[{block.type} {block.mime_type}, {_bytes(block.data)} bytes; it cannot be shown here]"
    if block.type == "resource_link":
        about = f": {block.description}" if block.description else ""
        return f"[resource {block.name} at {block.uri}{about}]"
    resource, kind = block.resource, f" {block.resource.mime_type}" if block.resource.mime_type else ""
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {resource.uri}{kind}]\n{text}"
    return f"[resource {resource.uri}{kind}, {_bytes(resource.blob)} bytes; it cannot be shown here]"


def _bytes(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _says(text: str, structured: Any) -> bool:
    """Whether a text is the structured content once more, which servers send for clients that know texts only.

    Where the content is a single value, SDKs and servers wrap it: `{"result": 3}` beside "3".
    """
    only = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    if text == only:
        return True
    try:
        value = loads(text)
    except ValueError:
        return False
    return bool(value in (structured, only))
