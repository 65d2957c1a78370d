"""Which provider is asked, and what happens when it fails."""

from gateway.routing.answers import SharedAnswers
from gateway.routing.cache import Cache, wants_kept
from gateway.routing.chain import Chain
from gateway.routing.explain import explain
from gateway.routing.fleet import Fleet
from gateway.routing.health import Health
from gateway.routing.prices import Rates
from gateway.routing.router import Router
from gateway.routing.sharing import SharedRests

__all__ = ["Cache", "Chain", "Fleet", "Health", "Rates", "Router", "SharedAnswers", "SharedRests", "explain", "wants_kept"]
