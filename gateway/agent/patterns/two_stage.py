"""two_stage: in each turn the model thinks first, while it has no tools, then it acts on its plan.

Only the accepted plan, cut to its budget, enters the conversation, and only in the request
of its own turn; the turn is stored as one assistant message. Rejected traces never do.
"""

from __future__ import annotations

from gateway.agent.acting import act
from gateway.agent.endings import Stopped
from gateway.agent.loop import ask, last_words, offered, opening, steps
from gateway.agent.memory.caps import cap_tokens as cut
from gateway.agent.memory.compaction import age
from gateway.agent.prompts import fill
from gateway.agent.protocols import verdict as read_verdict
from gateway.agent.run import Run, short
from gateway.agent.turn import Turn
from gateway.chat import Json
from gateway.errors import GatewayError

MARK = "[Plan]\n"
PLAN_TOKENS = 2_000

THINK = """You work in turns of two phases.
Thinking phase: you cannot call tools. Say in a few sentences what the user really wants (the goal, and what would count as done), \
what is known, what is still missing, and what you will do next and why.\
 Speak of what you will do, not of tools by name. Do not give the final answer here.
Acting phase: it begins after a message that starts with [Plan]. Carry that plan out: use what it needs, or give the answer. Do not repeat the plan."""

TOOLS_IN_WORDS = """In the acting phase you can do this:
{tools}"""

CRITIC = """You review the plan of an assistant before it acts. Accept it if it leads to what the user asked for with what is available; \
small flaws are no reason to refuse it.
Answer with one JSON object and nothing else:
{{"valid": true or false, "issue": "what is wrong, empty if valid", "plan": "the plan in short, as steps"}}

What is available:
{tools}"""

REVIEW = """The user's question:
{question}

The plan:
{plan}"""

REJECTED = """Your plan was not accepted: {issue}
Think again and make a better one."""


async def two_stage(run: Run) -> str:
    """Turns of thinking and acting until the model answers. Without tools: one call, no phases."""
    tools = offered(run)
    messages = opening(run, *(_words(run) if tools else ()))
    if not tools:
        run.step = 1
        turn = await ask(run, messages, [], live=True)
        run.new.append(turn.message)
        return await run.answer(turn, told=True)
    failed = False
    for _ in range(steps(run)):
        run.step += 1
        skipped = _skips(run, failed)
        plan = "" if skipped else await _think(run, messages, tools)
        if skipped:
            await run.emit("phase.finished", {"phase": "plan", "skipped": skipped})
        async with run.phase("act"):
            turn = await _acting(run, [*messages, *_tail(plan)], tools)
        if not turn.calls:
            run.new.append(turn.message)
            return await run.answer(turn)
        message, results = await act(run, turn)
        failed = any(_is_failure(run, result) for result in results)
        stored = {**message, "content": "\n\n".join(part for part in (MARK + plan if plan else "", turn.text) if part) or None}
        messages += [stored, *results]
        run.new += [stored, *results]
        messages[:] = age(messages, run.agent.thinking.age_after)
        run.guard.watch(turn)
    return await last_words(run, messages)


async def _acting(run: Run, messages: list[Json], tools: list[Json]) -> Turn:
    try:
        return await ask(run, messages, tools)
    except GatewayError as error:
        error.message = f"acting phase: {error.message}"
        raise


def _words(run: Run) -> list[str]:
    """What stands in the system text of both phases, the same bytes in both."""
    texts = [run.agent.options.prompts.get("think", THINK)]
    if run.agent.thinking.withhold == "omit_tools":
        texts.append(fill(TOOLS_IN_WORDS, tools=run.tools.descriptions()))
    return texts


def _skips(run: Run, failed: bool) -> str:
    """Why this turn has no thinking phase; empty: it has one."""
    phase = run.agent.thinking.phase
    if phase == "never":
        return "thinking.phase is never"
    if phase == "first_turn" and run.step > 1:
        return "thinking.phase is first_turn"
    if phase != "auto":
        return ""
    if run.reasons_natively:
        return "the model thinks by itself"
    if run.step > 1 and not failed:
        return "the plan stands, and the last step went well"
    return ""


async def _think(run: Run, messages: list[Json], tools: list[Json]) -> str:
    """The accepted plan of this turn, at most PLAN_TOKENS long; empty where the model said nothing."""
    settings = run.agent.thinking
    objections: list[Json] = []
    refused = rounds = 0
    while True:
        rounds += 1
        trace = await _trace(run, [*messages, *objections], tools, rounds)
        if not trace:
            return ""
        plan, issue = cut(trace, PLAN_TOKENS), ""
        if settings.critic is not None:
            plan, issue = await _review(run, trace, rounds)
        if issue:
            refused += 1
            assert settings.critic is not None
            if refused <= settings.critic.max_refine:
                objections = _objection(trace, issue)
                continue
            plan = cut(trace, PLAN_TOKENS)
            if settings.critic.on_exhaustion == "stop":
                raise Stopped("plan_rejected", f"the plan was refused {refused} times: {issue}")
        ask_person = run.agent.approval.plan or (issue and settings.critic is not None and settings.critic.on_exhaustion == "ask_human")
        if ask_person:
            said = await run.approve(f"plan:{run.step}:{rounds}", "plan", {"plan": plan}, issue or "the agent wants to carry out this plan")
            if not said["approved"]:
                objections = _objection(trace, str(said.get("reason") or "a person refused it"))
                continue
            edited = said.get("arguments")
            plan = str(edited["plan"]) if isinstance(edited, dict) and edited.get("plan") else plan
        return plan


async def _trace(run: Run, messages: list[Json], tools: list[Json], rounds: int) -> str:
    """One thinking phase: the model's words, while it has no tools."""
    try:
        async with run.phase("plan", round=rounds) as told:
            if run.agent.thinking.withhold == "tool_choice_none":
                turn = await run.ask(messages, tools=tools, choice="none", aloud=True)
            else:
                turn = await run.ask(messages, aloud=True)
            told["trace"] = turn.text
    except GatewayError as error:
        error.message = f"thinking phase: {error.message}"
        raise
    text = turn.text.strip()
    if text:
        await run.emit("thought", {"thought": text, "thought_number": run.step, "total_thoughts": max(run.step, 1), "incomplete_steps": True})
        run.think(short(text) + "\n", "summary")
    return text


async def _review(run: Run, trace: str, rounds: int) -> tuple[str, str]:
    """The critic's verdict: the plan in short, and the issue ("" where it is accepted). A verdict that cannot be read accepts."""
    system = fill(run.agent.options.prompts.get("critic", CRITIC), tools=run.tools.descriptions())
    question = fill(REVIEW, question=run.asked.question, plan=trace)
    try:
        async with run.phase("critic", round=rounds) as told:
            turn = await run.ask([{"role": "system", "content": system}, {"role": "user", "content": question}])
            verdict = read_verdict(turn.text)
            told |= {"valid": None if verdict is None else verdict.valid, "issue": "" if verdict is None else verdict.issue}
    except GatewayError as error:
        error.message = f"critic phase: {error.message}"
        raise
    if verdict is None or verdict.valid:
        return cut((verdict.plan if verdict is not None else "") or trace, PLAN_TOKENS), ""
    return "", verdict.issue or "no reason was given"


def _objection(trace: str, issue: str) -> list[Json]:
    """For the next thinking phase alone: what was refused, and why."""
    return [{"role": "assistant", "content": trace}, {"role": "user", "content": fill(REJECTED, issue=issue)}]


def _tail(plan: str) -> list[Json]:
    return [{"role": "assistant", "content": MARK + plan}] if plan else []


def _is_failure(run: Run, result: Json) -> bool:
    return run.failed_calls.get(str(result.get("tool_call_id")), False)


__all__ = ["PLAN_TOKENS", "THINK", "two_stage"]
