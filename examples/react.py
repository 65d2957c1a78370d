"""Thought, action, observation, in words that every model can write."""

import os

from gateway.agent import LLM, Calculator, ReActAgent, Registry

with LLM() if os.environ.get("LLM_MODEL_ID") else LLM.demo() as llm:
    agent = ReActAgent("thinker", llm, Registry([Calculator()]), max_iterations=5)  # verbose: it prints what it does

    print(agent.run("What is 15 * 8 + 32?"))
    for number, one in enumerate(agent.get_trace(), 1):
        print(f"round {number}: {one.action} -> {one.observation}")
