"""JSON Schema -> the subset that Gemini's `parameters` and `responseSchema` take.

That subset is OpenAPI's: one `type` and `nullable`, no references, no `const`, enums of
texts only. What it cannot say is left out, or put into the description where the model
should know it. A property without any type is refused, so each gets one.
"""

from __future__ import annotations

from typing import Any

from gateway.chat import Json, dumps
from gateway.dialects.messages.terms import listed, mapping

_KEPT = ("title", "description", "minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "minimum", "maximum")
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_FORMATS = {"string": ("date-time", "enum"), "number": ("float", "double"), "integer": ("int32", "int64")}
_DEPTH = 60
_NODES = 5000  # references multiply: some lines can stand for millions of nodes

Within = tuple[Any, ...]
"""The root, then the references that were followed to come here, and a None for each other step down."""


class _Root:
    """The schema that references point into, and how many nodes its copy may still have."""

    __slots__ = ("left", "schema")

    def __init__(self, schema: Json) -> None:
        self.schema = schema
        self.left = _NODES


def cleaned(schema: Any) -> Json:
    """A new schema of the subset that says the same, as far as it can.

    A reference back to what it stands in becomes an object without properties.
    """
    root = _Root(mapping(schema))
    return _clean(root.schema, (root,))


def _clean(schema: Any, within: Within) -> Json:
    if not isinstance(schema, dict):
        return {"type": "string"}
    within[0].left -= 1
    if len(within) > _DEPTH or within[0].left < 0:
        return {"type": "object"}
    schema, within = _whole(schema, (*within, None))
    types, nullable = _types(schema)
    out: Json = {key: schema[key] for key in _KEPT if schema.get(key) is not None}
    if isinstance(schema.get("default"), str | int | float):
        out["default"] = schema["default"]
    variants, null_variant = _variants(schema, types)
    if nullable or null_variant:
        out["nullable"] = True
    if len(variants) == 1:
        return {**_clean(variants[0], within), **out}
    if variants:
        out["anyOf"] = [_clean(variant, within) for variant in variants]
        return out
    out = {"type": types[0] if types else _guess(schema), **out}
    _add_enum(out, schema)
    _add_inner(out, schema, within)
    return out


def _whole(schema: Json, within: Within) -> tuple[Json, Within]:
    """The schema with its own reference followed and its `allOf` merged in."""
    while isinstance(reference := schema.get("$ref"), str):
        target = {"type": "object"} if reference in within else _target(reference, within[0].schema)
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        within = (*within, reference)
    parts = schema.get("allOf")
    for part in listed(parts) if len(within) <= _DEPTH else ():
        part, within = _whole(part, (*within, None))
        properties = {**mapping(part.get("properties")), **mapping(schema.get("properties"))}
        required = [*(part.get("required") or ()), *(schema.get("required") or ())]
        schema = {**part, **schema, **({"properties": properties} if properties else {}), **({"required": required} if required else {})}
    return schema, within


def _target(reference: str, root: Json) -> Json:
    at: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        at = mapping(at).get(name.replace("~1", "/").replace("~0", "~")) if name else at
    return mapping(at)


def _types(schema: Json) -> tuple[list[str], bool]:
    """The types other than null, and whether null is one."""
    given = schema.get("type")
    names = [name.lower() for name in (given if isinstance(given, list) else [given]) if isinstance(name, str)]
    known = [name for name in names if name in _TYPES]
    return [name for name in known if name != "null"], "null" in known or schema.get("nullable") is True


def _variants(schema: Json, types: list[str]) -> tuple[list[Json], bool]:
    """What `anyOf`, `oneOf` or several types offer, without null, and whether null was offered."""
    offered = [variant for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list) for variant in schema[key] if isinstance(variant, dict)]
    if not offered:
        bare = {key: value for key, value in schema.items() if key not in ("type", "title", "description", "nullable")}
        return ([{**bare, "type": name} for name in types] if len(types) > 1 else []), False
    variants = [variant for variant in offered if variant.get("type") != "null"]
    return variants, len(variants) < len(offered)


def _guess(schema: Json) -> str:
    if "properties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    values = _values(schema)
    for kind, name in ((bool, "boolean"), (str, "string"), (int, "integer"), ((int, float), "number")):
        if values and all(isinstance(value, kind) for value in values):
            return name
    return "string"


def _values(schema: Json) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else []


def _add_enum(out: Json, schema: Json) -> None:
    """Texts become an enum; other values the model is only told about."""
    values = [value for value in _values(schema) if value is not None]
    if None in _values(schema):
        out["nullable"] = True
    if not values:
        return
    if out["type"] == "string" and all(isinstance(value, str) and value for value in values):
        out["enum"] = list(dict.fromkeys(values))
        return
    told = f"One of: {', '.join(dumps(value).decode() for value in values)}"
    out["description"] = f"{out['description']} {told}" if out.get("description") else told


def _add_inner(out: Json, schema: Json, within: Within) -> None:
    kind, form = out["type"], schema.get("format")
    if form in _FORMATS.get(kind, ()):
        out["format"] = form
    if kind == "array":
        items = schema.get("items")
        if not isinstance(items, dict):  # a tuple: its variants, since the position cannot be said
            places = items if isinstance(items, list) else schema.get("prefixItems")
            items = {"anyOf": places} if isinstance(places, list) and places else {}
        out["items"] = _clean(items, within)
    elif kind == "object" and (properties := mapping(schema.get("properties"))):
        out["properties"] = {name: _clean(inner, within) for name, inner in properties.items()}
        required = [name for name in dict.fromkeys(schema.get("required") or ()) if isinstance(name, str) and name in properties]
        if required:
            out["required"] = required
