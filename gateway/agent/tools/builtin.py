"""The tools that a config names without saying what they are."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.agent.tools.calculator import Calculator
from gateway.agent.tools.fetch import Fetch
from gateway.agent.tools.places import Attractions, Weather
from gateway.agent.tools.search import WebSearch
from gateway.agent.tools.thinking import SequentialThinking
from gateway.agent.tools.todo import TodoWrite
from gateway.agent.tools.tool import Tool
from gateway.config import agents as config
from gateway.upstream.guarded import GuardedClient


def build(tool: config.Tool, env: Mapping[str, str], *, client: GuardedClient | None = None) -> Tool:
    """The built-in tool of an entry of an agent's `tools`.

    `env` holds the keys of the search services. `client` does the requests of the services
    (search, weather); `fetch` has its own, which allows what its options say. ValueError where
    the name is none of config.agents.TOOLS, or nobody can search for web_search.
    """
    match tool.name:
        case "sequential_thinking":
            return SequentialThinking()
        case "todo_write":
            return TodoWrite()
        case "calculator":
            return Calculator()
        case "weather":
            return Weather(client=client)
        case "web_search":
            search = tool.options if isinstance(tool.options, config.SearchOptions) else config.SearchOptions()
            return WebSearch(search.backend, search.path, env=env, client=client)
        case "attractions":
            return Attractions(_search(env, client))
        case "fetch":
            fetch = tool.options if isinstance(tool.options, config.FetchOptions) else config.FetchOptions()
            return Fetch(fetch.allow, fetch.only)
    raise ValueError(f"unknown tool {tool.name!r}; known: {', '.join(config.TOOLS)}")


def _search(env: Mapping[str, str], client: GuardedClient | None) -> WebSearch | None:
    """Nobody's key is no fault here: attractions then says so when it is called."""
    try:
        return WebSearch(env=env, client=client)
    except ValueError:
        return None
