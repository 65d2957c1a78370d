"""How much may be sent again: asking a sick provider more often must not make it sicker.

Counted is every send that asks the same target again, a retry after a pause or a repaired
request, from the moment it is decided until its request has content or ends. A retry is
allowed while fewer sends than 20 % of the requests being served, or than 3, are counted (the
figures of Envoy's retry budget, api/envoy/config/cluster/v3/circuit_breaker.proto; there a
retry counts only while it runs, which lets a request with many retries exceed them); else
the request goes to its next target. A target that rests is not asked again at all. So a
world in which everything fails sees at most 1.2 sends per request and step of the chain.

Never refused are

    the next target    a request asks each target of its chain once, and one that fails rests
    the next key       a key that was refused rests, so all requests together pay for it once
    a repaired send    the provider works and says what it wants; one per target and request,
                       and what helped is prevented from then on
"""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 0.2
FLOOR = 3


@dataclass(slots=True)
class RetryBudget:
    """`active` requests are being served, `again` of their sends are not their target's first."""

    active: int = 0
    again: int = 0

    def allows(self) -> bool:
        return self.again < max(FLOOR, SHARE * self.active)
