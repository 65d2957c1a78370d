"""Amazon Bedrock's Converse API. Facts: docs.aws.amazon.com and botocore 1.44, 2026-11; [remembered]: not looked up again.

The key is either a Bedrock API key, sent as it is, or ACCESS:SECRET or ACCESS:SECRET:SESSION,
with which each request is signed (Signature Version 4).
"""

import hashlib
import hmac
import re
from datetime import UTC, datetime
from urllib.parse import quote, unquote, urlsplit

base_url = "https://bedrock-runtime.{region}.amazonaws.com"
auth = "none"  # the hook writes the header
env = "AWS_BEARER_TOKEN_BEDROCK"
dialect = "converse"
framing = "eventstream"
default_model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"  # [remembered]
trailing_assistant = "refuse"  # Claude from 4.6 on
options = {"region": "us-east-1", "reasoning_memory": True}

_EXTRA = "additionalModelRequestFields"
_SAMPLING = ["inferenceConfig.temperature", "inferenceConfig.topP", f"{_EXTRA}.top_k"]


def _adaptive(**changes):
    """Claude from 4.6 on; the same table as Anthropic's own API, below the extra fields."""
    return {
        "off": {f"{_EXTRA}.thinking": {"type": "disabled"}},
        "on": {f"{_EXTRA}.thinking.type": "adaptive"},
        "effort": "outputConfig.effort",
        "levels": {level: level for level in ("low", "medium", "high", "xhigh", "max")},
        "keeps_effort": True,
        "drop": [f"{_EXTRA}.thinking.budget_tokens"],
        "beside": {f"{_EXTRA}.thinking.display": "summarized"},
        "default": "off",
        **changes,
    }


_BUDGET = {  # Claude up to 4.5
    "off": {f"{_EXTRA}.thinking": {"type": "disabled"}},
    "on": {f"{_EXTRA}.thinking.type": "enabled"},
    "effort": f"{_EXTRA}.thinking.budget_tokens",
    "levels": {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576, "max": 32000},
    "on_level": "medium",
    "room": "inferenceConfig.maxTokens",
    "default": "off",
    "refuses": _SAMPLING,
}
_NOVA = {  # [remembered]
    "off": {f"{_EXTRA}.reasoningConfig": {"type": "disabled"}},
    "on": {f"{_EXTRA}.reasoningConfig.type": "enabled"},
    "effort": f"{_EXTRA}.reasoningConfig.maxReasoningEffort",
    "levels": {"low": "low", "medium": "medium", "high": "high"},
    "on_level": "medium",
    "default": "off",
}
_GPT_OSS = {"off": "low", "on": "omit", "effort": f"{_EXTRA}.reasoning_effort", "levels": {"low": "low", "medium": "medium", "high": "high"}}  # [remembered]

_ALWAYS = ["*claude-opus-5-5*", "*claude-fable-5*"]
_BETWEEN = {"off": {f"{_EXTRA}.thinking": {"type": "between_tools"}}, "always": True, "default": "on"}


def _section(match, thinking, drop=()):
    return {"match": match, "thinking": thinking, "options": {"drop_params": list(drop)}}


models = [
    _section("*claude-sonnet-5-5*", _adaptive(**_BETWEEN), _SAMPLING),
    _section(_ALWAYS, _adaptive(off="low", default="on"), _SAMPLING),
    _section(["*claude-haiku-5-5*", "*claude-opus-5*"], _adaptive(default="on"), _SAMPLING),
    _section(["*claude-opus-4-7*", "*claude-opus-4-8*", "*claude-sonnet-5*"], _adaptive(), _SAMPLING),
    _section(["*claude-opus-4-6*", "*claude-sonnet-4-6*"], _adaptive(beside={}, refuses=_SAMPLING)),
    _section(["*claude-opus-4*", "*claude-sonnet-4*", "*claude-haiku-4*", "*claude-3-7*"], _BUDGET),
    _section(["*claude-3*", "*claude-v2*", "*claude-instant*"], False),
    _section("*claude*", _adaptive()),
    _section("*nova-2*", _NOVA),
    _section("*gpt-oss*", _GPT_OSS),
]

_CANNOT_FORCE = re.compile(r"claude-(?:sonnet-5-5|opus-5-5|fable-5)")
_THINKS = re.compile(r"claude-(?:haiku-5-5|opus-5)")
_ONE_OF_TWO = re.compile(r"claude-\w+-4-[156]")
_SIGNING = re.compile(r"([A-Z0-9]{16,128}):([^:]{16,})(?::(.+))?")
_REGION = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


def transform_request(req, ctx):
    """`model` and `stream` stand in the path. Claude takes no forced tool while it thinks, and some take one of two sampling parameters."""
    req.pop("model", None)
    req.pop("stream", None)
    if "claude" in ctx.model:
        _free_tool_choice(req, ctx)
        config = req.get("inferenceConfig", {})
        if "temperature" in config and "topP" in config and _ONE_OF_TWO.search(ctx.model):
            del config["topP"]
            ctx.warn("topP is left out: the model takes it or temperature")
    return req


def _free_tool_choice(req, ctx):
    """Thinking gives way to a forced tool, which often is the way to structured output; where it cannot, the choice becomes auto."""
    choice = req.get("toolConfig", {}).get("toolChoice", {})
    if "any" not in choice and "tool" not in choice:
        return
    if _CANNOT_FORCE.search(ctx.model):
        req["toolConfig"]["toolChoice"] = {"auto": {}}
        ctx.warn("tool choice is auto: the model always thinks")
    elif ctx.thinking != "auto" or _THINKS.search(ctx.model):
        ctx.thinking = "off"


def build_request(req, ctx):
    """The path with the model in it, and the headers that prove who asks. `ctx.url` is the base URL, `ctx.body` the bytes that are sent."""
    stream = ctx.stream or ctx.force_stream
    path = f"/model/{quote(unquote(ctx.model), safe='')}/{'converse-stream' if stream else 'converse'}"
    headers = {"accept": "application/vnd.amazon.eventstream" if stream else "application/json"}
    key = ctx.api_key
    if key and (keys := _SIGNING.fullmatch(key)):
        url = urlsplit(ctx.url)
        host = url.netloc.rpartition("@")[2].removesuffix(":443")
        found = _REGION.fullmatch(url.hostname or "")
        scope = (found[1] if found else ctx.options["region"], "bedrock")
        headers |= sign("POST", host, url.path.rstrip("/") + path, ctx.body, keys.groups(), scope, datetime.now(UTC))
    elif key:
        headers["authorization"] = f"Bearer {key}"
    return {"path": path, "headers": headers}


def sign(method, host, path, body, keys, scope, now):
    """The headers of Signature Version 4 for a request without a query.

    `path` as it is sent, `keys` (access, secret, session or None), `scope` (region, service),
    `now` in UTC. Signed are host, date and session token, which no proxy and no setting changes.
    """
    access, secret, session = keys
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {"host": host, "x-amz-date": stamp, **({"x-amz-security-token": session} if session else {})}
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        [
            method,
            quote(path, safe="/-_.~"),  # encoded once more than it is sent, as for every service but S3
            "",
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    credential = "/".join([stamp[:8], *scope, "aws4_request"])
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, credential, hashlib.sha256(canonical.encode()).hexdigest()])
    secret_key = f"AWS4{secret}".encode()
    for part in credential.split("/"):
        secret_key = hmac.new(secret_key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(secret_key, text.encode(), hashlib.sha256).hexdigest()
    proof = f"AWS4-HMAC-SHA256 Credential={access}/{credential}, SignedHeaders={names}, Signature={signature}"
    del signed["host"]
    return {**signed, "authorization": proof}


_TYPES = {
    "ThrottlingException": "rate_limit",
    "ModelNotReadyException": "overload",
    "ServiceUnavailableException": "overload",
    "ModelErrorException": "server",
    "ModelTimeoutException": "server",
    "ModelStreamErrorException": "server",
    "ServiceQuotaExceededException": "rate_limit",
    "ResourceNotFoundException": "not_found",
}
_NOT_FOUND = ("model identifier is invalid", "on-demand throughput")


def classify_error(err, ctx):
    """What the header x-amzn-ErrorType says, which the body leaves out, and models that are not there, which come as 400."""
    headers = {name.lower(): value for name, value in err["headers"].items()}
    kind = _TYPES.get(headers.get("x-amzn-errortype", "").partition(":")[0])
    message = err["body"].get("message") if isinstance(err["body"], dict) else None
    if isinstance(message, str):
        if any(text in message for text in _NOT_FOUND):
            kind = "not_found"
        elif "bound to a different conversation" in message or "Expected `thinking`" in message:
            kind = "signature"  # about this history: it teaches nothing about the model
        elif "cannot both be specified" in message:
            kind = "param"
    return {"class": kind} if kind else None


def repair(req, kind, ctx):
    """All reasoning of the history goes, never some of it; thinking that must stand before the last calls goes with it."""
    if kind not in ("signature", "reasoning_missing"):
        return None
    changed = False
    for turn in req["messages"]:
        rest = [block for block in turn["content"] if "reasoningContent" not in block]
        changed |= len(rest) < len(turn["content"])
        turn["content"] = rest or [{"text": "(thinking left out)"}]
    extra = req.get(_EXTRA, {})
    if extra.get("thinking", {}).get("type") == "enabled":
        extra["thinking"] = {"type": "disabled"}
        changed = True
    return req if changed else None
