"""Which of several keys is used next, and which ones rest."""

from __future__ import annotations

import pytest
from clock import Clock

from gateway.config import Cooldown, Secret
from gateway.errors import UpstreamError
from gateway.routing.health import Health
from gateway.routing.keyring import Keyring


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ring(clock: Clock) -> Keyring:
    return Keyring("a", [Secret(f"key-{n}") for n in range(3)], Health(clock, jitter=lambda: 0.0))


def fail(ring: Keyring, number: int, kind: str, retry_after: float | None = None) -> None:
    health, name = ring._health, ring.names[number]
    health.bad(name, health.begin(name), UpstreamError(kind, "x", retry_after=retry_after), Cooldown())


def test_keys_are_used_in_turn(ring: Keyring) -> None:
    assert [ring.take() for _ in range(5)] == [0, 1, 2, 0, 1]


def test_a_resting_key_is_passed_over_until_its_rest_ends(ring: Keyring, clock: Clock) -> None:
    fail(ring, 1, "rate_limit", retry_after=7)
    assert [ring.take() for _ in range(4)] == [0, 2, 0, 2]

    clock.now += 7

    assert [ring.take() for _ in range(3)] == [0, 1, 2]


def test_when_all_rest_the_ring_says_why_and_for_how_long(ring: Keyring) -> None:
    fail(ring, 0, "auth")
    fail(ring, 1, "rate_limit", retry_after=3)
    fail(ring, 2, "rate_limit", retry_after=9)

    assert not ring.free()
    assert ring.rest() == 3
    assert ring.kinds() == ["auth", "rate_limit", "rate_limit"]
    assert ring.why() == "none of its 3 keys can be used (auth, rate_limit), the first is free in 3.0 s"


def test_a_key_that_rests_on_our_arithmetic_may_be_probed(ring: Keyring) -> None:
    for number, kind in enumerate(("rate_limit", "auth", "rate_limit")):
        fail(ring, number, kind, retry_after=None if kind == "auth" else 60)
    assert ring.may_probe()

    assert ring.take() == 1
    ring._health.begin(ring.names[1])
    assert not ring.may_probe(), "one at a time"


def test_no_name_of_a_key_says_anything_of_it(ring: Keyring) -> None:
    assert ring.names == ("a/key 1", "a/key 2", "a/key 3")
