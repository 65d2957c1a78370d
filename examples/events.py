"""Async: the same agent in your own event loop, with everything that happens in it."""

import asyncio
import os

from gateway.agent import LLM, Calculator, Delta, Registry, SimpleAgent


async def main() -> None:
    async with LLM() if os.environ.get("LLM_MODEL_ID") else LLM.demo() as llm:
        agent = SimpleAgent("assistant", llm, tool_registry=Registry([Calculator()]))
        async for item in agent.events("What is 17 * 23?"):
            if isinstance(item, Delta):
                if item.kind == "content":
                    print(item.text, end="", flush=True)
            elif item.type in ("tool.started", "tool.finished"):
                print(item.type, item.data["name"], item.data.get("output", ""))
        print()
        answers = await asyncio.gather(*(agent.arun(f"What is {n} * {n}?") for n in (3, 4, 5)))
        print(answers)


asyncio.run(main())
