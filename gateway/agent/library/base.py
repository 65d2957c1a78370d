"""What all library agents have in common: one way to run, a history, tools (H7, H20, H23)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar

from gateway import config as settings
from gateway.agent.events import Delta, Event
from gateway.agent.library.closing import Closing
from gateway.agent.library.llm import LLM, Ready
from gateway.agent.library.verbose import Printer
from gateway.agent.library.work import Answer, Approve, Work
from gateway.agent.message import Agent, Config, Message
from gateway.agent.orders import PASSED_ON
from gateway.agent.run import Asked, Run
from gateway.agent.tools.registry import Registry
from gateway.agent.tools.tool import Tool
from gateway.chat import Json, Model
from gateway.config.agents import PROMPTS, AgentLimits, AgentOptions, Approval, Thinking

log = logging.getLogger("thinkgate.agent")


class PatternAgent(Closing, Agent):
    """An agent over one of the patterns. Subclasses say which, and what is special about it.

    llm            an LLM, or any Model
    tool_registry  its tools; `add_tool` makes one where there is none
    limits         tokens, cost, wall clock and so on, as in a config; the turns are the subclass's own argument
    approve_tools  tools whose calls `approve` is asked about first
    approve        what it is asked; without it such a call raises ApprovalRequired
    verbose        print what happens
    """

    pattern: ClassVar[str]
    alone: ClassVar[bool] = False
    """each run begins without what was said before"""

    def __init__(
        self,
        name: str,
        llm: LLM | Model,
        system_prompt: str | None = None,
        config: Config | None = None,
        tool_registry: Registry | None = None,
        *,
        limits: AgentLimits | None = None,
        approve_tools: Sequence[str] = (),
        approve: Approve | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(name, llm if isinstance(llm, LLM) else LLM.over(llm, getattr(llm, "model", None) or "model"), system_prompt, config)
        self.llm: LLM
        self.tool_registry = tool_registry
        self.enable_tool_calling = tool_registry is not None
        self.verbose = verbose
        self.session: dict[str, Any] = {}
        """what its tools keep between runs: thoughts, things to do; `clear_history` drops it"""
        self._limits = limits if limits is not None else AgentLimits()
        self._approve_tools = tuple(approve_tools)
        self._approve = approve

    # ---- running ----

    def run(self, input_text: str, **options: Any) -> Answer:
        """The answer, which is a `str`; the best there is where a limit or an outage ended the run (`reason` says which).

        `options`: turns that differ from the constructor's, under its name for them, and fields of every request to the
        model (temperature, max_tokens, ...). Raises GatewayError where there is nothing to show.
        """
        return self.llm.portal.call(lambda: self.arun(input_text, **options))

    async def arun(self, input_text: str, **options: Any) -> Answer:
        """As `run`, in the caller's loop."""
        work = await self._work(input_text, options)
        async with aclosing(work.items()) as items:
            async for _ in items:
                pass
        return work.answer()

    def stream_run(self, input_text: str, **options: Any) -> Generator[str]:
        """The answer in pieces, as they come; the history has it when it is whole. What `run` raises ends it."""
        return self.llm.portal.iterate(lambda: self.astream(input_text, **options))

    async def astream(self, input_text: str, **options: Any) -> AsyncGenerator[str]:
        """As `stream_run`, in the caller's loop."""
        async with aclosing(self.events(input_text, **options)) as items:
            async for item in items:
                if isinstance(item, Delta) and item.kind == "content":
                    yield item.text

    async def events(self, input_text: str, **options: Any) -> AsyncGenerator[Event | Delta]:
        """Everything that happens in a run: its events, and the pieces of answer and thoughts between them."""
        work = await self._work(input_text, options)
        async with aclosing(work.items()) as items:
            async for item in items:
                yield item

    async def _work(self, input_text: str, options: Mapping[str, Any]) -> Work:
        spec, parameters = self._spec(dict(options))
        ready = await self.llm.ready()
        self._forget()
        talk = [] if self.alone else [message.to_dict() for message in self._history]
        context = [*talk, {"role": "user", "content": input_text}]
        tools = self.tool_registry if self.enable_tool_calling and self.tool_registry is not None else Registry()
        session = dict(self.session)

        def begin(work: Work) -> Run:
            asked = Asked(context, parameters, session=dict(session))
            run = Run(work.id, spec, self._model(ready), tools, asked, work, list(work.known))
            run.reasons_natively = ready.reasons
            return run

        def done(work: Work) -> None:
            self.session = work.run.asked.session
            self.add_message(Message(input_text, "user"))
            for message in self._remember(work):
                self.add_message(message)

        printer = Printer(self.name) if self.verbose else None
        level = logging.getLevelName(self.config.log_level)

        def show(item: Event | Delta) -> None:
            if printer is not None:
                printer.show(item)
            if self.config.debug and isinstance(item, Event):
                log.log(level, "agent=%s run=%s step=%d %s", self.name, item.run_id, item.step, item.type)

        return Work(begin, done, show, self._approve)

    def _spec(self, options: dict[str, Any]) -> tuple[settings.Agent, Json]:
        """The agent as a config would have it, and the fields of its requests. TypeError for an unknown option."""
        parameters: Json = {"temperature": self.config.temperature}
        if self.config.max_tokens is not None:
            parameters["max_tokens"] = self.config.max_tokens
        steps = self._steps(options)
        if steps < 1:
            raise ValueError("an agent needs at least one turn")
        unknown = [name for name in options if name not in (*PASSED_ON, "stop")]
        if unknown:
            raise TypeError(f"{type(self).__name__} knows no option {', '.join(unknown)}")
        parameters |= options
        spec = settings.Agent(
            name=self.name,
            pattern=self.pattern,
            model=self.llm.model,
            system=self._system(),
            thinking=self._thinking(),
            approval=replace(self._approval(), tools=self._approve_tools),
            limits=replace(self._limits, steps=steps),
            options=self._options(),
        )
        return spec, {name: value for name, value in parameters.items() if value is not None}

    # ---- what subclasses say ----

    @abstractmethod
    def _steps(self, options: dict[str, Any]) -> int:
        """The turns of this run; what of the options says so is taken out."""

    def _system(self) -> str:
        return self.system_prompt or ""

    def _forget(self) -> None:
        """A run begins: what is kept of the latest one goes."""

    def _thinking(self) -> Thinking:
        return Thinking()

    def _approval(self) -> Approval:
        return Approval()

    def _options(self) -> AgentOptions:
        return AgentOptions()

    def _model(self, ready: Ready) -> Model:
        return ready.model

    def _remember(self, work: Work) -> list[Message]:
        """What the history gets of a run, after the user's message."""
        return [Message(work.run.output, "assistant")]

    # ---- tools ----

    def add_tool(self, tool: Tool | Callable[..., Any], *, replace: bool = False) -> Tool:
        """Take a tool or a plain function in (its name, its docstring), and switch tool calling on. ValueError for a name that is taken."""
        if self.tool_registry is None:
            self.tool_registry = Registry()
        made = self.tool_registry.add(tool, replace=replace)
        self.enable_tool_calling = True
        return made

    def remove_tool(self, name: str) -> bool:
        """False where there is none of this name."""
        return self.tool_registry is not None and self.tool_registry.unregister(name)

    def list_tools(self) -> list[str]:
        """The names of the tools that it uses."""
        return self.tool_registry.names() if self.tool_registry is not None and self.enable_tool_calling else []

    def has_tools(self) -> bool:
        return bool(self.list_tools())

    def clear_history(self) -> None:
        super().clear_history()
        self.session = {}

    # ---- the end ----

    def close(self) -> None:
        """As LLM.close, of its model."""
        self.llm.close()

    async def aclose(self) -> None:
        """As LLM.aclose, of its model."""
        await self.llm.aclose()


def prompts_of(pattern: str, given: Mapping[str, str] | None, names: Mapping[str, str] | None = None) -> dict[str, str]:
    """The prompts that a program replaces, by the pattern's names for them; the others stay. ValueError for one that it does not have."""
    known = PROMPTS[pattern]
    out = {(names or {}).get(name, name): text for name, text in (given or {}).items()}
    for name in out:
        if name not in known:
            raise ValueError(f"{pattern} has no prompt {name}; it has: {', '.join(known)}")
    return out
