"""Google's thought signatures in a chat history.

Gemini 3 signs the first call of each step of a turn; chat carries the signature as
`tool_calls[].extra_content.google.thought_signature`. The steps since the user last spoke
must bring theirs back, earlier ones need not (ai.google.dev, thought signatures, 2026).
"""

from __future__ import annotations

from typing import Any

from gateway.adapters.roles import calls_of
from gateway.chat import Json


def sign_steps(messages: list[Any], roles: list[Any], stand_in: str) -> int:
    """Give `stand_in` to each step of the current turn whose signature is lost; how many that were."""
    signed = 0
    for turn in _current(messages, roles):
        calls = calls_of(turn)
        if calls and signature(calls[0]) is None:
            _sign(calls[0], stand_in)
            signed += 1
    return signed


def replace_signatures(messages: list[Any], roles: list[Any], stand_in: str) -> int:
    """After a refusal: no signature but `stand_in` on the steps of the current turn; how many turns were changed."""
    changed = 0
    for message, role in zip(messages, roles, strict=True):
        if role == "assistant":
            changed += any([_unsign(holder) for holder in (message, *calls_of(message))])
    return max(changed, sign_steps(messages, roles, stand_in))


def signature(holder: Json) -> str | None:
    """The signature that a call or a message carries."""
    extra = holder.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    text = google.get("thought_signature") if isinstance(google, dict) else None
    return text if isinstance(text, str) and text else None


def _current(messages: list[Any], roles: list[Any]) -> list[Json]:
    """The assistant turns since the user last spoke."""
    start = max((at for at, role in enumerate(roles) if role == "user"), default=-1) + 1
    return [message for message, role in zip(messages[start:], roles[start:], strict=True) if role == "assistant"]


def _sign(call: Json, text: str) -> None:
    extra = call.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    call["extra_content"] = {
        **(extra if isinstance(extra, dict) else {}),
        "google": {**(google if isinstance(google, dict) else {}), "thought_signature": text},
    }


def _unsign(holder: Json) -> bool:
    if signature(holder) is None:
        return False
    extra = holder["extra_content"]
    del extra["google"]["thought_signature"]
    if not extra["google"]:
        del extra["google"]
    if not extra:
        del holder["extra_content"]
    return True
