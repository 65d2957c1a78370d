"""Each turn thinks first, without tools, then acts on its plan. A person may look at the plan between the two."""

import os

from gateway.agent import LLM, Calculator, PendingCall, Registry, SequentialThinking, TwoStageAgent


def look(call: PendingCall) -> bool:
    """Say True, False, a text (why not), or {"approved": True, "arguments": {"plan": "a better one"}}."""
    print(f"the plan: {call.arguments['plan']}")
    return True


with LLM() if os.environ.get("LLM_MODEL_ID") else LLM.demo() as llm:
    tools = Registry([Calculator(), SequentialThinking()])
    agent = TwoStageAgent("analyst", llm, tool_registry=tools, approve_plan=True, approve=look, visibility="full")

    answer = agent.run("What is 17 * 23?")
    print(f"thoughts: {answer.reasoning[:200]}")
    print(answer)
