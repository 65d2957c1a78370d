"""What can go wrong with the store."""

from __future__ import annotations

from gateway.errors import GatewayError, Overloaded


class StoreUnavailable(Overloaded):
    """The store did not answer, or not in time; the same call may succeed later. Nothing in the message is secret."""

    code = "store_unavailable"


class StoreRefused(GatewayError):
    """The store cannot be used as it is, or cannot do what was asked; the message says what to do."""

    code = "store_refused"


class SharedAway(Overloaded):
    """The shared state did not answer, or not in time. Whoever asks goes on with what this process knows."""

    code = "shared_away"


class Fenced(GatewayError):
    """A run is not this process's any more: another took it over, or it ended. What was to be written is not kept."""

    code = "run_fenced"
