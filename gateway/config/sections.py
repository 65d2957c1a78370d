"""The tables of a config file: every setting with its kind and what it is for.

Defaults are those of the values; what is wrong between two settings of one section is
found here, what is wrong between sections in gateway.config.build.
"""

from __future__ import annotations

from typing import Any

from gateway.config.agents import AGENTS, ModelReference
from gateway.config.fields import WRONG, Field, FilePath, Listing, Place, Reading, Reference, Scalar, Schema, Section, Table
from gateway.config.kinds import (
    AMOUNT,
    BASE_URL,
    BOOLEAN,
    COUNT,
    DATE,
    DURATION,
    DURATION_OR_ZERO,
    HEADER_VALUE,
    HOST,
    HOST_PORT,
    JSON,
    NAME,
    ORIGIN,
    PATH,
    PROXY,
    SECRET,
    SHARED,
    SIZE,
    STORE,
    WHOLE,
    header_name,
    is_plain,
    model_name,
    name,
    within,
    words,
)
from gateway.config.reader import Node, quote
from gateway.config.values import (
    BALANCES,
    FAILURE_CLASSES,
    PERIODS,
    THINKING,
    Budget,
    Config,
    Cooldown,
    HookBudget,
    Http,
    Key,
    Limits,
    Model,
    Price,
    Provider,
    Retention,
    Secret,
    Server,
    Target,
    Team,
    Timeouts,
)

RETRIES = within(WHOLE, 0, 10)
WEAK = 16
"""characters below which a key that clients present is called short"""


def _warn_if_short(key: Secret | None, path: Place, at: Node, reading: Reading) -> None:
    if key is not None and len(key.reveal()) < WEAK:
        reading.warn(path, f"the key has fewer than {WEAK} characters and can be guessed", at)


# server


def _check_server(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    if "keys" in values:
        given = [(i, item) for i, item in enumerate(node.entries["keys"].value.items) if not item.null]
        for key, (i, item) in zip(values["keys"], given, strict=True):
            _warn_if_short(key, (*path, "keys", i), item, reading)
    if "admin_key" in values:
        _warn_if_short(values["admin_key"], (*path, "admin_key"), node.entries["admin_key"].value, reading)
        if values["admin_key"] in values.get("keys", ()):
            reading.warn((*path, "admin_key"), "is one of the client keys too: every client may use /admin", node.entries["admin_key"])
    return values


SERVER_TIMEOUTS = Section(
    "server timeouts",
    Server,
    (
        Field("header", DURATION, "until a request's header is there", "header_timeout"),
        Field("body", DURATION, "until a request's body is there; a large one has a second more for each 64 KiB", "body_timeout"),
        Field("idle", DURATION, "that a connection without a request stays open", "idle_timeout"),
    ),
    inline=True,
)

SERVER = Section(
    "server",
    Server,
    (
        Field("host", HOST, "the address to listen on"),
        Field("port", within(WHOLE, 0, 65535), "the port; 0: any free one"),
        Field("keys", Listing(SECRET), "keys that clients present; none: loopback clients only"),
        Field("admin_key", SECRET, "the key of /admin"),
        Field("max_body", SIZE, "the largest request body"),
        Field("drain", DURATION_OR_ZERO, "how long running streams may go on after SIGTERM"),
        Field("keepalive", DURATION_OR_ZERO, "silence after which a stream gets a comment; 0: never"),
        Field("cors", Listing(ORIGIN), "origins of web pages that may call the gateway"),
        Field("hosts", Listing(HOST_PORT), "host names that loopback clients may use without a key"),
        Field("open", BOOLEAN, "serve anybody without a key, on every address"),
        Field("timeouts", SERVER_TIMEOUTS, "of client connections"),
        Field("files", Reference("providers", "provider"), "the provider that serves files and batches"),
    ),
    adapt=_check_server,
)


# providers


def _in_order(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    made = Cooldown(**values)
    if made.max < made.base:
        return reading.fault(path, "max is shorter than base", node)
    return values


def _one_key_setting(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    if "api_key" in node.entries and "api_keys" in node.entries:
        return reading.fault((*path, "api_keys"), "give api_key or api_keys, not both", node.entries["api_keys"])
    if isinstance(one := values.get("api_keys"), Secret):
        values["api_keys"] = (one,)
    keys = values.get("api_keys", ())
    if len(set(keys)) < len(keys):
        return reading.fault((*path, "api_keys"), "holds the same key twice", node.entries["api_keys"])
    address = values.get("base_url")
    if address is not None and is_plain(address):
        reading.warn((*path, "base_url"), "http:// sends keys and prompts unencrypted to another machine", node.entries["base_url"].value)
    names: dict[str, str] = {}
    for header in values.get("headers", ()):
        if (first := names.setdefault(header.lower(), header)) != header:
            reading.fault((*path, "headers", header), f"is the same header as {first}", node.entries["headers"].value.entries[header])
    return values


class Certificate:
    """A PEM file that holds certificate and key, or a list of the two files."""

    name = "path or [path, path]"

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind != "list":
            one = PATH.read(node, path, reading)
            return one if one is WRONG else (one,)
        if len(node.items) != 2:
            return reading.fault(path, "expected [certificate, key]", node)
        return Listing(PATH).read(node, path, reading)

    def schema(self) -> Schema:
        return {"anyOf": [PATH.schema(), {"type": "array", "items": PATH.schema(), "minItems": 2, "maxItems": 2}]}

    def show(self, value: Any) -> str:
        return ""


TIMEOUTS = Section(
    "timeouts",
    Timeouts,
    (
        Field("connect", DURATION, "until the connection stands"),
        Field("first_token", DURATION, "until the first content, thinking included; one that is set holds for plain answers too", default="1m (streams)"),
        Field("idle", DURATION, "between two pieces of an answer"),
        Field("total", DURATION, "of the whole exchange"),
    ),
)

COOLDOWN = Section(
    "cooldown",
    Cooldown,
    (
        Field("after", within(WHOLE, 1, 1000), "failures in a row before a target rests"),
        Field("base", DURATION, "the first rest; it doubles with each further one"),
        Field("max", DURATION, "the longest rest; a provider's Retry-After is obeyed up to it"),
    ),
    adapt=_in_order,
)

LIMIT_FIELDS = (
    Field("concurrency", COUNT, "requests at a time"),
    Field("rpm", COUNT, "requests in the last 60 s"),
    Field("tpm", COUNT, "tokens in the last 60 s"),
)
LIMITS = Section("limits", Limits, LIMIT_FIELDS)

HTTP = Section(
    "http",
    Http,
    (
        Field("http2", BOOLEAN, "speak HTTP/2"),
        Field("proxy", PROXY, "the proxy to go through"),
        Field("cert", Certificate(), "client certificate: a PEM file, or [certificate, key]"),
    ),
)

PRICE = Section(
    "price",
    Price,
    (
        Field("input", AMOUNT, "USD per million tokens of the prompt"),
        Field("output", AMOUNT, "USD per million tokens of the answer"),
        Field("cached", AMOUNT, "USD per million cached tokens of the prompt"),
        Field("context", COUNT, "the context window in tokens"),
    ),
)


def _provider_name(text: str) -> str:
    if name(text) == "agent":
        raise ValueError("is reserved: agent/NAME is an agent")
    return text


PROVIDER = Section(
    "provider",
    Provider,
    (
        Field("adapter", NAME, "the adapter file that speaks to it", default="the provider's name if there is such an adapter, else openai"),
        Field("base_url", BASE_URL, "up to and with /v1 where it has one; paths are appended", default="the adapter's"),
        Field("api_key", SECRET, "its key", "api_keys"),
        Field("api_keys", Listing(SECRET, least=1), "several keys of equal rank, instead of api_key", default=""),
        Field("thinking", words(*THINKING), "what requests that say nothing about thinking ask for; auto: nothing"),
        Field("timeouts", TIMEOUTS, "of one exchange"),
        Field("retries", RETRIES, "further tries on the same provider before the next target"),
        Field("options", Table("option", JSON, str), "the adapter's own settings"),
        Field("headers", Table("header", HEADER_VALUE, header_name, drop_empty=True), "headers of every request"),
        Field("hooks", Listing(PATH), "further hook files after the adapter, in order"),
        Field("limits", LIMITS, "of everything that is sent to it"),
        Field("cooldown", COOLDOWN, "when a target rests after failures"),
        Field("http", HTTP, "how it is reached"),
        Field("models", Table("model", PRICE, model_name), "prices and context windows", default="the price data's"),
    ),
    adapt=_one_key_setting,
    named=True,
    lenient=True,
)


# models


def target_parts(text: str) -> tuple[str, str]:
    """Provider and model of `provider/model`, split at the first slash. ValueError if it is none."""
    provider, slash, model = text.partition("/")
    if not slash or not provider or not model:
        raise ValueError("is not a target: write provider/model")
    return provider, model_name(model)


class TargetName:
    """`provider/model` of a declared provider; gives both."""

    name = "provider/model"
    text = Scalar("target", target_parts, {"type": "string", "pattern": "^[^/]+/.+$"})

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "text" and not node.hidden and "/" not in node.text and node.text in reading.names.get("models", ()):
            return reading.fault(path, f"{quote(node.text)} is an entry of models; a chain's targets are provider/model", node)
        parts = self.text.read(node, path, reading)
        return parts if isinstance(parts, tuple) and reading.refer("providers", "provider", parts[0], path, node) else WRONG

    def schema(self) -> Schema:
        return self.text.schema()

    def show(self, value: Any) -> str:
        return "/".join(value)


TARGET_NAME = TargetName()

TARGET = Section(
    "target",
    Target,
    (
        Field("target", TARGET_NAME, "provider/model", "provider", required=True),
        Field("first_token", DURATION, "until the first content", default="the provider's"),
        Field("idle", DURATION, "between two pieces of an answer", default="the provider's"),
        Field("total", DURATION, "of the whole exchange", default="the provider's"),
        Field("connect", DURATION, "until the connection stands", default="the provider's"),
        Field("retries", RETRIES, "further tries on this target", default="the provider's"),
        Field("thinking", words(*THINKING), "what requests that say nothing about thinking ask for", default="the provider's"),
        Field("weight", within(AMOUNT, 0, 1e6, above=True), "its share under balance: weighted"),
        Field("options", Table("option", JSON, str), "settings of the adapter, over the provider's"),
    ),
    adapt=lambda values, node, path, reading: {**values, "provider": values["provider"][0], "model": values["provider"][1]},
)


class TargetKind:
    """`provider/model`, or a map with `target:` and what differs from the provider's settings."""

    name = "target"
    details = TARGET

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "map":
            return TARGET.read(node, path, reading)
        parts = TARGET_NAME.read(node, path, reading)
        return Target(*parts) if isinstance(parts, tuple) else WRONG

    def schema(self) -> Schema:
        return {"anyOf": [*TARGET_NAME.schema()["anyOf"], TARGET.schema()]}

    def show(self, value: Any) -> str:
        return str(value.name)


CACHE = Section("cache", Model, (Field("exact", DURATION, "how long answers to equal requests are kept", "cache_exact"),), inline=True)


def _stars_fit(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    """A pattern has one star; what it matched stands for the star of a target."""
    stars = str(path[-1]).count("*")
    for i, target in enumerate(values["chain"]):
        at = node.entries["chain"].value.items[i] if node.kind == "map" else node
        inner = (*path, "chain", i) if node.kind == "map" else path
        if "*" in target.provider or target.model.count("*") > 1:
            reading.fault(inner, "a target has at most one star, in the model's name", at)
        elif "*" in target.model and not stars:
            reading.fault(inner, "a star stands for what the star of the model's name matched, and that has none", at)
    return {**values, "pattern": stars == 1}


MODEL = Section(
    "model",
    Model,
    (
        Field("chain", Listing(TargetKind(), least=1), "targets, tried from top to bottom", required=True),
        Field("deadline", DURATION, "of the whole chain, streams until their first content"),
        Field("balance", words(*BALANCES), "which target comes first"),
        Field("hedge", DURATION, "no token by then: the next target is asked too"),
        Field("move_on", Listing(words(*(c for c in FAILURE_CLASSES if c != "client_gone"))), "failure classes after which the next target is asked"),
        Field("resume", words("off", "prefill"), "go on with a cut plain-text answer on the next target that can prefill"),
        Field("cache", CACHE, "of answers"),
        Field("empty_answer", words("reject", "accept"), "whether an answer without content is a failure"),
    ),
    adapt=_stars_fit,
    named=True,
)


class ModelKind:
    """A map with a chain, or one `provider/model`: a chain of one."""

    name = "model"
    details = MODEL

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind != "text" or node.null:
            return MODEL.read(node, path, reading)
        parts = TARGET_NAME.read(node, path, reading)
        if not isinstance(parts, tuple):
            return WRONG
        values = _stars_fit({"chain": (Target(*parts),)}, node, path, reading)
        return Model(str(path[-1]), **values)

    def schema(self) -> Schema:
        return {"anyOf": [*TARGET_NAME.schema()["anyOf"], MODEL.schema()]}

    def show(self, value: Any) -> str:
        return str(value.name)


def _entry_name(text: str) -> str:
    if model_name(text).startswith("agent/"):
        raise ValueError("is reserved: agent/NAME is an agent")
    if text.count("*") > 1:
        raise ValueError("has more than one star")
    return text


# keys and teams


def _limits_together(values: dict[str, Any], node: Node, path: Place, reading: Reading) -> Any:
    limits = {f.name: values.pop(f.name) for f in LIMIT_FIELDS if f.name in values}
    if isinstance(values.get("key"), Secret):
        _warn_if_short(values["key"], (*path, "key"), node.entries["key"].value, reading)
    return {**values, "limits": Limits(**limits)}


BUDGET = Section(
    "budget",
    Budget,
    (
        Field("usd", within(AMOUNT, 0, above=True), "USD that may be spent", required=True),
        Field("per", words(*PERIODS), "in which time"),
    ),
)

KEY_MODELS = Field("models", Listing(ModelReference(globs=True)), "names and globs of models that it may use", default="all")

KEY = Section(
    "key",
    Key,
    (
        Field("key", SECRET, "what the client presents", required=True),
        KEY_MODELS,
        *LIMIT_FIELDS,
        Field("budget", BUDGET, "what it may spend"),
        Field("expires", DATE, "the day from which it is refused"),
        Field("team", Reference("teams", "team"), "an entry of teams, whose limits hold too"),
    ),
    adapt=_limits_together,
    named=True,
)

TEAM = Section("team", Team, (KEY_MODELS, *LIMIT_FIELDS, Field("budget", BUDGET, "what it may spend")), adapt=_limits_together, named=True)


# the whole file

HOOK_BUDGET = Section(
    "hook_budget",
    HookBudget,
    (
        Field("instructions", within(COUNT, 1000, 1_000_000_000), "Lua instructions of one call"),
        Field("time", within(DURATION, 0.001, 60), "time of one call"),
        Field("memory", within(SIZE, 1024 * 1024, 1024**3), "memory of one adapter"),
    ),
)

RETENTION = Section(
    "retention",
    Retention,
    (
        Field("runs", DURATION, "how long finished runs are kept; sessions stay"),
        Field("max_runs", COUNT, "how many finished runs are kept, the newest"),
        Field("requests", DURATION_OR_ZERO, "how long records of requests are kept; 0: none is written but what a budget needs"),
    ),
)

PROVIDERS = Table("provider", PROVIDER, _provider_name)
MODELS = Table("model", ModelKind(), _entry_name)
KEYS = Table("key", KEY, name)
TEAMS = Table("team", TEAM, name)

FILE = Section(
    "config",
    Config,
    (
        Field("server", SERVER, "who is served, and where"),
        Field("store", STORE, "keys, usage, sessions and runs: sqlite:///FILE, postgresql://..., or sqlite:// (memory; the last 10,000 requests)"),
        Field("shared", SHARED, "limits, cool-downs, cache and reasoning memory of several replicas: redis://..."),
        Field("adapters_dir", FilePath(), "your adapter files, looked at before the built-in ones"),
        Field("providers", PROVIDERS, "the upstreams, by name", required=True),
        Field("models", MODELS, "what clients put into model"),
        Field("keys", KEYS, "keys of clients, with limits"),
        Field("teams", TEAMS, "limits that several keys share"),
        Field("agents", AGENTS, "agents, served as agent/NAME"),
        Field("hook_budget", HOOK_BUDGET, "what one call of a Lua hook may cost"),
        Field("retention", RETENTION, "how long the store keeps what is over"),
    ),
    lenient=True,
)
