"""The entries of `reasoning_details`, OpenRouter's carrier of reasoning, as a history may bring them back.

An entry is a text, a summary or something encrypted, with an id, a signature and the format
it is in. Clients send one twice where they keep it with each of several parallel calls; a
second one is refused, and so is a text without its signature where the maker of the format
checks it (OpenRouter's own client, 2026-06).
"""

from __future__ import annotations

from typing import Any

_CHECKED = ("anthropic", "google")


def prune_entries(messages: list[Any], which: str) -> int:
    """Leave each entry once, and no text that lacks a signature it needs; how many went. `messages` is edited.

    which  once: by the entry's format; signed: every text needs one
    """
    seen: set[tuple[str, ...]] = set()
    pruned = 0
    for message in messages:
        if type(message) is not dict or type(entries := message.get("reasoning_details")) is not list or not entries:
            continue
        texts: set[tuple[str, ...]] = set()
        kept = [entry for entry in entries if _sendable(entry, which) and _new(entry, seen, texts)]
        pruned += len(entries) - len(kept)
        if kept:
            message["reasoning_details"] = kept
        else:
            del message["reasoning_details"]
    return pruned


def _sendable(entry: Any, which: str) -> bool:
    if not isinstance(entry, dict) or entry.get("type") != "reasoning.text" or entry.get("signature"):
        return True
    return which != "signed" and not str(entry.get("format") or "").startswith(_CHECKED)


def _new(entry: Any, seen: set[tuple[str, ...]], texts: set[tuple[str, ...]]) -> bool:
    """Whether an entry comes for the first time: in the whole history by what is its own, by a mere text in its turn."""
    key = _key(entry)
    known = seen if len(key) > 1 else texts
    if not key or key in known:
        return not key
    known.add(key)
    return True


def _key(entry: Any) -> tuple[str, ...]:
    """What tells an entry from others, its mere text if it has nothing else; empty: nothing does."""
    if not isinstance(entry, dict):
        return ()
    values = {name: value for name in ("signature", "data", "id", "text", "summary") if isinstance(value := entry.get(name), str) and value}
    for name in ("signature", "data"):
        if name in values:
            return name, values[name]
    text = values.get("text") or values.get("summary") or ""
    return (values["id"], text) if "id" in values else (text,) if text else ()
