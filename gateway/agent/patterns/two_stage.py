"""two_stage: in each turn the model thinks first, while it has no tools, then it acts on its plan.

Only the accepted plan, cut to its budget, enters the conversation, and only in the request
of its own turn; the turn is stored as one assistant message. Rejected traces never do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gateway.agent.endings import Stopped
from gateway.agent.loop import Acting, ask, last_words, offered, opening, steps
from gateway.agent.memory.caps import cap_tokens as cut
from gateway.agent.memory.compaction import age
from gateway.agent.prompts import fill
from gateway.agent.protocols import verdict as read_verdict
from gateway.agent.run import Run
from gateway.agent.tools.registry import NO_TOOLS
from gateway.agent.wording import short
from gateway.chat import Json

log = logging.getLogger("thinkgate")

MARK = "[Plan]\n"
PLAN_TOKENS = 2_000
MOST_REFUSALS = 5
"""plans of one turn that a person may refuse; then the run stops"""

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
    acting = Acting(run, opening(run, *(_words(run, tools) if tools else ())))
    failed = False
    for _ in range(steps(run)):
        run.step += 1
        if not tools:
            return await acting.answer(await acting.turn())
        plan = "" if await _skips(run, failed) else await _think(run, acting.messages, tools)
        async with run.phase("act", f"act:{run.step}", "acting"):
            turn = await acting.turn(_tail(plan))
        if not turn.calls:
            return await acting.answer(turn)
        results = await acting.act(turn, MARK + plan if plan else "")
        failed = any(run.failed_calls.get(str(result.get("tool_call_id"))) for result in results)
        acting.messages[:] = age(acting.messages, run.agent.thinking.age_after)
    return await last_words(run, acting.messages)


def _words(run: Run, tools: Sequence[Json]) -> list[str]:
    """What stands in the system text of both phases, the same bytes in both."""
    if run.agent.thinking.phase == "never":
        return []
    texts = [run.agent.options.prompts.get("think", THINK)]
    if run.agent.thinking.withhold == "omit_tools":
        texts.append(fill(TOOLS_IN_WORDS, tools=described(tools)))
    return texts


def described(tools: Sequence[Json]) -> str:
    """The tools of a request in words, those of the client too (P12)."""
    functions = [tool.get("function", tool) for tool in tools]
    return "\n".join(f"- {one.get('name')}: {' '.join(str(one.get('description') or '').split())}" for one in functions) or NO_TOOLS


async def _skips(run: Run, failed: bool) -> bool:
    """Whether this turn has no thinking phase. Where that depends on how things are, the journal says why, and it stays so."""
    key, phase = f"skip:{run.step}", run.agent.thinking.phase
    if phase in ("never", "always") or run.known("phase.started", f"plan:{run.step}:1") is not None:
        return phase == "never"
    why = _reason(run, failed)
    if not why and run.known("phase.finished", key) is None:
        return False
    event = await run.emit("phase.finished", {"phase": "plan", "skipped": why}, key=key)
    log.info("run=%s step=%d has no thinking phase: %s", run.root.id, run.step, event.data["skipped"])
    return True


def _reason(run: Run, failed: bool) -> str:
    """Why this turn needs no thinking phase; empty: it needs one."""
    if run.agent.thinking.phase == "first_turn":
        return "thinking.phase is first_turn" if run.step > 1 else ""
    if run.reasons_natively:
        return "the model thinks by itself"
    if run.step > 1 and not failed:
        return "the plan stands, and the last step went well"
    return ""


async def _think(run: Run, messages: list[Json], tools: list[Json]) -> str:
    """The accepted plan of this turn, at most PLAN_TOKENS long; empty where the model said nothing."""
    settings = run.agent.thinking
    objections: list[Json] = []
    refused = by_person = rounds = 0
    while True:
        rounds += 1
        trace = await _trace(run, messages, objections, tools, rounds)
        if not trace:
            return ""
        plan, issue = cut(trace, PLAN_TOKENS), ""
        if settings.critic is not None:
            plan, issue = await _review(run, trace, tools, rounds)
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
                by_person += 1
                if by_person == MOST_REFUSALS:
                    raise Stopped("plan_rejected", f"a person refused {by_person} plans")
                objections = _objection(trace, str(said.get("reason") or "a person refused it"))
                continue
            edited = said.get("arguments")
            plan = cut(str(edited["plan"]), PLAN_TOKENS) if isinstance(edited, dict) and edited.get("plan") else plan
        return plan


async def _trace(run: Run, messages: list[Json], objections: Sequence[Json], tools: list[Json], rounds: int) -> str:
    """One thinking phase: the model's words, while it has no tools."""
    held, choice = (tools, "none") if run.agent.thinking.withhold == "tool_choice_none" else ([], None)
    async with run.phase("plan", f"plan:{run.step}:{rounds}", "thinking", round=rounds) as told:
        turn = await ask(run, messages, held, choice=choice, tail=objections, aloud=True, may_be_empty=True)
        told["trace"] = turn.text
    text = turn.text.strip()
    if text:
        await run.emit("thought", {"thought": text, "thought_number": run.step, "total_thoughts": max(run.step, 1), "incomplete_steps": True})
        run.think(short(text) + "\n", "summary")
    return text


async def _review(run: Run, trace: str, tools: Sequence[Json], rounds: int) -> tuple[str, str]:
    """The critic's verdict: the plan in short, and the issue ("" where it is accepted). A verdict that cannot be read accepts."""
    system = fill(run.agent.options.prompts.get("critic", CRITIC), tools=described(tools))
    question = fill(REVIEW, question=run.asked.question, plan=trace)
    async with run.phase("critic", f"critic:{run.step}:{rounds}", "critic", round=rounds) as told:
        turn = await run.ask([{"role": "system", "content": system}, {"role": "user", "content": question}])
        verdict = read_verdict(turn.text)
        told |= {"valid": None if verdict is None else verdict.valid, "issue": "" if verdict is None else verdict.issue}
    if verdict is None or verdict.valid:
        return cut((verdict.plan if verdict is not None else "") or trace, PLAN_TOKENS), ""
    return "", verdict.issue or "no reason was given"


def _objection(trace: str, issue: str) -> list[Json]:
    """For the next thinking phase alone: what was refused, and why."""
    return [{"role": "assistant", "content": trace}, {"role": "user", "content": fill(REJECTED, issue=issue)}]


def _tail(plan: str) -> list[Json]:
    return [{"role": "assistant", "content": MARK + plan}] if plan else []


__all__ = ["PLAN_TOKENS", "THINK", "two_stage"]
