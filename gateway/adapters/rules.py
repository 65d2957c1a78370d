"""The adapters' data rules: what is done to a request before and after an adapter's hooks.

`body` is the attempt's own copy and is edited; the same object comes back. Everything that
is changed is noted in `ctx.notes` as `<adapter>.<what>` or `<adapter>.<what>=<value>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.adapters import paths
from gateway.adapters.entries import prune_entries
from gateway.adapters.reasoning import echo
from gateway.adapters.repairs import repair
from gateway.adapters.roles import bridge, empty_contents, name_results, rename_instructions, roles_of, short_ids
from gateway.adapters.settings import COMMON_OPTIONS, Option, Settings, faults, settings
from gateway.adapters.signatures import sign_steps
from gateway.adapters.thinking import read_wish
from gateway.adapters.tools import drop_tools, fit_schemas, narrow_choice, repair_arguments
from gateway.chat import Json

if TYPE_CHECKING:
    from gateway.adapters.hooks import Adapter, Context

__all__ = ["COMMON_OPTIONS", "Option", "Settings", "after_hooks", "before_hooks", "faults", "is_forced", "repair", "settings"]

_GENERATING = frozenset(("chat", "responses", "messages", "completions"))
"""Endpoints whose model may think; nothing but fields is dropped or renamed on the others."""


def before_hooks(body: Json, adapter: Adapter, options: Settings, ctx: Context) -> Json:
    """What an adapter's hooks may rely on: a literal `extra_body` is gone where the adapter asks for that."""
    if "extra_body" in body and options["hoist_extra_body"]:
        extra = body.pop("extra_body")
        if isinstance(extra, dict):
            for key, value in extra.items():
                body.setdefault(key, value)
        ctx.note(f"{adapter.name}.hoist_extra_body")
    return body


def after_hooks(body: Json, adapter: Adapter, options: Settings, ctx: Context) -> Json:
    """The body as the provider wants it: thinking, tool choice, reasoning, roles, names, stream.

    A body that went through in another dialect than the adapter's (`ctx.dialect`) only has
    fields dropped and renamed: the rest is said in the adapter's dialect.
    """
    name = adapter.name
    if ctx.endpoint in _GENERATING and ctx.dialect == adapter.dialect:
        if ctx.dialect == "chat":
            _chat(body, name, options, ctx)
        else:
            _thinking(body, name, options, ctx)
        if ctx.force_stream and not body.get("stream"):
            body["stream"] = True
            ctx.note(f"{name}.stream_only")
    for path in options.drop:
        if paths.remove(body, path):
            ctx.note(f"{name}.drop={'.'.join(path)}")
    for old, new in options.rename:
        _rename(body, old, new, name, ctx)
    return body


def is_forced(choice: Any) -> bool:
    """Whether a tool_choice, in any dialect, makes the model call a tool."""
    if isinstance(choice, dict):
        kind = choice.get("type")
        if kind == "allowed_tools":
            allowed = choice.get("allowed_tools")
            return (allowed if isinstance(allowed, dict) else choice).get("mode") == "required"
        return kind not in ("auto", "none")
    return choice in ("required", "any")


def _chat(body: Json, name: str, options: Settings, ctx: Context) -> None:
    if body.get("tools") == []:
        _drop_empty_tools(body, name, ctx)
    if options["tool_choices"] and "tool_choice" in body:
        _narrow_choice(body, name, options, ctx)
    _thinking(body, name, options, ctx)
    messages = body.get("messages")
    if type(messages) is list:
        _messages(messages, bool(body.get("tools")), name, options, ctx)
    if options["tool_schema"] is not None and (fitted := fit_schemas(body.get("tools"), options["tool_schema"])):
        ctx.note(f"{name}.tool_schema={fitted}")
    if options["max_tokens_field"] is not None:
        _max_tokens(body, options["max_tokens_field"], name, ctx)
    _numbers_and_defaults(body, name, options, ctx)
    if (ctx.stream or ctx.force_stream) and options["include_usage"]:
        _include_usage(body, name, ctx)


def _drop_empty_tools(body: Json, name: str, ctx: Context) -> None:
    """`tools: []` means no tools, but most providers refuse it, and tool_choice without tools."""
    drop_tools(body)
    ctx.note(f"{name}.empty_tools")


def _narrow_choice(body: Json, name: str, options: Settings, ctx: Context) -> None:
    became = narrow_choice(body, options["tool_choices"])
    if became is not None:
        ctx.note(f"{name}.{became}")


def _numbers_and_defaults(body: Json, name: str, options: Settings, ctx: Context) -> None:
    for param, low, high in options.clamp:
        value = body.get(param)
        if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
            body[param] = low if value < low else high
            ctx.note(f"{name}.clamp={param}")
    for param, value in options.defaults:
        if param not in body:
            body[param] = paths.copied(value)
            ctx.note(f"{name}.default={param}")


def _thinking(body: Json, name: str, options: Settings, ctx: Context) -> None:
    """Say the wish in the provider's words, and what follows from it for the stream."""
    stream_only = options["stream_only"]
    if stream_only is True:
        ctx.force_stream = True
    if _say_wish(body, name, options, ctx) and stream_only == "thinking":
        ctx.force_stream = True


def _say_wish(body: Json, name: str, options: Settings, ctx: Context) -> bool:
    """True: the model will think."""
    rule, wish = options.thinking, ctx.thinking
    if rule is None:
        return _unsayable(body, name, options, ctx)
    if wish == "auto":
        body.pop("disable_thinking", None)  # false: it says nothing, and no provider knows it
        if rule.unstreamed is not None and not (ctx.stream or ctx.force_stream):
            wish = rule.unstreamed
    thinks = rule.default == "on" if wish == "auto" else rule.wordings[wish].thinks
    if thinks and rule.with_tools is not None and body.get("tools"):
        wish = rule.with_tools
        thinks = rule.wordings[wish].thinks
    if thinks and "tool_choice" in body and is_forced(body["tool_choice"]):
        policy = options["forced_tool_choice_while_thinking"]
        if policy == "thinking_off" and not rule.wordings["off"].thinks:
            wish, thinks = "off", False
        elif policy != "keep":
            _release_tool_choice(body, name, ctx)
    if wish != "auto" and rule.write(body, wish):
        ctx.note(f"{name}.thinking={rule.wordings[wish].label}")
    for param in rule.refuses if thinks else ():
        if paths.remove(body, param):
            ctx.note(f"{name}.drop={'.'.join(param)}")
    return thinks


def _unsayable(body: Json, name: str, options: Settings, ctx: Context) -> bool:
    """No rule: what the client wrote goes through as it is, what the config wishes cannot be said. True: thinking was asked for."""
    wish = ctx.thinking
    if wish != "auto" and read_wish(body) is None:
        ctx.note(f"{name}.thinking=ignored")
    if wish != "off" and "tool_choice" in body and options["forced_tool_choice_while_thinking"] != "keep":
        _release_tool_choice(body, name, ctx)
    return wish not in ("off", "auto")


def _release_tool_choice(body: Json, name: str, ctx: Context) -> None:
    """A forced choice becomes auto; the model may still call the tool."""
    choice = body["tool_choice"]
    if is_forced(choice):
        alone = {"disable_parallel_tool_use": True} if isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True else {}
        body["tool_choice"] = {"type": "auto", **alone} if ctx.dialect == "messages" else "auto"
        ctx.note(f"{name}.tool_choice=auto")


def _messages(messages: list[Any], has_tools: bool, name: str, options: Settings, ctx: Context) -> None:
    which, role = options["reasoning_echo"], options["system_role"]
    if options["repair_arguments"] and (repaired := repair_arguments(messages)):
        ctx.note(f"{name}.repair_arguments={repaired}")
    if options.strict_turns:
        _strict_turns(messages, name, options, ctx)
    stand_in = options["thought_signature"]
    if which is None and role is None and stand_in is None:
        return
    roles = roles_of(messages)
    if stand_in is not None and "assistant" in roles and (signed := sign_steps(messages, roles, stand_in)):
        ctx.note(f"{name}.thought_signature={signed}")
    if which is not None and "assistant" in roles:
        field, placeholder, fills = options["reasoning_field"], options["reasoning_placeholder"], options["reasoning_fills"]
        backfilled, moved, stripped = echo(messages, roles, which, field, placeholder, has_tools, fills)
        if backfilled:
            ctx.note(f"{name}.reasoning_backfill={backfilled}")
        if moved:
            ctx.note(f"{name}.reasoning_moved={moved}")
        if stripped:
            ctx.note(f"{name}.reasoning_stripped={stripped}")
        if options["reasoning_entries"] is not None and (pruned := prune_entries(messages, options["reasoning_entries"])):
            ctx.note(f"{name}.reasoning_pruned={pruned}")
    if role is not None and rename_instructions(messages, roles, role):
        ctx.note(f"{name}.system_role={role}")


def _strict_turns(messages: list[Any], name: str, options: Settings, ctx: Context) -> None:
    """What few providers insist on in their turns. The ids that were changed are in `ctx.state["tool_ids"]`, new -> old."""
    if options["tool_ids"] == "nine" and (ids := short_ids(messages)):
        ctx.state["tool_ids"] = ids
        ctx.note(f"{name}.tool_ids={len(ids)}")
    if options["tool_result_names"] and (named := name_results(messages)):
        ctx.note(f"{name}.tool_result_names={named}")
    if options["bridge_after_tool"] and (bridged := bridge(messages)):
        ctx.note(f"{name}.bridge_after_tool={bridged}")
    if options["empty_content"] is not None and (filled := empty_contents(messages, None if options["empty_content"] == "none" else "")):
        ctx.note(f"{name}.empty_content={filled}")


def _include_usage(body: Json, name: str, ctx: Context) -> None:
    wanted = body.get("stream_options")
    if not isinstance(wanted, dict):
        body["stream_options"] = {"include_usage": True}
    elif wanted.get("include_usage") is not True:
        wanted["include_usage"] = True
    else:
        return
    ctx.note(f"{name}.include_usage")


def _max_tokens(body: Json, wanted: str, name: str, ctx: Context) -> None:
    if wanted == "either":
        if "max_completion_tokens" in body and body.pop("max_tokens", None) is not None:
            ctx.note(f"{name}.drop=max_tokens")
        return
    other = "max_completion_tokens" if wanted == "max_tokens" else "max_tokens"
    if other in body:
        value = body.pop(other)
        body.setdefault(wanted, value)
        ctx.note(f"{name}.max_tokens_field={wanted}")


def _rename(body: Json, old: paths.Path, new: paths.Path, name: str, ctx: Context) -> None:
    value = body
    for key in old:
        if type(value) is not dict or key not in value:
            return
        value = value[key]
    paths.remove(body, old)
    paths.put(body, new, value)
    ctx.note(f"{name}.rename={'.'.join(old)}>{'.'.join(new)}")
