"""The Gemini API (`generateContent`): spoken to providers only."""

from gateway.dialects.gemini.answer import answer_to_chat
from gateway.dialects.gemini.outbound import request_from_chat
from gateway.dialects.gemini.reader import Reader

__all__ = ["Reader", "answer_to_chat", "request_from_chat"]
