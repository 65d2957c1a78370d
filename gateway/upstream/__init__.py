"""One exchange with one provider."""

from gateway.upstream.choose import choose
from gateway.upstream.local import Local, local_is_installed
from gateway.upstream.mock import Mock
from gateway.upstream.mock import check as check_mock
from gateway.upstream.prepared import Prepared
from gateway.upstream.provider import NothingToRepair, Provider
from gateway.upstream.reasoning import Memory
from gateway.upstream.transport import Exchange, Transport, TransportError, Url

__all__ = [
    "Exchange",
    "Local",
    "Memory",
    "Mock",
    "NothingToRepair",
    "Prepared",
    "Provider",
    "Transport",
    "TransportError",
    "Url",
    "check_mock",
    "choose",
    "local_is_installed",
]
