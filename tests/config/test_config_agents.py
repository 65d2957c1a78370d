"""Faults that only agents have."""

from __future__ import annotations

import pytest

from gateway import config
from gateway.app import secrets_of
from gateway.config.agents import TOOLS, AgentLimits, Thinking
from gateway.errors import ConfigError

HEAD = "providers: {a: {}}\nmodels: {smart: a/x, gpt-*: a/gpt-*}\nagents:\n  w: {pattern: simple, model: smart}\n"


def parse(text: str, env: dict[str, str] | None = None) -> config.Agent:
    return config.parse(HEAD + f"  x: {{{text}}}\n", "f", env=env or {}).agents["x"]


def fault_of(text: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, env)
    assert len(caught.value.faults) == 1
    return caught.value.lines()[0].split(": ", 1)[1]


def test_an_agent_needs_little() -> None:
    agent = parse("pattern: react, model: a/any")

    assert (agent.pattern, agent.model, agent.tools, agent.thinking, agent.limits) == ("react", "a/any", (), Thinking(), AgentLimits())


@pytest.mark.parametrize("model", ["smart", "gpt-5", "a/b/c"])
def test_a_model_is_whatever_a_request_may_name(model: str) -> None:
    assert parse(f"pattern: simple, model: {model}").model == model


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("model: smart", "agents.x: pattern is missing"),
        ("pattern: rect, model: smart", 'agents.x.pattern: "rect" is none of simple, react, two_stage, reflection, plan_and_solve; did you mean "react"?'),
        ("pattern: react, model: smrat", 'agents.x.model: unknown model "smrat"; known: smart, gpt-*, agent/w, agent/x; did you mean "smart"?'),
        ("pattern: react, model: b/x", 'agents.x.model: unknown model "b/x"; known: smart, gpt-*, agent/w, agent/x'),
        (
            "pattern: react, model: agent/y",
            'agents.x.model: "agent/y" is no model for an agent: it runs on an entry of models or provider/model, and calls another as a tool, agent:NAME',
        ),
        (
            "pattern: react, model: smart, tools: [calculater]",
            f'agents.x.tools[0]: unknown tool "calculater"; known: {", ".join(TOOLS)}; did you mean "calculator"?',
        ),
        ("pattern: react, model: smart, tools: [{calculator: {}}]", "agents.x.tools[0].calculator: calculator has no options"),
        (
            "pattern: react, model: smart, tools: [{fetsh: {}}]",
            f'agents.x.tools[0].fetsh: unknown tool "fetsh"; known: {", ".join(TOOLS)}; did you mean "fetch"?',
        ),
        ("pattern: react, model: smart, tools: [{}]", "agents.x.tools[0]: a tool with options is a map of its name to them: {fetch: {...}}"),
        ("pattern: react, model: smart, tools: [{fetch: {allow: [http://a]}}]", 'agents.x.tools[0].fetch.allow[0]: "http://a" is not a host or host:port'),
        ('pattern: react, model: smart, tools: ["python:tools:f"]', "agents.x.tools[0]: a function is named python:FILE.py:NAME"),
        ('pattern: react, model: smart, tools: ["agent:ww"]', 'agents.x.tools[0]: unknown agent "ww"; known: w, x; did you mean "w"?'),
        (
            "pattern: react, model: smart, tools: [{web_search: {backend: local}}]",
            "agents.x.tools[0].web_search: backend local needs path, the folder to search",
        ),
        ("pattern: react, model: smart, mcp: {m: {command: [a], url: http://b}}", "agents.x.mcp.m: an MCP server has either command or url"),
        ("pattern: react, model: smart, mcp: {m: {}}", "agents.x.mcp.m: an MCP server has either command or url"),
        ("pattern: react, model: smart, mcp: {m: {command: [a], headers: {A: b}}}", "agents.x.mcp.m.headers: is for servers with url"),
        ("pattern: react, model: smart, mcp: {m: {url: http://b, env: {A: b}}}", "agents.x.mcp.m.env: is for servers with command"),
        ("pattern: react, model: smart, mcp: {m: {command: [a], env: {1A: b}}}", 'agents.x.mcp.m.env.1A: "1A" is no name of an environment variable'),
        ("pattern: react, model: smart, options: {prompts: {plan: p}}", "agents.x.options.prompts.plan: pattern react has no prompt plan; it has: system"),
        (
            "pattern: react, model: smart, options: {prompts: {sistem: p}}",
            'agents.x.options.prompts.sistem: "sistem" is no prompt of any pattern; known: system, think, critic, initial, reflect, refine, plan, execute',
        ),
        ("pattern: react, model: smart, limits: {steps: 0}", 'agents.x.limits.steps: "0" is out of range: at least 1, at most 1000'),
    ],
)
def test_faults_of_an_agent(text: str, fault: str) -> None:
    assert fault_of(text) == fault


def test_what_opens_an_mcp_server_is_a_secret() -> None:
    text = (
        "pattern: react, model: smart, mcp: {m: {url: http://b, headers: {Authorization: Bearer abc-123-def}}, n: {command: [x], env: {TOKEN: ghp-1234567890}}}"
    )
    conf = config.parse(HEAD + f"  x: {{{text}}}\n", env={})

    assert {"Bearer abc-123-def", "ghp-1234567890"} <= set(secrets_of(conf))
    assert "abc-123-def" not in repr(conf)
    assert "ghp-1234567890" not in repr(conf)


def test_a_web_search_without_a_key_names_both() -> None:
    fault = fault_of("pattern: react, model: smart, tools: [web_search]")

    assert "TAVILY_API_KEY or SERPAPI_API_KEY" in fault


def test_a_chosen_search_service_needs_its_own_key() -> None:
    text = "pattern: react, model: smart, tools: [{web_search: {backend: serpapi}}]"

    assert "SERPAPI_API_KEY" in fault_of(text, {"TAVILY_API_KEY": "x"})
    assert parse(text, {"SERPAPI_API_KEY": "x"}).tools[0].name == "web_search"


def test_the_local_search_needs_no_key() -> None:
    assert parse("pattern: react, model: smart, tools: [{web_search: {backend: local, path: docs}}]").tools[0].name == "web_search"
