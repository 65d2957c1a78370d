"""Messages, configuration and history of the library's agents (H5, H6, H7)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from gateway.agent.message import Agent, Config, Message


class Echo(Agent):
    def run(self, input_text: str, **options: Any) -> str:
        self.add_message(Message(input_text, "user"))
        self.add_message(Message(input_text, "assistant"))
        return input_text


class Plain:
    """A model without `provider`."""

    model = "m"


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_a_message_has_role_content_timestamp_and_metadata(role: str) -> None:
    """H5"""
    before = datetime.now()
    message = Message("hi", role)
    assert before <= message.timestamp <= datetime.now()
    assert message.metadata == {}
    assert message.to_dict() == {"role": role, "content": "hi"}
    assert str(message) == f"[{role}] hi"


def test_metadata_and_timestamp_stay_out_of_what_a_model_is_sent() -> None:
    """H5"""
    when = datetime(2026, 1, 2)
    message = Message("hi", "user", timestamp=when, metadata={"k": 1})
    assert (message.timestamp, message.metadata) == (when, {"k": 1})
    assert message.to_dict() == {"role": "user", "content": "hi"}
    assert Message("a", "user").metadata is not Message("b", "user").metadata


@pytest.mark.parametrize("role", ["robot", "", "User", "developer"])
def test_other_roles_are_rejected(role: str) -> None:
    """H5"""
    with pytest.raises(ValueError, match="role"):
        Message("hi", role)


def test_the_defaults_of_a_config() -> None:
    """H6"""
    assert Config().to_dict() == {
        "default_model": "gpt-3.5-turbo",
        "default_provider": "openai",
        "temperature": 0.7,
        "max_tokens": None,
        "debug": False,
        "log_level": "INFO",
        "max_history_length": 100,
    }


def test_a_config_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """H6"""
    for name, text in {"DEBUG": "True", "LOG_LEVEL": "debug", "TEMPERATURE": "0.2", "MAX_TOKENS": "512"}.items():
        monkeypatch.setenv(name, text)
    assert Config.from_env() == Config(debug=True, log_level="DEBUG", temperature=0.2, max_tokens=512)
    assert Config.from_env({}) == Config.from_env({"DEBUG": "false", "MAX_TOKENS": "", "TEMPERATURE": ""}) == Config()


@pytest.mark.parametrize(("name", "text"), [("TEMPERATURE", "warm"), ("MAX_TOKENS", "1.5"), ("LOG_LEVEL", "loud")])
def test_a_setting_that_makes_no_sense_is_named(name: str, text: str) -> None:
    """H6"""
    with pytest.raises(ValueError, match=name):
        Config.from_env({name: text})


def test_the_base_of_agents_cannot_be_used_itself() -> None:
    """H7"""
    with pytest.raises(TypeError, match="abstract"):
        Agent("a", Plain())  # type: ignore[abstract]


def test_an_agent_keeps_clears_and_gives_out_a_copy_of_its_history() -> None:
    """H7"""
    agent = Echo("echo", Plain())
    assert agent.config == Config()
    assert agent.run("hi") == "hi"
    history = agent.get_history()
    assert [str(message) for message in history] == ["[user] hi", "[assistant] hi"]
    history.clear()
    assert len(agent.get_history()) == 2
    agent.clear_history()
    assert agent.get_history() == []


def test_the_history_is_no_longer_than_the_config_allows() -> None:
    """H6: the limit exists in the source and is never enforced there"""
    agent = Echo("echo", Plain(), config=Config(max_history_length=4))
    for number in range(10):
        agent.run(str(number))
    assert [message.content for message in agent.get_history()] == ["8", "8", "9", "9"]
    with pytest.raises(ValueError, match="max_history_length"):
        Config(max_history_length=0)


def test_a_cut_history_does_not_begin_with_a_tools_message() -> None:
    """B137"""
    agent = Echo("echo", Plain(), config=Config(max_history_length=2))
    for role in ("user", "assistant", "tool", "assistant"):
        agent.add_message(Message(role, role))
    assert [message.role for message in agent.get_history()] == ["assistant"]


def test_an_agent_names_itself_without_asking_its_model_for_what_it_does_not_have() -> None:
    """H7: the source reads llm.provider, which is missing"""
    assert str(Echo("echo", Plain())) == "Echo(name=echo, model=m)"
    assert str(Echo("echo", object(), "prompt")) == "Echo(name=echo)"
