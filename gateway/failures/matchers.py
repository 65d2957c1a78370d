"""Which class a refusal belongs to.

What the body says decides before the status does, both in the order of the classes below:
balance comes as 429, 400 and 500, overload as 429, a bad signature as 429 through relays.
The texts are the providers' own, collected until 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.failures.refusal import Refusal


def _all(*parts: str) -> str:
    """A pattern that wants every part, in any order."""
    return "^" + "".join(f"(?=.*(?:{part}))" for part in parts)


_SAYS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile("|".join(patterns), re.DOTALL))
    for kind, patterns in (
        (
            "reasoning_missing",
            (
                _all("reasoning_content", "must be passed back|is missing in assistant|missing [`'\"]?reasoning_content"),
                "expected `thinking` or `redacted_thinking`",
            ),
        ),
        (
            "reasoning_unsupported",
            (
                r"property '[^']*reasoning(?:_content)?' is unsupported",
                _all("extra_forbidden|extra inputs are not permitted", "reasoning"),
            ),
        ),
        (
            "signature",
            (
                r"invalid [`'\"]signature",
                _all("invalid signature", "thinking"),
                r"thought[_ ]signature",
                "invalid_encrypted_content",
                _all("could not be verified", "encrypted|signature|reasoning|thinking"),
                "without its required",
                r"\brs_[\w-]+\W{0,2} not found",
                _all("thinking", "blocks in the latest assistant message cannot be modified"),
            ),
        ),
        (
            "tool_choice_thinking",
            (
                "does not support this tool_choice",
                _all("tool_choice", "thinking"),
                "tool_choice 'specified' is incompatible",
                "forced tool",
            ),
        ),
        ("tools_effort", ("function tools with reasoning_effort are not supported",)),
        (
            "thinking_mode",
            (
                "enable_thinking must be set to false",
                "only support stream",
                "enable[ _]thinking can ?not be support",
                _all(r"thinking\.type\.", "not supported"),
                "cannot specify both 'thinking'",
                "'reasoning_effort' value",
            ),
        ),
        (
            "param",
            (
                "unsupported_parameter",
                "unsupported_value",
                r"unsupported (?:parameter|value): ['\"`]",
                r"invalid temperature: only",
            ),
        ),
        (
            "role_order",
            (
                "unexpected role",
                "roles must alternate",
                "tool call id was",
                "tool_use ids were found without",
                r"tool id\([^)]*\) not found",
            ),
        ),
        (
            "context_overflow",
            (
                "context_length_exceeded",
                "maximum context length",
                "exceeds? (?:the )?context limit",
                "exceeds the context window",
                "prompt is too long",
                "input is too long for requested model",
                "range of input length",
                "max_seq_len",
                "exceeded model token limit",
                "input token length too long",
                "exceeds the available context size",
                "exceeds the maximum number of tokens",
                "current length is.*while limit is",
                "context window exceeds limit",  # MiniMax, also as base_resp 2013 inside a 200
            ),
        ),
        (
            "content_filter",
            (
                "content_filter",
                "content_policy",
                "responsibleaipolicy",
                "data_?inspection",
                r"risk\w*detection",
                "high risk",
                "sensitivecontent",
            ),
        ),
        (
            "balance",
            (
                "insufficient_quota",
                "insufficient balance",
                "balance is insufficient",
                r"\(1008\)",
                "arrearage",
                "accountoverdue",
                "exceeded_current_quota",
                r"billing_(?:error|hard_limit|not_active)",
                "credit_balance",
                "spend_limit",
                # the word alone: not "credentials", not a quoted name such as 'credit', not a credit card
                r"(?<![\w'\"`])credits?(?![\w'\"`]|[ -]card)",
                r"account\b.{0,80}\bsuspended",
            ),
        ),
        ("rate_limit", (r"rate[ _-]?limit", "throttling", "resource_exhausted", "too many requests")),
        (
            "overload",
            (
                "overloaded",
                "service tier capacity",
                "service is (?:currently|temporarily) unavailable",
                "insufficient_system_resource",
            ),
        ),
        (
            "auth",
            (
                "invalid[_ ]api[_ ]key",
                "incorrect api key",
                "api[_ ]key[_ ](?:not valid|invalid)",
                "authentication_error",
                "invalid x-api-key",
            ),
        ),
        (
            "not_found",
            (
                r"model[_ ]?not[_ ]?(?:found|open|exists?)\b",
                r"\bmodel [`'\"]?[\w./:@-]+[`'\"]? does not exist",
                "invalidendpointormodel",
                "deploymentnotfound",
            ),
        ),
    )
)

# Business codes: Zhipu's, MiniMax's (`base:` where they come in base_resp), a DeepSeek relay's 11155
_CODES: Mapping[str, str] = {
    "11155": "reasoning_missing",
    "1261": "context_overflow",
    "base:1039": "context_overflow",
    "1301": "content_filter",
    "1026": "content_filter",
    "1027": "content_filter",
    "base:1026": "content_filter",
    "base:1027": "content_filter",
    "1113": "balance",
    "1008": "balance",
    "base:1008": "balance",
    "1302": "rate_limit",
    "1303": "rate_limit",
    "1305": "rate_limit",
    "base:1002": "rate_limit",
    "1312": "overload",
    "base:1004": "auth",
    "1211": "not_found",
    "base:2013": "bad_request",
}

_STATUSES: Mapping[int, str] = {
    402: "balance",
    429: "rate_limit",
    503: "overload",
    529: "overload",
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "server",
    409: "server",
    425: "server",
    499: "server",
}

# Error types of OpenAI's and Anthropic's bodies: what an error inside a 200 has instead of a status
_TYPES: Mapping[str, str] = {
    "invalid_request_error": "bad_request",
    "request_too_large": "bad_request",
    "permission_error": "auth",
    "not_found_error": "not_found",
    "api_error": "server",
    "server_error": "server",
    "internal_server_error": "server",
    "timeout_error": "server",
}

ERROR_FINISHES: Mapping[object, str] = {
    "error": "protocol",
    "insufficient_system_resource": "overload",  # DeepSeek
    "network_error": "server",  # Zhipu
    "MALFORMED_FUNCTION_CALL": "protocol",  # Gemini
    "malformed_function_call": "protocol",
}
"""finish reasons that mean that the answer failed, and the class of each"""


def kind_of(refusal: Refusal, status: int | None) -> str:
    """The class of a refusal; `status` is None where neither the exchange nor the body has one."""
    said = _said(refusal, status)
    if said is not None:
        return said
    if status is None:
        return _TYPES.get(refusal.type or "", _TYPES.get(refusal.code or "", "protocol"))
    if status in _STATUSES:
        return _STATUSES[status]
    if status >= 500:
        return "server"
    return "bad_request" if status >= 400 else "protocol"


def _said(refusal: Refusal, status: int | None) -> str | None:
    coded = {_CODES[code] for code in refusal.codes if code in _CODES}
    for kind, pattern in _SAYS:
        if kind in coded or pattern.search(refusal.text):
            if kind == "context_overflow" and "string_above_max_length" in refusal.text:
                continue  # OpenAI: one field is too long, the context is not
            return kind
        if kind == "context_overflow" and status == 403 and "token count" in refusal.text:
            return kind  # Together
        if kind == "content_filter" and status == 403 and "moderation" in refusal.text:
            return kind  # OpenRouter
    return "bad_request" if "bad_request" in coded else None
