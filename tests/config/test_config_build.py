"""A config text -> values, or every fault with its place."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from config_sample import ENV, TEXT
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import config
from gateway.config import Cooldown, Limits, Model, Price, Secret, Target, Timeouts
from gateway.config.agents import FetchOptions
from gateway.config.build import build
from gateway.config.values import Budget
from gateway.errors import ConfigError

PROVIDERS = "providers:\n  a: {}\n  openai: {}\n"


def faults_of(text: str, env: dict[str, str] | None = None, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "f", env=env or {}, **options)
    return caught.value.lines()


@pytest.fixture(scope="module")
def full() -> config.Config:
    return build(TEXT, "f", Path("folder"), ENV)


def test_the_server_is_read(full: config.Config) -> None:
    server = full.server

    assert server.keys == (Secret("client-key-0123456789"),)
    assert server.admin_key == Secret("admin-key-0123456789")
    assert (server.max_body, server.drain, server.keepalive) == (16 * 1024 * 1024, 20.0, 0.0)
    assert (server.header_timeout, server.body_timeout, server.idle_timeout) == (5.0, 20.0, 60.0)
    assert (server.cors, server.hosts, server.open) == (("https://app.example.com",), ("gateway.example.com", "other:8080"), False)
    assert server.files == "openai"


def test_a_provider_is_read(full: config.Config) -> None:
    provider = full.providers["deepseek"]

    assert (provider.name, provider.adapter, provider.base_url, provider.thinking) == ("deepseek", "deepseek", "https://api.deepseek.com", "off")
    assert provider.api_keys == (Secret("deepseek-key-0123456789"),)
    assert provider.timeouts == Timeouts(2.0, 45.0, 0.5, 3600.0)
    assert provider.retries == 0
    assert provider.headers == {"X-Team": "search", "X-Number": "7"}
    assert provider.hooks == (Path("folder/trim.lua"), Path("folder/sub/other.py"))
    assert provider.limits == Limits(64, 600, 2_000_000)
    assert provider.cooldown == Cooldown(2, 1.0, 60.0)
    assert provider.http.cert == (Path("folder/client.pem"), Path("folder/client.key"))
    assert provider.models == {"deepseek-v4-pro": Price(0.27, 1.1, 0.07, 1_000_000)}


def test_free_options_are_what_json_says_and_words_stay_words(full: config.Config) -> None:
    options = full.providers["deepseek"].options

    assert options == {"reasoning_placeholder": "", "drop_params": ["seed"], "deep": {"a": 1, "b": 1.5, "c": None, "d": True, "e": "off", "f": "017"}}


def test_a_pool_leaves_out_what_a_variable_leaves_empty(full: config.Config) -> None:
    assert [key.reveal() for key in full.providers["openai"].api_keys] == ["first-key-of-the-pool", "third-key-of-the-pool"]


def test_what_is_not_given_is_left_to_upper_layers(full: config.Config) -> None:
    assert (full.providers["openai"].adapter, full.providers["openai"].base_url) == (None, None)


def test_a_model_is_read(full: config.Config) -> None:
    first = Target("deepseek", "deepseek-v4-pro")
    second = Target("openai", "org/gpt-5-mini", 8.0, 3.0, 60.0, 1.0, 2, "low", 0.5, {"a": 1})

    assert full.models["smart"] == Model("smart", (first, second), 90.0, "weighted", 2.0, ("rate_limit", "server"), "prefill", 600.0, "accept", False)
    assert full.models["gpt-*"] == Model("gpt-*", (Target("openai", "gpt-*"),), pattern=True)
    assert second.name == "openai/org/gpt-5-mini"


def test_keys_and_teams_are_read(full: config.Config) -> None:
    key = full.keys["team-a"]

    assert (key.key, key.models, key.team) == (Secret("team-a-key-0123456789"), ("smart", "gpt-5", "agent/*"), "blue")
    assert (key.limits, key.budget, key.expires) == (Limits(8, 60, 100_000), Budget(5.0, "day"), date(2027, 1, 1))
    assert full.teams["blue"].limits == Limits(rpm=600)
    assert full.teams["blue"].budget == Budget(100.0, "month")


def test_an_agent_is_read(full: config.Config) -> None:
    agent = full.agents["analyst"]

    assert (agent.pattern, agent.model, agent.system, agent.on_disconnect) == ("two_stage", "smart", "You are careful.\n", "detach")
    assert [(tool.name, tool.kind, tool.file) for tool in agent.tools[2:]] == [
        ("fetch", "builtin", None),
        ("lookup", "python", Path("folder/tools.py")),
        ("writer", "agent", None),
    ]
    assert agent.tools[2].options == FetchOptions(("docs.example.com",), only=True)
    assert agent.mcp["files"].command == ("npx", "server-filesystem", ".")
    assert agent.mcp["wiki"].url == "http://127.0.0.1:9000/mcp"
    assert (agent.thinking.phase, agent.thinking.critic and agent.thinking.critic.max_refine, agent.thinking.age_after) == ("auto", 1, 3)
    assert (agent.approval.plan, agent.approval.tools, agent.approval.timeout) == (True, ("fetch",), 300.0)
    assert (agent.limits.steps, agent.limits.tokens, agent.limits.cost, agent.limits.unpriced) == (7, 200_000, 0.5, "allow")
    assert agent.options.prompts == {"think": "Think about {question}"}


def test_the_rest_is_read(full: config.Config) -> None:
    assert (full.hook_budget.instructions, full.hook_budget.time, full.hook_budget.memory) == (500_000, 0.02, 16 * 1024 * 1024)
    assert (full.retention.runs, full.retention.max_runs, full.retention.requests) == (2_592_000.0, 10_000, 604_800.0)
    assert (full.adapters_dir, full.base, full.file) == (Path("folder/mine"), Path("folder"), "f")
    assert (full.store, full.shared) == ("sqlite:///data/thinkgate.db", "redis://127.0.0.1:6379/0")


def test_everything_has_its_place(full: config.Config) -> None:
    line = TEXT.splitlines().index("      - deepseek/deepseek-v4-pro") + 1

    assert full.place("models", "smart", "chain", 0) == (line, 9)
    assert full.fault("models.smart.chain[1]", "x").line == line + 1
    assert full.fault("providers.deepseek.options.drop_params[0]", "x").column == 56
    assert full.fault("providers.deepseek.no_such.thing", "x").line == TEXT.splitlines().index("  deepseek:") + 1


def test_the_least_config_has_the_defaults() -> None:
    made = config.parse("providers: {a: {}}\n", env={})

    assert made.server == config.Server()
    assert made.providers["a"] == config.Provider("a")
    assert (made.models, made.store, made.adapters_dir, made.warnings) == ({}, "sqlite:///thinkgate.db", Path("adapters"), ())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("server: {prot: 1}", 'f:4:10: server.prot: unknown key "prot"; known: host, port, keys,'),
        ("servers: {}", 'f:4:1: servers: unknown key "servers"; known: server, store,'),
        ("server: {port: 017}", 'f:4:16: server.port: "017" is not a whole number'),
        ("server: {port: 70000}", 'f:4:16: server.port: "70000" is out of range: at least 0, at most 65535'),
        ("server: {drain: 5}", 'f:4:17: server.drain: "5" is not a duration such as 500ms, 5s, 10m, 1h or 30d'),
        ("server: {timeouts: {idle: 12:30:45}}", 'f:4:27: server.timeouts.idle: "12:30:45" is not a duration'),
        ("server: {timeouts: {idle: 0}}", 'f:4:27: server.timeouts.idle: "0" is out of range: more than 0'),
        ("server: {open: maybe}", 'f:4:16: server.open: "maybe" is neither true nor false'),
        ("server: {keys: sk-1}", "f:4:16: server.keys: expected a list, this is a text"),
        (
            "server:",
            "f:4:1: server: expected a map (host, port, keys, admin_key, max_body, drain, keepalive, cors, hosts, open, timeouts, files), nothing is given",
        ),
        ("server: {port: }", "f:4:10: server.port: needs a number"),
        ("server: {files: opneai}", 'f:4:17: server.files: unknown provider "opneai"; known: a, openai; did you mean "openai"?'),
        ("models: {m: {chain: [a/x, opneai/y]}}", 'f:4:27: models.m.chain[1]: unknown provider "opneai"; known: a, openai; did you mean "openai"?'),
        ("models: {m: {chain: [zzz/y]}}", 'f:4:22: models.m.chain[0]: unknown provider "zzz"; known: a, openai'),
        ("models: {m: {chain: [gpt-5]}}", 'f:4:22: models.m.chain[0]: "gpt-5" is not a target: write provider/model'),
        ("models: {m: a/x, n: {chain: [m]}}", 'f:4:30: models.n.chain[0]: "m" is an entry of models; a chain\'s targets are provider/model'),
        ("models: {m: {chain: []}}", "f:4:14: models.m.chain: the list may not be empty"),
        ("models: {m: {deadline: 5s}}", "f:4:10: models.m: chain is missing"),
        ("models: {m: a/*}", "f:4:13: models.m: a star stands for what the star of the model's name matched"),
        ("models: {m-*: {chain: [a/*-*]}}", "f:4:24: models.m-*.chain[0]: a target has at most one star"),
        ('models: {"a*b*": a/x}', 'f:4:10: models.a*b*: "a*b*" has more than one star'),
        ("models: {agent/x: a/x}", 'f:4:10: models.agent/x: "agent/x" is reserved'),
        ("models: {m: {chain: [{target: a/x, first: 1s}]}}", 'f:4:36: models.m.chain[0].first: unknown key "first"; known: target, first_token,'),
        ("models: {m: {chain: [a/x], move_on: [rate_limt]}}", 'did you mean "rate_limit"?'),
        ("models: {m: {chain: [a/x], move_on: [client_gone]}}", "f:4:38: models.m.move_on[0]:"),
        ("models: [a/x]", "f:4:1: models: expected a map of models, this is a list"),
        ("hook_budget: {time: 1h}", 'f:4:21: hook_budget.time: "1h" is out of range: at least 1ms, at most 1m'),
        ("keys: {k: {key: abc, models: [smrt]}}\nmodels: {smart: a/x}", 'f:4:31: keys.k.models[0]: unknown model "smrt"; known: smart; did you mean "smart"?'),
        ("keys: {k: {key: abc, team: re}}\nteams: {red: {}}", 'f:4:28: keys.k.team: unknown team "re"; known: red; did you mean "red"?'),
        ("keys: {k: {key: abc, budget: {per: day}}}", "f:4:22: keys.k.budget: usd is missing"),
        ("keys: {k: {key: abc}, l: {key: abc}}", "f:4:32: keys.l.key: is the same key as keys.k"),
        ("store: mysql://x", "f:4:8: store: the value does not begin with sqlite:// or postgresql:// or postgres://"),
    ],
)
def test_each_fault_names_place_path_and_what_is_known(text: str, fault: str) -> None:
    assert any(fault in line for line in faults_of(PROVIDERS + text))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("base_ulr: https://x.com", 'f:1:17: providers.a.base_ulr: unknown key "base_ulr"; known: adapter, base_url,'),
        ("base_ulr: https://x.com", 'did you mean "base_url"?'),
        ("thinking: offf", 'f:1:27: providers.a.thinking: "offf" is none of auto, off, on, minimal, low, medium, high, max; did you mean "off"?'),
        ("api_key: x, api_keys: [y]", "f:1:29: providers.a.api_keys: give api_key or api_keys, not both"),
        ("api_keys: [y, y]", "f:1:17: providers.a.api_keys: holds the same key twice"),
        ('headers: {Host: x, "X-A": "b\\r\\nc: d"}', 'f:1:27: providers.a.headers.Host: "Host" is set by the transport and cannot be given'),
        ('headers: {Host: x, "X-A": "b\\r\\nc: d"}', "f:1:43: providers.a.headers.X-A: the value holds a line break"),
        ("headers: {X-A: b, x-a: c}", "f:1:35: providers.a.headers.x-a: is the same header as X-A"),
        ("cooldown: {base: 10s, max: 5s}", "f:1:17: providers.a.cooldown: max is shorter than base"),
        ("http: {cert: [x.pem]}", "f:1:24: providers.a.http.cert: expected [certificate, key]"),
        ("options: [a]", "f:1:17: providers.a.options: expected a map of options, this is a list"),
        ("models: {m: {input: -1}}", 'f:1:37: providers.a.models.m.input: "-1" is not a number of 0 or more'),
        ("retries: 99", "is out of range: at least 0, at most 10"),
        ("hooks: [{a: b}]", "f:1:25: providers.a.hooks[0]: expected a text, this is a map"),
    ],
)
def test_faults_of_a_provider(text: str, fault: str) -> None:
    assert any(fault in line for line in faults_of(f"providers: {{a: {{{text}}}}}\n"))


@pytest.mark.parametrize("text", ["models: {}", "providers:", "providers: {}", "providers: []", "server: {}"])
def test_a_config_without_a_provider_is_refused(text: str) -> None:
    assert "provider" in faults_of(text)[0]


@pytest.mark.parametrize("name", ["agent", "a/b", '"a b"', "ä"])
def test_names_that_cannot_stand_in_a_header_or_a_target_are_refused(name: str) -> None:
    assert faults_of(f"providers: {{{name}: {{}}}}\n")[0].startswith("f:1:13: ")


def test_all_faults_are_found_at_once_and_in_file_order() -> None:
    text = """\
models:
  smart: {chain: [opneai/x], deadline: 5}
server: {prot: 1, keys: ["${CLIENT}"]}
providers:
  openai: {api_key: "${OPENAI}", timeouts: {idel: 3s}}
  other: &anchor {}
server: {}
"""

    found = [line.split(": ")[:2] for line in faults_of(text)]

    assert found == [
        ["f:2:19", "models.smart.chain[0]"],
        ["f:2:40", "models.smart.deadline"],
        ["f:3:10", "server.prot"],
        ["f:3:26", "server.keys[0]"],
        ["f:5:21", "providers.openai.api_key"],
        ["f:5:45", "providers.openai.timeouts.idel"],
        ["f:6:10", "providers.other"],
        ["f:7:1", "server"],
    ]


def test_an_empty_variable_never_becomes_a_key() -> None:
    found = faults_of('server: {keys: ["${CLIENT}"]}\nproviders: {a: {api_key: "${KEY}"}}\n', {"CLIENT": "", "KEY": ""})

    assert "the environment variable CLIENT is empty" in found[0]
    assert "the environment variable KEY is empty" in found[1]


def test_an_optional_variable_that_is_missing_is_a_setting_not_given() -> None:
    text = (
        'server: {keys: ["${A:-}"], admin_key: "${B:-}", port: "${C:-}"}\nproviders: {a: {api_key: "${D:-}", base_url: "${E:-}", headers: {X-F: "${F:-}"}}}\n'
    )

    made = config.parse(text, env={})

    assert (made.server.keys, made.server.admin_key, made.server.port) == ((), None, 8080)
    assert (made.providers["a"].api_keys, made.providers["a"].base_url, made.providers["a"].headers) == ((), None, {})


def test_a_literal_empty_key_is_refused() -> None:
    assert faults_of('server: {keys: [""]}\n' + PROVIDERS) == ["f:1:17: server.keys[0]: the value is empty"]


def test_variables_serve_every_type() -> None:
    text = "server: {port: '${PORT}', open: '${OPEN}', drain: '${DRAIN:-1m}'}\nproviders: {a: {thinking: '${THINK}', options: {n: \"${N}\"}}}\n"

    made = config.parse(text, env={"PORT": "99", "OPEN": "true", "THINK": "off", "N": "5"})

    assert (made.server.port, made.server.open, made.server.drain, made.providers["a"].thinking) == (99, True, 60.0, "off")


CANARY = "CANARY-7f3a-secret"


@pytest.mark.parametrize(
    "text",
    [
        'server: {port: "${X}"}',
        'server: {keys: ["${X} ${X}"]}',
        'server: {admin_key: ["${X}"]}',
        'server: {files: "${X}"}',
        f'server: {{keys: ["{CANARY} with blanks"]}}',
        f"server: {{keys: {CANARY}}}",
        'providers: {b: {thinking: "${X}"}}',
        f'providers: {{b: {{api_key: "{CANARY} "}}}}',
        f'providers: {{b: {{base_url: "https://user:{CANARY}@x.com"}}}}',
        f'providers: {{b: {{headers: {{X-A: "{CANARY}\\n"}}}}}}',
        f'providers: {{b: {{http: {{proxy: "socks5://u:{CANARY}@x.com"}}}}}}',
        f"store: mysql://user:{CANARY}@x",
        f"shared: memcached://:{CANARY}@x",
        f'keys: {{k: {{key: "{CANARY} x"}}}}',
        'models: {m: {chain: ["${X}/y"]}}',
        'models: {m: "${X}"}',
        'agents: {a: {pattern: "${X}", model: "${X}"}}',
    ],
)
def test_no_fault_shows_a_secret(text: str) -> None:
    prefix = "" if text.startswith("providers") else "providers: {a: {}}\n"

    assert CANARY not in "\n".join(faults_of(prefix + text, {"X": CANARY}))


def test_what_changes_nothing_may_be_written_already() -> None:
    text = "models: {m: {chain: [a/x], hedge: null, resume: off, balance: order}}\nkeys: {}\nshared: null\nstore: sqlite:///thinkgate.db\n"

    assert config.parse("providers: {a: {api_keys: [x]}}\n" + text, env={}).models["m"].hedge is None


def test_warnings_do_not_refuse_the_file() -> None:
    text = 'server: {keys: [short, "long-enough-key-01234"], admin_key: short}\nproviders: {a: {base_url: "http://api.example.com"}, b: {base_url: "http://localhost:1"}}\n'

    made = config.parse(text, env={})

    assert [(warning.path, warning.line, warning.column) for warning in made.warnings] == [
        ("server.keys[0]", 1, 17),
        ("server.admin_key", 1, 50),
        ("server.admin_key", 1, 61),
        ("providers.a.base_url", 2, 27),
    ]
    assert "short" not in "".join(warning.message for warning in made.warnings if "is one of" not in warning.message and "fewer" not in warning.message)


def test_a_file_is_loaded_with_paths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("providers: {a: {hooks: [h.lua]}}\n", encoding="utf-8")

    made = config.load(tmp_path / "conf.yaml", {})

    assert made.providers["a"].hooks == (tmp_path / "h.lua",)
    assert (made.adapters_dir, made.base, made.file) == (tmp_path / "adapters", tmp_path, str(tmp_path / "conf.yaml"))


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfea\x00")

    for path in (tmp_path / "missing.yaml", tmp_path, tmp_path / "binary.yaml"):
        with pytest.raises(ConfigError) as caught:
            config.load(path, {})
        assert caught.value.faults[0].line == 1


def verdict(text: str) -> config.Config | ConfigError:
    try:
        return build(text, "f", Path(), ENV)
    except ConfigError as error:
        return error


def has_a_place(text: str) -> bool:
    """A text is a config, or its faults all have a place inside it."""
    found = verdict(text)
    if isinstance(found, config.Config):
        return bool(found.providers)
    return bool(found.faults) and all(0 < f.line <= text.count("\n") + 1 and f.column > 0 for f in found.faults)


SMALL = TEXT[TEXT.index("store:") : TEXT.index("keys:\n")]


def test_every_beginning_of_a_file_is_a_config_or_a_config_error() -> None:
    """An editor or a copy may be caught half way: at each byte there is a verdict."""
    assert [end for end in range(len(SMALL)) if not has_a_place(SMALL[:end])] == []


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, len(TEXT)),
    st.integers(0, 40),
    st.text(max_size=3) | st.sampled_from(["\n", " ", ":", "{", "}", "[", "]", '"', "$", "&a ", "*a", "- ", "? ", "\t"]),
)
def test_a_damaged_file_is_a_config_or_a_config_error(at: int, lost: int, put: str) -> None:
    assert has_a_place(TEXT[:at] + put + TEXT[at + lost :])
