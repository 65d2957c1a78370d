"""Secrets, places, names."""

from __future__ import annotations

import pickle

import pytest

from gateway.config import Config, Http, Provider, Secret, Target, matched


def test_a_secret_is_only_seen_when_it_is_revealed() -> None:
    secret = Secret("sk-visible")

    assert "sk-visible" not in f"{secret} {secret!r} {[secret]} {Provider('p', api_keys=(secret,))}"
    assert secret.reveal() == "sk-visible"


def test_secrets_compare_by_their_text() -> None:
    assert Secret("a") == Secret("a")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("ü\udcff") == Secret("ü\udcff")
    assert Secret("a") != "a"
    assert not Secret("")


def test_a_secret_is_not_pickled() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret("a"))


def test_texts_that_may_hold_a_password_stay_out_of_reprs() -> None:
    config = Config(
        providers={"p": Provider("p", headers={"X-Key": "pw1"}, options={"token": "pw2"}, http=Http(proxy="http://u:pw3@h"))},
        store="postgresql://u:pw4@h",
        shared="redis://:pw5@h",
    )

    assert "pw" not in repr(config)


def test_values_can_be_keys_of_a_dict() -> None:
    assert {Target("p", "m", options={"a": 1}): 1}[Target("p", "m", options={"a": 1})] == 1


@pytest.mark.parametrize(
    ("pattern", "name", "part"),
    [
        ("gpt-*", "gpt-5", "5"),
        ("gpt-*", "gpt-", ""),
        ("gpt-*", "gp", None),
        ("*", "any/thing", "any/thing"),
        ("a*a", "a", None),
        ("a*a", "aba", "b"),
        ("smart", "smart", None),
    ],
)
def test_what_a_star_stands_for(pattern: str, name: str, part: str | None) -> None:
    assert matched(pattern, name) == part


def test_a_fault_stands_at_the_nearest_known_setting() -> None:
    config = Config(places={"models": (3, 1), "models.smart": (4, 3), "models.gpt-4.1.chain[0]": (9, 7)})

    assert config.place("models", "smart", "chain", 1) == (4, 3)
    assert config.place("nowhere") == (1, 1)
    assert config.fault("models.smart.chain[1]", "x").line == 4
    assert config.fault("models.gpt-4.1.chain[0].target", "x") == config.fault(("models", "gpt-4.1", "chain", 0, "target"), "x")
    assert config.fault(("models", "gpt-4.1", "chain", 0, "target"), "x").column == 7
    assert config.fault(("models", "a [b]", 'c"d'), "x").path == 'models."a [b]"."c\\"d"'
