"""The same declarations for other readers: a JSON Schema for editors, rows for the reference in the README."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.config.fields import Field, Kind, Listing, Schema, Section, Table
from gateway.config.sections import FILE


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its path with `*` for names and `[]` for list items, its kind, default and purpose as texts."""

    path: str
    kind: str
    default: str
    doc: str


def reference() -> list[Row]:
    """Every setting, in the order of declaration."""
    return list(_rows(FILE, ""))


def _rows(section: Section, prefix: str) -> Iterator[Row]:
    for f in section.fields:
        path = f"{prefix}{f.name}"
        yield Row(path, _kind(f.kind), _default(section, f), f.doc)
        inner, suffix = _inner(f.kind)
        if inner is not None:
            yield from _rows(inner, f"{path}{suffix}.")


def _kind(kind: Kind) -> str:
    return "map" if isinstance(kind, Section) else kind.name


def _inner(kind: Any) -> tuple[Section | None, str]:
    """The section that a kind leads to, and how a path gets there."""
    if isinstance(kind, Section):
        return kind, ""
    if isinstance(kind, Table):
        section, suffix = _inner(kind.item)
        return section, ".*" + suffix
    if isinstance(kind, Listing):
        section, suffix = _inner(kind.item)
        return section, "[]" + suffix
    return getattr(kind, "details", None), ""


def _default(section: Section, f: Field) -> str:
    if f.required:
        return "required"
    if f.default is not None:
        return f.default
    value = section.default(f)
    if isinstance(f.kind, Section) or value in (None, (), {}):
        return ""
    return f.kind.show(value)


def schema() -> Schema:
    """A JSON Schema (2020-12) of the config file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Thinkgate config", **FILE.schema()}
