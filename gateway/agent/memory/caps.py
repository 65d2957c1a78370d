"""How much of a tool's output reaches the model: 24,000 characters a call, and a share of a budget of the turn (X7).

The beginning of an output says what it is and the end how it went: 70 % of what is kept is
head, 30 % tail, and a marker between them says how much is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.agent.memory.tokens import BYTES_PER_TOKEN, text_bytes, text_tokens
from gateway.chat import Json

OUTPUT = 24_000
"""characters of one output"""
HEAD = 0.7
LEAST, MOST = 8 * 1024, 32 * 1024
"""tokens that the outputs of one turn may have, whatever the window is"""
WINDOW_SHARE = 5
"""a fifth of the window"""


def cap_output(text: str, limit: int = OUTPUT) -> str:
    """A text of at most `limit` characters: the text itself, or its head and tail with a marker that says what was cut."""
    if len(text) <= limit:
        return text
    marker = _marker(len(text), "characters")  # never longer than the final one: what is cut is at most the whole
    room = limit - len(marker)
    if room <= 0:
        return text[:limit]
    head = round(room * HEAD)
    return text[:head] + _marker(len(text) - room, "characters") + text[len(text) - (room - head) :]


def cap_tokens(text: str, tokens: int) -> str:
    """The same for a limit in tokens (`text_tokens`): `x` and `cap_tokens(x, n)` never need more than n."""
    limit, whole = tokens * BYTES_PER_TOKEN, text_bytes(text)
    if whole <= limit:
        return text
    raw = text.encode("utf-8", "replace")
    room = limit - len(_marker(len(raw), "bytes"))
    if room <= 0:
        return raw[: max(limit, 0)].decode("utf-8", "ignore")
    head = round(room * HEAD)
    kept = raw[:head].decode("utf-8", "ignore"), raw[len(raw) - (room - head) :].decode("utf-8", "ignore")
    return kept[0] + _marker(len(raw) - sum(map(text_bytes, kept)), "bytes") + kept[1]


def turn_budget(window: int | None) -> int:
    """Tokens that the outputs of one turn may have together: 20 % of the window, at least 8K and at most 32K; 32K where no window is known."""
    return MOST if not window else min(max(window // WINDOW_SHARE, LEAST), MOST)


def share(wants: Sequence[int], budget: int) -> list[int]:
    """What each gets of a budget: small wants in full, the others the same; an odd rest goes to the last ones (the newest)."""
    given = [0] * len(wants)
    left, open_ = max(budget, 0), [place for place, want in enumerate(wants) if want > 0]
    while open_ and left >= len(open_):
        equal = left // len(open_)
        for place in open_:
            more = min(equal, wants[place] - given[place])
            given[place] += more
            left -= more
        open_ = [place for place in open_ if given[place] < wants[place]]
    for place in reversed(open_):
        more = min(1, left)
        given[place] += more
        left -= more
    return given


def cap_batch(texts: Sequence[str], tokens: int, limit: int = OUTPUT) -> list[str]:
    """The outputs of calls that were made together, each at most `limit` characters, together at most `tokens` tokens."""
    capped = [cap_output(text, limit) for text in texts]
    wants = [text_tokens(text) for text in capped]
    if sum(wants) <= tokens:
        return capped
    return [cap_tokens(text, given) for text, given in zip(capped, share(wants, tokens), strict=True)]


def cap_turn(messages: Sequence[Json], window: int | None) -> list[Json]:
    """The messages with the tool results of the current turn (after the last user message) inside the turn's budget.

    Newest first: the latest batch takes what it needs, older ones share what is left, down
    to a note of their size. Messages that do not change are the same objects.
    """
    out = list(messages)
    start = max((place for place, message in enumerate(out) if message.get("role") == "user"), default=-1) + 1
    left = turn_budget(window)
    end = len(out)
    while end > start:
        first = end
        while first > start and out[first - 1].get("role") == "tool":
            first -= 1
        texts = [content if isinstance(content := message.get("content"), str) else "" for message in out[first:end]]
        fitted = cap_batch(texts, left)
        for place, (old, new) in enumerate(zip(texts, fitted, strict=True), first):
            if new != old:
                told = new if "cut ...]" in new else f"[{text_bytes(old):,} bytes of output cut]"  # too little even for a marker
                out[place] = {**out[place], "content": told}
        left = max(left - sum(map(text_tokens, fitted)), 0)
        end = first if first < end else end - 1
    return out


def _marker(cut: int, unit: str) -> str:
    return f"\n[... {cut:,} {unit} cut ...]\n"
