"""OpenAI's models on Azure, and others at Microsoft Foundry.

    base_url: https://RESOURCE.openai.azure.com or https://RESOURCE.services.ai.azure.com

A model is a deployment, whose name is the user's. Where that is not the model's own,
`options.known_as` says what it is, so that the rules below are found. With an Entra token
there is no api_key, but `headers: {Authorization: "Bearer ..."}`.

Facts: learn.microsoft.com (API lifecycle) and vercel/ai, 2026; the models' rules are OpenAI's,
measured 2026-07. "Remembered": not checked. In Python because the hook runs at every request
and reads options, which costs ten times as much in Lua.
"""

base_url = "https://{resource}.openai.azure.com"
auth = "header:api-key"
env = "AZURE_OPENAI_API_KEY"
dialect = "chat"

_NONE = {"reasoning_effort": "none"}
_FOUR = ("low", "medium", "high", "xhigh")
_SAMPLING = ["temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"]


def _section(match, off, levels, **more):
    return {
        "match": list(match),
        "thinking": {"off": off, "effort": "reasoning_effort", "levels": {level: level for level in levels}, "refuses": _SAMPLING, **more},
        "options": {"reasoning_echo": "none", "max_tokens_field": "max_completion_tokens", "system_role": "developer"},
    }


models = [
    {"match": ["gpt-5-chat*", "gpt-4*", "gpt-35*", "gpt-3.5*"], "options": {"reasoning_echo": "none"}},
    # These always reason; the least that they take stands for off.
    _section(["gpt-5.*-chat*", "gpt-6*-chat*"], "medium", ["medium"]),
    _section(["gpt-5-pro*"], "high", ["high"]),
    _section(["gpt-5.*-pro*"], "medium", _FOUR[1:]),
    _section(["o1*", "o3*", "o4*", "gpt-5.1-codex*"], "low", _FOUR[:3]),
    _section(["gpt-5", "gpt-5-*"], "minimal", ["minimal", *_FOUR[:3]]),
    # These can be turned off; from 5.4 on they must not reason when function tools are there.
    _section(["gpt-5.1*"], _NONE, _FOUR[:3], default="off"),
    _section(["gpt-5.2*", "gpt-5.3*"], _NONE, _FOUR, default="off"),
    _section(["gpt-5.4*"], _NONE, _FOUR, default="off", with_tools="off"),
    _section(["gpt-5.5*", "gpt-5.6*", "gpt-6*"], _NONE, _FOUR, default="on", with_tools="off"),
    # DeepSeek's weights want DeepSeek's rule: with tools every assistant turn carries a text. That Azure asks for it is remembered.
    {"match": "[Dd]eep[Ss]eek-[Vv]4*", "options": {"reasoning_echo": "all", "reasoning_placeholder": "", "reasoning_memory": True}},
]

options = {
    "style": "v1",  # v1: the model stands in the body; deployments: in the path; plain: base_url as it is, behind a gateway of one's own
    "api_version": "",  # left out: none with v1, 2024-10-21 with deployments
    "resource": "",  # instead of base_url
    "hoist_extra_body": True,
}

_STYLES = ("v1", "deployments", "plain")
_PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages", "completions": "/completions"}


def build_request(req, ctx):
    """The path behind the base URL, which is the resource's own or one of the addresses that the portal shows. `ctx.url` is that URL."""
    url = ctx.url.rstrip("/")
    style, version = ctx.options["style"], ctx.options["api_version"]
    if "{resource}" in url:
        ctx.skip("neither base_url nor options.resource is set")
    if style not in _STYLES:
        ctx.skip(f"options.style is {style!r}, known: {', '.join(_STYLES)}")
    path = _PATHS[ctx.dialect] if ctx.endpoint in _PATHS else f"/{ctx.endpoint}"
    if style == "deployments":
        version = version or "2024-10-21"
        if "/deployments/" not in url and path != "/responses":  # which has none in its path
            path = f"/deployments/{ctx.model}{path}"
    if style != "plain" and "/deployments/" not in url and not url.endswith("/openai/v1"):
        path = ("" if url.endswith("/openai") else "/openai") + ("/v1" if style == "v1" else "") + path
    return {"path": path, "query": {"api-version": version} if version else {}}


def classify_error(err, ctx):
    """A deployment of another kind of model, which comes as 400; remembered."""
    error = err["body"].get("error") if isinstance(err["body"], dict) else None
    if isinstance(error, dict) and error.get("code") == "OperationNotSupported":
        return {"class": "not_found"}
    return None
