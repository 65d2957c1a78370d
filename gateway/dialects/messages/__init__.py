"""The Anthropic Messages dialect: what clients like Claude Code speak, and Anthropic's own API."""

from gateway.dialects.messages.answer import answer_from_chat, answer_to_chat, native_content
from gateway.dialects.messages.carriers import carry_unsigned
from gateway.dialects.messages.inbound import dropped_tools, request_to_chat
from gateway.dialects.messages.outbound import request_from_chat
from gateway.dialects.messages.reader import Native, Reader
from gateway.dialects.messages.terms import error_body
from gateway.dialects.messages.writer import Writer

__all__ = [
    "Native",
    "Reader",
    "Writer",
    "answer_from_chat",
    "answer_to_chat",
    "carry_unsigned",
    "dropped_tools",
    "error_body",
    "native_content",
    "request_from_chat",
    "request_to_chat",
]
