"""Mistral's own API.

Facts: docs.mistral.ai (reasoning, 2026), vercel/ai and its captured answers, 2026-08, and
refusals seen live, 2025 and 2026. "Remembered": not checked. In Python because a hook that
looks at every chunk costs a tenth of what it costs in Lua.
"""

base_url = "https://api.mistral.ai/v1"
auth = "bearer"
env = "MISTRAL_API_KEY"
dialect = "chat"
default_model = "mistral-medium-latest"  # remembered
trailing_assistant = "refuse"  # only with `prefix`, and then the answer repeats it

# Two efforts; none is what holds when nothing is said.
_ADJUSTABLE = {"off": {"reasoning_effort": "none"}, "on": "high", "effort": "reasoning_effort", "levels": {"high": "high"}, "default": "off"}
_THOUGHTS = {"reasoning_echo": "all", "reasoning_field": "parts", "reasoning_memory": True}

thinking = {"off": "omit", "on": "off"}  # the other models know no such field
models = [
    # Large 4 has more efforts; how it is turned off is remembered.
    {
        "match": "mistral-large-4*",
        "thinking": {**_ADJUSTABLE, "on": "medium", "levels": {"low": "low", "medium": "medium", "high": "high"}},
        "options": _THOUGHTS,
    },
    {
        "match": ["mistral-small-latest", "mistral-small-2603*", "mistral-medium-3", "mistral-medium-3.5*", "mistral-medium-3-5*", "mistral-medium-latest"],
        "thinking": _ADJUSTABLE,
        "options": _THOUGHTS,
    },
    {"match": "magistral*", "thinking": {"off": "omit", "on": "omit", "default": "on"}, "options": _THOUGHTS},
]
options = {
    "hoist_extra_body": True,
    # The thoughts are parts of the content, and go back as such to models that think. Other fields are refused (422).
    "reasoning_echo": "none",
    "tool_ids": "nine",  # 400 "Tool call id was ... but must be a-z, A-Z, 0-9, with a length of 9."
    "tool_result_names": True,
    "bridge_after_tool": True,  # 400 "Unexpected role 'user' after role 'tool'", code 3230
    "system_role": "system",
    "max_tokens_field": "max_tokens",
    "include_usage": False,  # streams end with usage unasked
    "rename_params": {"seed": "random_seed"},
    # Unknown fields are refused with 422; that these are unknown is remembered.
    "drop_params": [
        "stream_options",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "user",
        "store",
        "service_tier",
        "verbosity",
        "prompt_cache_key",
        "safety_identifier",
        "functions",
        "function_call",
    ],
}


def transform_response(answer, ctx):
    """Ids of the request that come back are the client's again."""
    _restore(answer, "message", ctx.state.get("tool_ids"))
    return answer


def transform_chunk(chunk, ctx):
    _restore(chunk, "delta", ctx.state.get("tool_ids"))
    return chunk


def _restore(answer, part, ids):
    if not ids:
        return
    for choice in answer.get("choices") or ():
        for call in (choice.get(part) or {}).get("tool_calls") or ():
            if call.get("id") in ids:
                call["id"] = ids[call["id"]]


_LAST = "expected last role user or tool"


def classify_error(err, ctx):
    """A field that it does not know, and a last turn that is the assistant's."""
    text = str(err["body"]).lower()
    if _LAST in text:
        return {"class": "role_order"}
    if err["status"] == 422 and ("extra_forbidden" in text or "extra inputs are not permitted" in text) and "reasoning" not in text:
        return {"class": "param"}
    return None


def repair(req, kind, ctx):
    """A last turn of the assistant's is one that is to be continued."""
    error, messages = ctx.state.get("error") or {}, req.get("messages")
    if kind != "role_order" or _LAST not in str(error.get("message")).lower() or not messages or messages[-1].get("role") != "assistant":
        return None
    messages[-1]["prefix"] = True
    return req
