"""Which provider is asked, and what happens when it fails."""

from gateway.routing.chain import Chain
from gateway.routing.explain import explain
from gateway.routing.health import Health
from gateway.routing.router import Router

__all__ = ["Chain", "Health", "Router", "explain"]
