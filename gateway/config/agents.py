"""What a config file says about agents, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config.fields import TEXT, WRONG, Field, Listing, Place, Reading, Schema, Section, Table, unknown
from gateway.config.kinds import AMOUNT, BOOLEAN, COUNT, DURATION, HEADER_VALUE, HOST_PORT, MODEL_NAME, PATH, URL, WHOLE, header_name, name, within, words
from gateway.config.reader import Entry, Node, quote
from gateway.config.values import matched

PATTERNS = ("simple", "react", "two_stage", "reflection", "plan_and_solve")
TOOLS = ("sequential_thinking", "todo_write", "calculator", "web_search", "weather", "attractions", "fetch")
PROMPTS: Mapping[str, tuple[str, ...]] = {
    "simple": (),
    "react": ("system",),
    "two_stage": ("think", "critic"),
    "reflection": ("initial", "reflect", "refine"),
    "plan_and_solve": ("plan", "execute"),
}
"""the prompts that each pattern lets a file replace"""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Hosts (`host` or `host:port`) that are reachable whatever they are; `only`: and no others."""

    allow: tuple[str, ...] = ()
    only: bool = False


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Who searches (None: whose key is in the environment), and the folder of backend local."""

    backend: str | None = None
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of an agent.

    `kind` is `builtin`, `python` (a function in `file`) or `agent` (another agent, `name`).
    """

    name: str
    kind: str = "builtin"
    file: Path | None = None
    options: FetchOptions | SearchOptions | None = None


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server: a command to start in `folder` (None: the working directory) with `env` beside PATH and HOME, or a URL.

    `tools` None: all that it has.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str | None = field(default=None, repr=False)
    tools: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Critic:
    max_refine: int = 2
    on_exhaustion: str = "last_trace"


@dataclass(frozen=True, slots=True)
class Thinking:
    """`age_after`: turns after which old thoughts leave the context; None: never."""

    phase: str = "always"
    withhold: str = "omit_tools"
    critic: Critic | None = None
    visibility: str = "summary"
    age_after: int | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    plan: bool = False
    tools: tuple[str, ...] = ()
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """`steps` None: the pattern's own; `tokens`, `cost` (USD) and `wall` (seconds) None: no limit."""

    steps: int | None = None
    tokens: int | None = None
    cost: float | None = None
    wall: float | None = None
    tool: float = 60.0
    parallel: int = 4
    history: int = 100
    unpriced: str = "refuse"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    max_reflections: int = 2
    auto_finish: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Agent:
    """`on_disconnect` None: cancel without a session, detach with one and for runs."""

    name: str
    pattern: str
    model: str
    system: str = ""
    tools: tuple[Tool, ...] = ()
    mcp: Mapping[str, McpServer] = field(default_factory=dict, hash=False)
    thinking: Thinking = Thinking()
    approval: Approval = Approval()
    limits: AgentLimits = AgentLimits()
    options: AgentOptions = AgentOptions()
    on_disconnect: str | None = None


@dataclass(frozen=True, slots=True)
class ModelReference:
    """What a request may name as its model: an entry of models, what a pattern matches, provider/model, agent/NAME."""

    globs: bool = False
    name: str = "model"

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        text = MODEL_NAME.read(node, path, reading)
        if not isinstance(text, str):
            return WRONG
        if not self.globs and text.startswith("agent/") and not node.hidden:
            return reading.fault(
                path, f"{quote(text)} is no model for an agent: it runs on an entry of models or provider/model, and calls another as a tool, agent:NAME", node
            )
        if (self.globs and any(c in text for c in "*?[")) or self._known(text, reading):
            return text
        names = [*reading.names.get("models", ()), *(f"agent/{n}" for n in reading.names.get("agents", ()))]
        shown = "unknown model" if node.hidden else unknown("model", text, names)
        return reading.fault(path, shown, node)

    def _known(self, text: str, reading: Reading) -> bool:
        models = reading.names.get("models", ())
        before, slash, after = text.partition("/")
        if slash and before == "agent":
            return after in reading.names.get("agents", ())
        by_provider = bool(after) and before in reading.names.get("providers", ())
        return text in models or by_provider or any(matched(pattern, text) is not None for pattern in models)

    def schema(self) -> Schema:
        return MODEL_NAME.schema()

    def show(self, value: Any) -> str:
        return str(value)


FETCH = Section(
    "fetch",
    FetchOptions,
    (
        Field("allow", Listing(HOST_PORT), "hosts that are reachable whatever they are"),
        Field("only", BOOLEAN, "nothing else is reachable"),
    ),
)


def _local_needs_a_folder(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    if values.get("backend") == "local" and "path" not in values:
        return reading.fault(path, "backend local needs path, the folder to search", node)
    return values


WEB_SEARCH = Section(
    "web_search",
    SearchOptions,
    (
        Field("backend", words("tavily", "serpapi", "local"), "who searches; the default is the one whose key is in the environment"),
        Field("path", PATH, "the folder that backend local searches"),
    ),
    adapt=_local_needs_a_folder,
)

TOOL_OPTIONS = {"fetch": FETCH, "web_search": WEB_SEARCH}
SEARCH_KEYS = {"tavily": "TAVILY_API_KEY", "serpapi": "SERPAPI_API_KEY"}


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A name, `python:FILE:NAME`, `agent:NAME`, or a built-in tool with options: `{fetch: {...}}`."""

    name: str = "tool"

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "map":
            return self._with_options(node, path, reading)
        text = TEXT.read(node, path, reading)
        if not isinstance(text, str):
            return WRONG
        scheme, colon, rest = text.partition(":")
        if scheme == "python" and colon:
            file, _, function = rest.rpartition(":")
            if not file.endswith(".py") or not function.isidentifier():
                return reading.fault(path, "a function is named python:FILE.py:NAME", node)
            return Tool(function, "python", reading.base / file)
        if scheme == "agent" and colon:
            return Tool(rest, "agent") if reading.refer("agents", "agent", rest, path, node) else WRONG
        if text not in TOOLS:
            return reading.fault(path, unknown("tool", text, TOOLS), node)
        return _search(Tool(text), node, path, reading)

    def _with_options(self, node: Node, path: Place, reading: Reading) -> Any:
        if len(node.entries) != 1:
            return reading.fault(path, "a tool with options is a map of its name to them: {fetch: {...}}", node)
        entry: Entry = next(iter(node.entries.values()))
        inner = (*path, entry.key)
        if entry.key not in TOOLS:
            return reading.fault(inner, unknown("tool", entry.key, TOOLS), entry)
        if entry.key not in TOOL_OPTIONS:
            return reading.fault(inner, f"{entry.key} has no options", entry)
        options = reading.entry(TOOL_OPTIONS[entry.key], entry, inner)
        if not isinstance(options, FetchOptions | SearchOptions):
            return WRONG
        return _search(Tool(entry.key, options=options), node, inner, reading)

    def schema(self) -> Schema:
        options = {key: section.schema() for key, section in TOOL_OPTIONS.items()}
        with_options = {"type": "object", "properties": options, "additionalProperties": False, "minProperties": 1, "maxProperties": 1}
        return {"anyOf": [{"enum": list(TOOLS)}, {"type": "string", "pattern": r"^(python:.+\.py:\w+|agent:.+)$"}, with_options]}

    def show(self, value: Any) -> str:
        return str(value.name)


def _search(tool: Tool, node: Node, path: Place, reading: Reading) -> Any:
    """A web search needs somebody who searches: a key of a search service, or the local backend."""
    backend = tool.options.backend if isinstance(tool.options, SearchOptions) else None
    if tool.name != "web_search" or backend == "local":
        return tool
    wanted = [SEARCH_KEYS[backend]] if backend else list(SEARCH_KEYS.values())
    if not any(reading.env.get(variable) for variable in wanted):
        return reading.fault(path, f"web_search needs {' or '.join(wanted)} in the environment, or {{web_search: {{backend: local, path: DIR}}}}", node)
    return tool


def _one_way_in(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    if ("command" in values) == ("url" in values):
        return reading.fault(path, "an MCP server has either command or url", node)
    for key, needs in (("env", "command"), ("headers", "url")):
        if key in values and needs not in values:
            reading.fault((*path, key), f"is for servers with {needs}", node.entries[key])
    return values | {"folder": reading.base} if "command" in values else values


def _variable(text: str) -> str:
    if not text.isascii() or not text.isidentifier():
        raise ValueError("is no name of an environment variable")
    return text


MCP_SERVER = Section(
    "MCP server",
    McpServer,
    (
        Field("command", Listing(TEXT, least=1), "the program and its arguments"),
        Field("url", URL, "where the server listens"),
        Field("tools", Listing(TEXT), "the only tools of it that may be used, by its own names", default="all"),
        Field("env", Table("variable", HEADER_VALUE, _variable), "environment of the command beside PATH and HOME; it sees no other variable"),
        Field("headers", Table("header", HEADER_VALUE, header_name, drop_empty=True), "headers of every request to the URL"),
    ),
    adapt=_one_way_in,
    named=True,
)

CRITIC = Section(
    "critic",
    Critic,
    (
        Field("max_refine", within(WHOLE, 0, 20), "how often a refused plan is made anew"),
        Field("on_exhaustion", words("last_trace", "ask_human", "stop"), "what happens when it is still refused"),
    ),
)

THINKING = Section(
    "thinking",
    Thinking,
    (
        Field("phase", words("never", "always", "first_turn", "auto"), "when a thinking phase comes first"),
        Field("withhold", words("omit_tools", "tool_choice_none"), "how the tools are withheld while it thinks"),
        Field("critic", CRITIC, "who reviews the plan; without it nobody does"),
        Field("visibility", words("summary", "full", "hidden"), "what the client sees of the thoughts"),
        Field("age_after", within(WHOLE, 1), "turns after which old thoughts leave the context"),
    ),
)

APPROVAL = Section(
    "approval",
    Approval,
    (
        Field("plan", BOOLEAN, "a person approves the plan"),
        Field("tools", Listing(TEXT), "tools that a person approves before each call"),
        Field("timeout", DURATION, "not approved by then is refused"),
    ),
)

LIMITS = Section(
    "limits",
    AgentLimits,
    (
        Field("steps", within(WHOLE, 1, 1000), "turns in which the model may act", default="the pattern's"),
        Field("tokens", COUNT, "tokens of the whole run"),
        Field("cost", AMOUNT, "USD of the whole run"),
        Field("wall", DURATION, "time of the whole run"),
        Field("tool", DURATION, "time of one tool call"),
        Field("parallel", within(WHOLE, 1, 64), "tool calls at a time"),
        Field("history", within(WHOLE, 1, 100_000), "messages of a session that stay in the context"),
        Field("unpriced", words("refuse", "allow"), "whether a model without a price may run under a cost limit"),
    ),
)

PROMPT_NAMES = tuple(dict.fromkeys(prompt for prompts in PROMPTS.values() for prompt in prompts))


def _prompt_name(text: str) -> str:
    if text not in PROMPT_NAMES:
        raise ValueError(f"is no prompt of any pattern; known: {', '.join(PROMPT_NAMES)}")
    return text


OPTIONS = Section(
    "options",
    AgentOptions,
    (
        Field("max_reflections", within(WHOLE, 0, 100), "rounds of the reflection pattern"),
        Field("auto_finish", BOOLEAN, "reflection ends when nothing is left to improve"),
        Field("prompts", Table("prompt", TEXT, _prompt_name), "prompts that replace the pattern's own"),
    ),
)


def _prompts_fit(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    pattern = values["pattern"]
    options: AgentOptions = values.get("options", AgentOptions())
    for prompt in options.prompts:
        if prompt not in PROMPTS[pattern]:
            entry = node.entries["options"].value.entries["prompts"].value.entries[prompt]
            known = ", ".join(PROMPTS[pattern]) or "none"
            reading.fault((*path, "options", "prompts", prompt), f"pattern {pattern} has no prompt {prompt}; it has: {known}", entry)
    return values


AGENT = Section(
    "agent",
    Agent,
    (
        Field("pattern", words(*PATTERNS), "how it works", required=True),
        Field("model", ModelReference(), "an entry of models, or provider/model", required=True),
        Field("system", TEXT, "text before the pattern's own prompt"),
        Field("tools", Listing(ToolKind()), "built-in tools, python:FILE:NAME, agent:NAME"),
        Field("mcp", Table("server", MCP_SERVER, name), "MCP servers whose tools it may call"),
        Field("thinking", THINKING, "the thinking phase of two_stage"),
        Field("approval", APPROVAL, "what a person must approve"),
        Field("limits", LIMITS, "what a run may cost"),
        Field("options", OPTIONS, "the pattern's own settings"),
        Field("on_disconnect", words("cancel", "detach"), "what a closed connection does to a run", default="cancel; detach with a session"),
    ),
    adapt=_prompts_fit,
    named=True,
)

AGENTS = Table("agent", AGENT, name)
