"""Bedrock's Converse API: spoken to providers only. Its streams are binary, see `gateway.dialects.eventstream`."""

from gateway.dialects.converse.answer import Reader, answer_to_chat
from gateway.dialects.converse.outbound import request_from_chat

__all__ = ["Reader", "answer_to_chat", "request_from_chat"]
