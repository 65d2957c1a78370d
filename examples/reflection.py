"""An answer, a review of it, a better answer."""

import os

from gateway.agent import LLM, ReflectionAgent

with LLM() if os.environ.get("LLM_MODEL_ID") else LLM.demo() as llm:
    agent = ReflectionAgent("writer", llm, max_reflections=2, auto_finish=True, verbose=False)

    print(agent.run("Write a two-line welcome for a library of poems"))
    for message in agent.get_history():
        print(f"{message.role:>9}: {message.content[:100]}")
