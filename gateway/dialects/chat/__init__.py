"""Chat completions, the pivot between dialects: answers of compatible providers made right."""

from __future__ import annotations

from gateway.dialects.chat.answer import aggregate, called_tools, completion_has_content, completion_is_empty, heal_completion, split
from gateway.dialects.chat.content import has_content
from gateway.dialects.chat.finish import finish_reason
from gateway.dialects.chat.stream import ChatStream
from gateway.dialects.chat.usage import normal_usage

__all__ = [
    "ChatStream",
    "aggregate",
    "called_tools",
    "completion_has_content",
    "completion_is_empty",
    "finish_reason",
    "has_content",
    "heal_completion",
    "normal_usage",
    "split",
]
