"""OpenAI's Responses dialect: what Codex and newer SDKs speak, and OpenAI's own newest models want."""

from gateway.dialects.responses.answer import answer_from_chat, answer_to_chat, heal_answer, native_content
from gateway.dialects.responses.counting import count_input_tokens
from gateway.dialects.responses.inbound import dropped_tools, request_to_chat
from gateway.dialects.responses.outbound import request_from_chat
from gateway.dialects.responses.reader import Native, Reader
from gateway.dialects.responses.stored import Stored, native_request
from gateway.dialects.responses.terms import error_body
from gateway.dialects.responses.writer import Writer

__all__ = [
    "Native",
    "Reader",
    "Stored",
    "Writer",
    "answer_from_chat",
    "answer_to_chat",
    "count_input_tokens",
    "dropped_tools",
    "error_body",
    "heal_answer",
    "native_content",
    "native_request",
    "request_from_chat",
    "request_to_chat",
]
