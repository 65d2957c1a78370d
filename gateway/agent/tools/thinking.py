"""`sequential_thinking`: the model thinks step by step where everybody can follow it."""

from __future__ import annotations

import threading
from typing import ClassVar

from gateway.agent.tools.thoughts import MAX_BRANCHES, MAX_LENGTH, MAX_THOUGHTS, REVISIONS, Thought, Thoughts
from gateway.agent.tools.tool import Context, Observation, Tool
from gateway.chat import Json, dumps

__all__ = ["SequentialThinking", "Thought", "Thoughts"]

DESCRIPTION = f"""\
Think through a problem step by step, in thoughts that may build on, question, revise or branch off from earlier ones.

Use it to plan, to analyse what has been found, and to change course when something turns out to be wrong. \
It synthesises: what has to be gathered or done is tracked in the todo list, not here.

How to write a thought:
- Natural language that the user would understand, in the user's language.
- Never name a tool. Say what you want to find out and why, not how it is done technically.
- Never put the final answer into a thought. Once the thinking is complete, answer in an ordinary message.

How to use the fields:
- Start with an estimate of total_thoughts; it may rise or fall at any time.
- To revise an earlier thought give revises_thought, and revision_type: replace (the new text stands in its place), \
amend (the new text is added to it, the default) or cancel (it no longer counts; the text says why).
- To explore an alternative give both branch_from_thought and branch_id, on every thought of that branch.
- Set next_thought_needed to false only when nothing is left to think through. Do not call again after that.

A thought may be {MAX_LENGTH} characters long. A session keeps at most {MAX_THOUGHTS} thoughts and {MAX_BRANCHES} branches."""

THOUGHT = """\
The current step, in natural language that the user would understand: an analysis, a question, a plan, a revision, a hypothesis or its check. \
Never name a tool; say what and why, not how. Never the final answer."""

_WHOLE = {"type": "integer", "minimum": 1}

PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "thought": {"type": "string", "description": THOUGHT},
        "next_thought_needed": {"type": "boolean", "description": "Whether another thought follows"},
        "thought_number": {**_WHOLE, "description": "Number of this thought, from 1"},
        "total_thoughts": {**_WHOLE, "description": "Estimate of how many thoughts are needed in all; may change"},
        "is_revision": {"type": "boolean", "description": "Whether this thought revises an earlier one"},
        "revises_thought": {**_WHOLE, "description": "Number of the thought that is revised"},
        "revision_type": {
            "type": "string",
            "enum": list(REVISIONS),
            "default": "amend",
            "description": "What becomes of the revised thought: replace (this one stands in its place), "
            "amend (it stays and this one is added to it), cancel (it no longer counts)",
        },
        "branch_from_thought": {**_WHOLE, "description": "Number of the thought that the branch leaves from; needs branch_id"},
        "branch_id": {"type": "string", "description": "Name of the branch; needs branch_from_thought"},
        "needs_more_thoughts": {"type": "boolean", "description": "Whether the end was reached but more thinking is needed"},
    },
    "required": ["thought", "next_thought_needed", "thought_number", "total_thoughts"],
}


class SequentialThinking(Tool):
    """The thinking tool. Its state is the session's: `Thoughts.from_json(context.session["sequential_thinking"])`.

    The text of an observation is the JSON `{success, output, data, error?}`; every accepted
    thought is also a `thought` event.
    """

    name = "sequential_thinking"
    description = DESCRIPTION
    aliases: ClassVar[tuple[str, ...]] = ("thinking", "sequentialthinking")
    lenient: ClassVar[bool] = True
    pure: ClassVar[bool] = True
    annotations: ClassVar[Json] = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}

    def __init__(self, *, max_thoughts: int = MAX_THOUGHTS, max_branches: int = MAX_BRANCHES, max_length: int = MAX_LENGTH) -> None:
        self._limits = {"max_thoughts": max_thoughts, "max_branches": max_branches, "max_length": max_length}
        self._lock = threading.Lock()

    @property
    def parameters(self) -> Json:
        return PARAMETERS

    async def call(self, arguments: Json, context: Context) -> Observation:
        """Take one thought. What is wrong with it becomes a result with `success: false`."""
        with self._lock:  # no await in here: calls of one session, from whatever thread, are taken one after the other
            thoughts = Thoughts.from_json(context.session.get(self.name), **self._limits)
            result, thought = thoughts.take(arguments)
            if thought is not None:
                context.session[self.name] = thoughts.to_json()
        if thought is not None:
            await context.emit("thought", thought.event())
        return Observation(dumps(result).decode(), ok=thought is not None)
