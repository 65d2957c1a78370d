"""What a provider's refusals taught: a repair that helped is made at once from then on, so that the next request does not pay the 400 again.

Only of refusals that are about the model and not about the one request: that a model wants
no `temperature` holds for the next request, that two roles stood in the wrong order does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.errors import UpstreamError

LASTING = ("reasoning_missing", "reasoning_unsupported", "tool_choice_thinking", "tools_effort", "thinking_mode", "param")
_PER_MODEL = 8
_MODELS = 512


@dataclass(frozen=True, slots=True)
class Lesson:
    error: UpstreamError
    expires: float


class Lessons:
    """The lessons of one provider, by model; each holds for `seconds`, then the refusal is risked again."""

    def __init__(self, seconds: float = 3600, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._by_model: dict[str, list[Lesson]] = {}

    def learn(self, model: str, error: UpstreamError) -> bool:
        """Remember that the repair of this failure helped. False for one that teaches nothing lasting."""
        if error.kind not in LASTING:
            return False
        if model not in self._by_model and len(self._by_model) >= _MODELS:
            del self._by_model[next(iter(self._by_model))]
        known = [lesson for lesson in self._by_model.get(model, ()) if _about(lesson.error) != _about(error)]
        self._by_model[model] = [*known, Lesson(error, self._now() + self._seconds)][-_PER_MODEL:]
        return True

    def of(self, model: str) -> list[UpstreamError]:
        """The failures to prevent for a model."""
        lessons = self._by_model.get(model)
        if not lessons:
            return []
        now = self._now()
        return [lesson.error for lesson in lessons if lesson.expires > now]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Model and class of everything that is remembered, for /readyz."""
        now = self._now()
        for model, lessons in self._by_model.items():
            for lesson in lessons:
                if lesson.expires > now:
                    param = lesson.error.error.get("param")
                    yield model, f"{lesson.error.kind}:{param}" if param and lesson.error.kind == "param" else lesson.error.kind


def _about(error: UpstreamError) -> tuple[str, object]:
    return error.kind, error.error.get("param") or (error.message if error.kind == "param" else None)
