"""What a verbose agent prints while it works."""

from __future__ import annotations

from gateway.agent.events import Delta, Event
from gateway.agent.wording import short
from gateway.chat import Json, dumps

PREVIEW = 120
"""characters of a text that is shown in short (H30)"""


class Printer:
    """Prints a run's events on stdout, a line each."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._phase = ""

    def show(self, item: Event | Delta) -> None:
        if isinstance(item, Event):
            for line in self._lines(item):
                print(f"[{self._agent}] {line}", flush=True)

    def _lines(self, event: Event) -> list[str]:
        data = event.data
        if event.type == "phase.started":
            self._phase = str(data["phase"])
            return [f"{self._phase} {data['step']}/{data['of']}: {short(str(data['task']), PREVIEW)}"] if "of" in data else []
        if event.type == "phase.finished":
            steps = [f"plan: {number}. {step}" for number, step in enumerate(data.get("plan") or (), 1)]
            return [*steps, *([f"the {data['phase']} phase failed: {data['error']}"] if data.get("error") else [])]
        if event.type == "thought":
            return [f"Thought: {short(str(data['thought']), PREVIEW)}"]
        if event.type == "tool.started":
            return [f"Action: {data['name']}[{short(_text(data['arguments']), PREVIEW)}]"]
        if event.type == "tool.finished":
            return [f"Observation: {short(str(data['output']), PREVIEW)}"]
        if event.type == "usage" and self._phase in ("initial", "reflect", "refine"):
            said = (event.state or {}).get("message", {}).get("content")
            return [f"{self._phase}: {short(said, PREVIEW)}"] if isinstance(said, str) and said else []
        if event.type == "run.finished":
            end = "" if data["reason"] is None else f" ({data['status']}: {data['reason']})"
            return [f"Answer{end}: {short(str(data['output']), PREVIEW)}"]
        return []


def _text(arguments: Json | str) -> str:
    return arguments if isinstance(arguments, str) else dumps(arguments).decode()
