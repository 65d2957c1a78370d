"""A plan first, then its steps one by one."""

import os

from gateway.agent import LLM, Calculator, PlanAndSolveAgent, Registry

with LLM() if os.environ.get("LLM_MODEL_ID") else LLM.demo() as llm:
    agent = PlanAndSolveAgent("planner", llm, tool_registry=Registry([Calculator()]))

    print(agent.run("A shop sells 15 boxes of 8 apples and 32 single ones. What is 15 * 8 + 32?"))
    for number, done in enumerate(agent.get_step_results(), 1):
        print(f"step {number}: {done.step} -> {done.result[:80]}")
