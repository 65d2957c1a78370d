"""From the name in `model` to the Model that answers: an entry, a pattern, or `provider/model`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from gateway import config
from gateway.chat import Model, model_name
from gateway.errors import InvalidRequest, NotFound
from gateway.routing.chain import Chain
from gateway.routing.fleet import Fleet
from gateway.telemetry import Telemetry
from gateway.upstream import Provider

AGENT = "agent/"
_REMEMBERED = 1024  # chains made for patterns and provider/model names


class Router:
    """All models of one config. `find` gives the chain for a name, made once per name.

    `agents` are models too, under `agent/NAME`; whoever builds them puts them in.
    """

    def __init__(self, models: Mapping[str, config.Model], providers: Mapping[str, Provider], fleet: Fleet, telemetry: Telemetry) -> None:
        self.providers = providers
        self.fleet = fleet
        self._parts = (providers, fleet, telemetry)
        fleet.measures = any(model.balance == "latency" for model in models.values())
        self._chains = {name: self._make(model) for name, model in models.items() if not model.pattern}
        self._patterns = sorted((m for m in models.values() if m.pattern), key=lambda m: -len(m.name))
        self._made: dict[str, tuple[Chain, str]] = {}
        self.agents: Mapping[str, Model] = {}

    def find(self, name: str) -> tuple[Model, str]:
        """The chain or agent, and the name under which it is counted (a pattern's, not what it matched).

        InvalidRequest for a text that no model can have, NotFound `model_not_found` else.
        """
        chain = self._chains.get(name)
        if chain is not None:
            return chain, name
        made = self._made.get(name)
        if made is not None:
            return made
        agent = self.agents.get(name)
        if agent is not None:
            return agent, name
        if not model_name(name):
            raise InvalidRequest("`model` is not a valid model name", param="model", code="invalid_model_name")
        made = None if name.startswith(AGENT) else self._match(name) or self._direct(name)
        if made is None:
            close = difflib.get_close_matches(name, [*self._chains, *self.agents], 1)
            hint = f'; did you mean "{close[0]}"?' if close else "; GET /v1/models lists them"
            raise NotFound(f'the model "{name}" does not exist{hint}', code="model_not_found", param="model")
        if len(self._made) >= _REMEMBERED:
            self._made.clear()
        self._made[name] = made
        return made

    def names(self) -> list[str]:
        """What `/v1/models` lists: entries, and what is known to match a pattern."""
        known = dict.fromkeys(self._chains)
        for pattern in self._patterns:
            before, _, after = pattern.name.partition("*")
            for target in pattern.chain:
                provider = self.providers[target.provider]
                for model in (*provider.settings.models, provider.adapter.default_model):
                    part = config.matched(target.model, model) if model and "*" in target.model else None
                    if part is not None:
                        known[before + part + after] = None
        return [*known, *self.agents]

    def chain(self, name: str) -> Chain:
        """The chain for a name. Raises what `find` does; an agent is none."""
        found, _ = self.find(name)
        if not isinstance(found, Chain):
            raise InvalidRequest(f"{name} is an agent; ask for the model that it runs on", param="model")
        return found

    def _make(self, model: config.Model) -> Chain:
        return Chain(model, *self._parts)

    def _match(self, name: str) -> tuple[Chain, str] | None:
        for pattern in self._patterns:
            part = config.matched(pattern.name, name)
            if part is not None:
                chain = tuple(replace(t, model=t.model.replace("*", part, 1)) for t in pattern.chain)
                return self._make(replace(pattern, chain=chain)), pattern.name
        return None

    def _direct(self, name: str) -> tuple[Chain, str] | None:
        provider, slash, model = name.partition("/")
        if not slash or not model or provider not in self.providers:
            return None
        target = config.Target(provider, model)
        return self._make(config.Model(name, (target,))), f"{provider}/*"
