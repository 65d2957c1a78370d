"""What keeps a run from going on for ever: tokens, cost, repeated calls, text that does not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gateway import config
from gateway.agent.endings import Stopped
from gateway.agent.turn import Sum, Turn
from gateway.chat import Json, dumps, loads

SAME_CALLS = 3
"""the call that is identical for this time is not made, where the earlier ones gave the same results"""
SAME_TEXT = 3
"""turns running with the same text and no other result: the run is stuck"""
EMPTY_TURNS = 2
"""how often an empty turn is asked for again"""

THINKING = frozenset(("sequential_thinking", "sequentialthinking", "thinking"))
NOTES = THINKING | {"todo_write", "todowrite", "todo"}
"""tools that only note what the model says itself: their results are nothing that was found"""
EMPTY_NUDGE = "Your last turn was empty. Answer the question now, in words."
REPEATED = (
    "This call was made before with the same arguments and would give the same result, so it was not made again. "
    "Use what you have, try something else, or give your answer."
)


class Guard:
    """Counts what a run does against its agent's limits. Wall-clock time is the run's own."""

    def __init__(self, agent: config.Agent) -> None:
        self._limits = agent.limits
        self._calls: Counter[tuple[str, bytes]] = Counter()
        self._results: dict[tuple[str, bytes], set[str]] = {}
        self._text = ""
        self._same = 0

    def spend(self, spent: Sum) -> None:
        """Before a model is asked: Stopped when the tokens or the money are used up."""
        limits = self._limits
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            raise Stopped("tokens", f"the run has used {spent.tokens} of its {limits.tokens} tokens")
        if limits.cost is None:
            return
        if spent.unpriced and limits.unpriced == "refuse":
            raise Stopped("cost", "a model that answered has no known price, and the run has a cost limit (limits.unpriced: allow)")
        if spent.cost is not None and spent.cost >= limits.cost:
            raise Stopped("cost", f"the run has cost {spent.cost:.4f} of its {limits.cost:g} USD")

    def repeated(self, name: str, arguments: str | Json) -> bool:
        """Whether this call was made too often already with nothing new to show for it; counts it."""
        call = name, _canonical(arguments)
        self._calls[call] += 1
        return self._calls[call] >= SAME_CALLS and len(self._results.get(call, ())) <= 1

    def gave(self, name: str, arguments: str | Json, result: str) -> None:
        """What a call that was made gave back."""
        self._results.setdefault((name, _canonical(arguments)), set()).add(result)

    def thought_out(self, turn: Turn, results: Sequence[Json]) -> bool:
        """Whether a turn did nothing but think, and said itself that the thinking is complete."""
        if any(call.name not in THINKING for call in turn.calls):
            return False
        return all('"incomplete_steps":false' in str(result.get("content")).replace(" ", "") for result in results)

    def watch(self, turn: Turn) -> None:
        """After a turn that goes on: Stopped when the model says the same thing again and again."""
        same = bool(turn.text) and turn.text == self._text and not turn.calls
        self._same = self._same + 1 if same else 1
        self._text = turn.text
        if self._same >= SAME_TEXT:
            raise Stopped("stuck", f"the model said the same thing {SAME_TEXT} times")


def _canonical(arguments: str | Json) -> bytes:
    try:
        value = loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except ValueError:
        return str(arguments).encode("utf-8", "replace")
    return dumps(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
