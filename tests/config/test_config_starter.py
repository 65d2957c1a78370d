"""The embedded default and the file of `thinkgate init`."""

from __future__ import annotations

import pytest

from gateway import config
from gateway.config import Secret
from gateway.errors import ConfigError

KNOWN = [
    ("openai", "OPENAI_API_KEY", "gpt-5-mini"),
    ("deepseek", "DEEPSEEK_API_KEY", "deepseek-v4-pro"),
    ("gemini", "GEMINI_API_KEY", "gemini-3-flash"),
    ("gemini", "GOOGLE_API_KEY", "gemini-3-flash"),
]


def test_without_a_key_auto_is_the_demo_model() -> None:
    made = config.embedded({}, KNOWN)

    assert [target.name for target in made.models["auto"].chain] == ["demo/demo"]
    assert [target.name for target in made.models["demo"].chain] == ["demo/demo"]
    assert made.providers["demo"].base_url == "mock://demo"
    assert (made.store, made.server.host, made.server.port, made.server.keys) == ("sqlite://", "127.0.0.1", 8080, ())


def test_with_keys_auto_is_a_chain_of_just_these_providers() -> None:
    made = config.embedded({"DEEPSEEK_API_KEY": "d", "GOOGLE_API_KEY": "g", "GEMINI_API_KEY": "h", "OPENAI_API_KEY": ""}, KNOWN)

    assert [target.name for target in made.models["auto"].chain] == ["deepseek/deepseek-v4-pro", "gemini/gemini-3-flash"]
    assert list(made.providers) == ["demo", "deepseek", "gemini"]
    assert made.providers["gemini"].api_keys == (Secret("h"),)


def test_the_environment_sets_address_and_keys_of_the_embedded_default() -> None:
    made = config.embedded({"HOST": "0.0.0.0", "PORT": "9000", "THINKGATE_KEY": "client-key", "THINKGATE_ADMIN_KEY": "admin-key"})

    assert (made.server.host, made.server.port) == ("0.0.0.0", 9000)
    assert (made.server.keys, made.server.admin_key) == ((Secret("client-key"),), Secret("admin-key"))


def test_a_wrong_environment_is_a_config_error() -> None:
    with pytest.raises(ConfigError) as caught:
        config.embedded({"PORT": "eighty"})

    assert "server.port: the value is not a whole number" in caught.value.lines()[0]


@pytest.mark.parametrize("env", [{}, {"OPENAI_API_KEY": "x"}, {"OPENAI_API_KEY": "x", "DEEPSEEK_API_KEY": "y", "THINKGATE_KEY": "z"}])
def test_what_init_writes_is_a_config(env: dict[str, str]) -> None:
    text = config.starter(env, KNOWN)

    made = config.parse(text, env=env)

    chain = [target.name for target in made.models["smart"].chain]
    assert chain == [f"{name}/{model}" for name, variable, model in KNOWN if variable in env] or chain == ["demo/demo"]
    assert all(env.get(variable, "-") not in text.split() for variable in env)
    assert made.models["smart"].deadline == 90.0
