"""Prompts with places to fill."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACE = re.compile(r"\{(\w+)\}")


def fill(prompt: str, **values: str) -> str:
    """The prompt with `{name}` replaced where a value of that name is given.

    All other braces stay as they are (a prompt may hold JSON), `{{` and `}}` are single ones; what is filled in is not looked at again.
    """
    known: Mapping[str, str] = values
    return "".join(
        part.replace("{{", "{").replace("}}", "}") if number % 2 == 0 else known.get(part, "{" + part + "}") for number, part in enumerate(_PLACE.split(prompt))
    )
