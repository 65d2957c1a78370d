"""A model, its tools, and an answer. Runs on the built-in demo model, or on the one that LLM_* names."""

import os

from gateway.agent import LLM, Calculator, SimpleAgent


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its English name
    """
    return f"{city}: 21 degrees, sunny"


with LLM() if os.environ.get("LLM_MODEL_ID") else LLM.demo() as llm:
    agent = SimpleAgent("assistant", llm)
    agent.add_tool(weather)
    agent.add_tool(Calculator())

    answer = agent.run("What is the weather in Paris?")
    print(answer)
    print(f"{answer.steps} turns, {answer.usage['total_tokens']} tokens")

    for piece in agent.stream_run("Count to 5"):
        print(piece, end="", flush=True)
    print(f"\n{len(agent.get_history())} messages in the history")
