"""A gateway over a provider that is as strict as DeepSeek, and the tool round trip that such a provider starts."""

from __future__ import annotations

from typing import Any

from openai_client import over, strict_deepseek
from upstream_double import Upstream, answer, chunk, completion, events, finish, plain, role, thought


def deepseek(a: Upstream, call: Any, *, streamed: bool, remembered: bool) -> str:
    """The config of a gateway; `a` asks for the tool while it thinks, then says Sunny. `remembered`: the gateway may keep reasoning."""
    asked = [role(), thought("I need it"), chunk({"tool_calls": [call]}), finish("tool_calls"), "[DONE]"]
    whole = [plain(completion(None, calls=[call], reasoning_content="I need it")), plain(completion("Sunny"))]
    a.call(strict_deepseek([events(*asked), events(*answer("Sunny"))] if streamed else whole))
    return over(a, adapter="deepseek" + memory(remembered))


def memory(remembered: bool) -> str:
    """A further line of a provider's settings."""
    return "" if remembered else "\noptions: {reasoning_memory: false}"


def reasoning_given_back(a: Upstream) -> Any:
    """What the only assistant turn of the second request carried; the first two requests were all, so nothing had to be repaired."""
    assert len(a.requests) == 2
    [turn] = [message for message in a.requests[1].json["messages"] if message["role"] == "assistant"]
    return turn["reasoning_content"]
