"""The patterns as classes: SimpleAgent, ReActAgent, ReflectionAgent, PlanAndSolveAgent, TwoStageAgent (H18 to H36, P1 to P26)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, NamedTuple

from gateway.agent.library.base import PatternAgent, prompts_of
from gateway.agent.library.llm import LLM, Ready
from gateway.agent.library.work import Work
from gateway.agent.message import Config, Message
from gateway.agent.tools.registry import Registry
from gateway.agent.wording import text_of
from gateway.chat import Chunk, Model, Request, dumps
from gateway.config.agents import AgentOptions, Approval, Critic, Thinking

PHASES = ("always", "never", "first_turn", "auto")
WITHHOLDS = ("omit_tools", "tool_choice_none")
VISIBILITIES = ("hidden", "summary", "full")


class SimpleAgent(PatternAgent):
    """The model, its tools, and an answer.

    tool_registry        what it can call; `enable_tool_calling` counts only where there is one
    max_tool_iterations  of `run`: turns that may call tools, 3; then one more without gives the answer
    """

    pattern: ClassVar[str] = "simple"

    def __init__(
        self,
        name: str,
        llm: LLM | Model,
        system_prompt: str | None = None,
        config: Config | None = None,
        tool_registry: Registry | None = None,
        enable_tool_calling: bool = True,
        **more: Any,
    ) -> None:
        """`more`: limits, approve_tools, approve, verbose (off) of every agent."""
        super().__init__(name, llm, system_prompt, config, tool_registry, **more)
        self.enable_tool_calling = enable_tool_calling and tool_registry is not None

    def _steps(self, options: dict[str, Any]) -> int:
        return int(options.pop("max_tool_iterations", 3))


class Round(NamedTuple):
    """One round of a ReActAgent that called a tool."""

    thought: str
    action: str
    observation: str

    def __str__(self) -> str:
        return f"Thought: {self.thought}\nAction: {self.action}\nObservation: {self.observation}"


class ReActAgent(PatternAgent):
    """Thought, action, observation, in words that every model can write, until it writes Finish.

    max_iterations  rounds; then the model must answer
    custom_prompt   instead of the pattern's own, with {tools}, {question} and {history}
    is_stream       a verbose agent prints the rounds while they come
    """

    pattern: ClassVar[str] = "react"

    def __init__(
        self,
        name: str,
        llm: LLM | Model,
        tool_registry: Registry | None = None,
        system_prompt: str | None = None,
        config: Config | None = None,
        max_iterations: int = 5,
        custom_prompt: str | None = None,
        is_stream: bool = False,
        verbose: bool = True,
        **more: Any,
    ) -> None:
        """`more`: limits, approve_tools, approve of every agent."""
        super().__init__(name, llm, system_prompt, config, tool_registry if tool_registry is not None else Registry(), verbose=verbose, **more)
        self.max_iterations = max_iterations
        self.is_stream = is_stream
        self._prompts = {} if custom_prompt is None else {"system": custom_prompt}
        self._trace: list[Round] = []

    def get_trace(self) -> list[Round]:
        """The rounds of the latest run that called tools, in a list of the caller's own."""
        return list(self._trace)

    def _steps(self, options: dict[str, Any]) -> int:
        return int(options.pop("max_iterations", self.max_iterations))

    def _forget(self) -> None:
        self._trace = []

    def _options(self) -> AgentOptions:
        return AgentOptions(prompts=self._prompts)

    def _model(self, ready: Ready) -> Model:
        return _Aloud(ready.model) if self.is_stream and self.verbose else ready.model

    def _remember(self, work: Work) -> list[Message]:
        thoughts = {event.step: str(event.data["thought"]) for event in work.rounds("thought") if "#" not in event.key}
        started, trace = {event.key: event for event in work.rounds("tool.started")}, []
        for event in work.rounds("tool.finished"):
            given = started[event.key].data["arguments"] if event.key in started else ""
            action = f"{event.data['name']}[{given if isinstance(given, str) else dumps(given).decode()}]"
            trace.append(Round(thoughts.get(event.step, ""), action, str(event.data["output"])))
        self._trace = trace
        return super()._remember(work)


class _Aloud:
    """A Model whose text is printed while it comes."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        async with aclosing(self._model.generate(request)) as chunks:
            async for chunk in chunks:
                for choice in chunk.json().get("choices") or ():
                    text = (choice.get("delta") or choice.get("message") or {}).get("content")
                    if isinstance(text, str):
                        print(text, end="", flush=True)
                yield chunk
        print(flush=True)


class ReflectionAgent(PatternAgent):
    """An answer, a review of it, a better answer; again, a few times. Its prompts say everything: `system_prompt` and earlier runs are not sent.

    max_reflections  rounds of review and better answer
    auto_finish      a review with [NO_IMPROVEMENT_NEEDED] ends it
    custom_prompts   `initial` with {task}, `reflect` with {task} and {content}, `refine` with {task}, {last_attempt} and {feedback}
    """

    pattern: ClassVar[str] = "reflection"
    alone: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        llm: LLM | Model,
        system_prompt: str | None = None,
        config: Config | None = None,
        max_reflections: int = 2,
        auto_finish: bool = False,
        custom_prompts: Mapping[str, str] | None = None,
        verbose: bool = True,
        **more: Any,
    ) -> None:
        """`more`: tool_registry, limits, approve_tools, approve of every agent."""
        super().__init__(name, llm, system_prompt, config, verbose=verbose, **more)
        if max_reflections < 0:
            raise ValueError("max_reflections: must not be less than 0")
        self.max_reflections = max_reflections
        self.auto_finish = auto_finish
        self._prompts = prompts_of("reflection", custom_prompts)

    def _steps(self, options: dict[str, Any]) -> int:
        return int(options.pop("max_tool_iterations", 3))

    def _system(self) -> str:
        return ""

    def _options(self) -> AgentOptions:
        return AgentOptions(self.max_reflections, self.auto_finish, self._prompts)

    def _remember(self, work: Work) -> list[Message]:
        return _said(work)


class StepResult(NamedTuple):
    """One step of a plan, and what came of it."""

    step: str
    result: str


class PlanAndSolveAgent(PatternAgent):
    """A plan first, then its steps one by one. Its prompts say everything: `system_prompt` and earlier runs are not sent.

    custom_prompts       `plan` (or `planner`) with {question}; `execute` (or `executor`) with {question}, {plan}, {history} and {current_step}
    max_tool_iterations  of `run`: turns of one step that may call tools, 3
    """

    pattern: ClassVar[str] = "plan_and_solve"
    alone: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        llm: LLM | Model,
        system_prompt: str | None = None,
        config: Config | None = None,
        custom_prompts: Mapping[str, str] | None = None,
        tool_registry: Registry | None = None,
        **more: Any,
    ) -> None:
        """`more`: limits, approve_tools, approve, verbose (off) of every agent."""
        super().__init__(name, llm, system_prompt, config, tool_registry, **more)
        self._prompts = prompts_of("plan_and_solve", custom_prompts, {"planner": "plan", "executor": "execute"})
        self._results: list[StepResult] = []

    def get_step_results(self) -> list[StepResult]:
        """The steps of the latest run with their results, in a list of the caller's own."""
        return list(self._results)

    def _steps(self, options: dict[str, Any]) -> int:
        return int(options.pop("max_tool_iterations", 3))

    def _forget(self) -> None:
        self._results = []
        self.session = {name: value for name, value in self.session.items() if name not in ("plan", "todo_write")}  # each run has a plan of its own

    def _system(self) -> str:
        return ""

    def _options(self) -> AgentOptions:
        return AgentOptions(prompts=self._prompts)

    def _remember(self, work: Work) -> list[Message]:
        done = [event.data for event in work.rounds("phase.finished") if event.data.get("phase") == "execute" and "result" in event.data]
        self._results = [StepResult(data["task"], data["result"]) for data in done]
        plan = _said(work)[:1]
        return [*plan, *(Message(result, "assistant") for _, result in self._results)]


class TwoStageAgent(PatternAgent):
    """In each turn the model thinks first, while it has no tools, then it acts on its plan. Without tools: one call, no phases.

    thinking        always | never | first_turn | auto: which turns have a thinking phase
    withhold        how the tools are kept away in it: omit_tools | tool_choice_none
    critic          a second opinion on each plan: True, or Critic(max_refine=, on_exhaustion="last_trace" | "ask_human" | "stop")
    approve_plan    `approve` is asked about each plan
    visibility      hidden | summary | full: what of the thoughts is shown
    age_after       turns after which a plan leaves the conversation
    custom_prompts  `think`, `critic`
    max_iterations  turns
    """

    pattern: ClassVar[str] = "two_stage"

    def __init__(
        self,
        name: str,
        llm: LLM | Model,
        system_prompt: str | None = None,
        config: Config | None = None,
        tool_registry: Registry | None = None,
        thinking: str = "always",
        withhold: str = "omit_tools",
        critic: bool | Critic = False,
        approve_plan: bool = False,
        visibility: str = "summary",
        age_after: int | None = None,
        custom_prompts: Mapping[str, str] | None = None,
        max_iterations: int = 20,
        **more: Any,
    ) -> None:
        """`more`: limits, approve_tools, approve, verbose (off) of every agent."""
        super().__init__(name, llm, system_prompt, config, tool_registry, **more)
        for field, value, known in (("thinking", thinking, PHASES), ("withhold", withhold, WITHHOLDS), ("visibility", visibility, VISIBILITIES)):
            if value not in known:
                raise ValueError(f"{field}: {value!r} is none of {', '.join(known)}")
        review = critic if isinstance(critic, Critic) else Critic() if critic else None
        self._phases = Thinking(thinking, withhold, review, visibility, age_after)
        self._approve_plan = approve_plan
        self._prompts = prompts_of("two_stage", custom_prompts)
        self.max_iterations = max_iterations

    def _steps(self, options: dict[str, Any]) -> int:
        return int(options.pop("max_iterations", self.max_iterations))

    def _thinking(self) -> Thinking:
        return self._phases

    def _approval(self) -> Approval:
        return Approval(plan=self._approve_plan)

    def _options(self) -> AgentOptions:
        return AgentOptions(prompts=self._prompts)


def _said(work: Work) -> list[Message]:
    """What was said in a run as text, without the turns that call tools and their results."""
    return [
        Message(text_of(message), message["role"])
        for message in work.run.new
        if message.get("role") in ("user", "assistant") and not message.get("tool_calls") and text_of(message)
    ]
