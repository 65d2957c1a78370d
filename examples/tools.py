"""Tools without an agent: a registry, a tool object, calls by hand, several at a time, and a fixed chain."""

import asyncio
from typing import Any

from gateway.agent import Calculator, Pool, Registry, Tool, ToolChain, ToolParameter, tool


class Shout(Tool):
    name, description = "shout", "Says it louder."

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("text", "string", "what to say"), ToolParameter("times", "integer", "how loud", required=False, default=1)]

    def run(self, params: dict[str, Any]) -> str:
        return str(params["text"]).upper() + "!" * int(params.get("times", 1))


@tool(name="add", repeat="safe")
def plus(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


registry = Registry([Calculator(), Shout(), plus])
print(registry.descriptions())


async def main() -> None:
    print((await registry.execute("add", "a=2,b=3")).text)
    async with Pool(registry, workers=4) as pool:
        results = await pool.execute_all([("calculator", "sqrt(16)"), ("shout", {"text": "hi", "times": 3}), ("add", {"a": "41"})])
        print([result.text for result in results])
    chain = ToolChain("loud sum").step("calculator", "{input}", "sum").step("shout", {"text": "it is {sum}"}, "said")
    print(await chain.execute(registry, "2 + 3"))


asyncio.run(main())
