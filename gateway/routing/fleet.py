"""What is known, allowed and used of all targets: the one thing that the chains of a process share."""

from __future__ import annotations

from collections.abc import Mapping

from gateway import config
from gateway.routing.bounds import Bounds
from gateway.routing.budget import RetryBudget
from gateway.routing.health import Health
from gateway.routing.keyring import Keyring
from gateway.routing.prices import PriceData, Prices
from gateway.routing.speeds import Speeds


class Fleet:
    """The providers of one config with what outlives it: health, speeds, what is used of limits.

    `bounds` has the providers with limits, `keyrings` those with several keys. `urls` are base
    URLs by provider, for the price data. `processes` send for themselves, so each has its part
    of a provider's limits. `measures`: a model wants its fastest target.
    """

    measures = False

    def __init__(
        self, providers: Mapping[str, config.Provider], urls: Mapping[str, str] | None = None, before: Fleet | None = None, processes: int = 1
    ) -> None:
        self.providers = providers
        self.urls = urls or {}
        self.health: Health = before.health if before else Health()
        self.speeds: Speeds = before.speeds if before else Speeds()
        self.budget: RetryBudget = before.budget if before else RetryBudget()
        self.data: PriceData = before.data if before else PriceData()
        self.prices = Prices(providers, self.urls, self.data)
        self.bounds = {name: Bounds(p.limits.part(processes)) for name, p in providers.items() if p.limits != config.Limits()}
        self.keyrings = {name: Keyring(name, p.api_keys, self.health) for name, p in providers.items() if len(p.api_keys) > 1}

    def rest(self, target: config.Target) -> float:
        """Seconds until a target, or the first of its provider's keys, rests no more."""
        ring = self.keyrings.get(target.provider)
        return max(self.health.rest(target.name), ring.rest() if ring is not None else 0.0)

    def divide(self, processes: int) -> None:
        """There are so many processes now."""
        for name, bounds in self.bounds.items():
            bounds.limits = self.providers[name].limits.part(processes)

    def take_over(self, before: Fleet) -> None:
        """Take the place of the one before, which this one shares with: a reload forgets no use of a limit; what rested for an old key or address is free."""
        for name, settings in self.providers.items():
            old = before.providers.get(name)
            if old is not None and (old.api_keys, before.urls.get(name)) != (settings.api_keys, self.urls.get(name)):
                self.health.forget(f"{name}/")
            if name in self.bounds and name in before.bounds:
                limits = self.bounds[name].limits
                self.bounds[name] = before.bounds[name]
                self.bounds[name].limits = limits
