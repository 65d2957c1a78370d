"""HTTP: the door, the routes, and the way of an answer to its client."""

from gateway.api.auth import Auth
from gateway.api.routes import build
from gateway.api.state import Reload, State

__all__ = ["Auth", "Reload", "State", "build"]
