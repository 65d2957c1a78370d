"""One exchange with one provider."""

from gateway.upstream.choose import choose
from gateway.upstream.prepared import RELAYED, Prepared
from gateway.upstream.provider import NothingToRepair, Provider
from gateway.upstream.reasoning import Memory
from gateway.upstream.relay import boundary_of, model_span
from gateway.upstream.transport import Exchange, Transport, TransportError, Url

__all__ = [
    "RELAYED",
    "Exchange",
    "Memory",
    "NothingToRepair",
    "Prepared",
    "Provider",
    "Transport",
    "TransportError",
    "Url",
    "boundary_of",
    "choose",
    "model_span",
]
