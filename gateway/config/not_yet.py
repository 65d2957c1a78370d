"""Settings that can be written and are checked, but that this version does not serve.

A setting that does nothing is a promise broken in silence, so each one is a fault. An
entry goes when what it stands for is served; schema and reference then show the setting
by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.config.fields import Place, Reading
from gateway.config.reader import Entry, Node


@dataclass(frozen=True, slots=True)
class Later:
    """A setting, `*` standing for any name and `[]` for any item. Values in `accepted` are what is served anyway."""

    pattern: str
    accepted: tuple[str, ...] = ()


NOT_YET = (
    Later("agents"),
    Later("retention.runs"),
)


def report(root: Node, reading: Reading, not_yet: Iterable[Later]) -> None:
    """Add a fault for every setting of the file that is not served yet."""
    for later in not_yet:
        for path, entry in _find(root, (), later.pattern.split(".")):
            node = entry.value
            given = bool(node.entries or node.items) or (node.kind == "text" and not node.null)
            if given and node.text not in later.accepted:
                reading.fault(path, "not available in this version", entry)


def _find(node: Node, path: Place, parts: list[str]) -> Iterator[tuple[Place, Entry]]:
    wanted = parts[0].removesuffix("[]")
    for key, entry in node.entries.items():
        if wanted not in ("*", key):
            continue
        if len(parts) == 1:
            yield (*path, key), entry
        elif parts[0] == wanted:
            yield from _find(entry.value, (*path, key), parts[1:])
        else:
            for i, item in enumerate(entry.value.items):
                yield from _find(item, (*path, key, i), parts[1:])
