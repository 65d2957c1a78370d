"""One exchange with one provider."""

from gateway.upstream.choose import choose
from gateway.upstream.local import Local, local_is_installed
from gateway.upstream.mock import Mock
from gateway.upstream.mock import check as check_mock
from gateway.upstream.prepared import RELAYED, Prepared
from gateway.upstream.provider import NothingToRepair, Provider
from gateway.upstream.reasoning import Memory
from gateway.upstream.relay import boundary_of, model_span
from gateway.upstream.transport import Exchange, Transport, TransportError, Url

__all__ = [
    "RELAYED",
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
    "boundary_of",
    "check_mock",
    "choose",
    "local_is_installed",
    "model_span",
]
