"""Schema and reference tell the same as the reader."""

from __future__ import annotations

from typing import Any

import pytest
from config_sample import ENV, TEXT
from jsonschema import Draft202012Validator, ValidationError

from gateway import config
from gateway.config.fields import plain_value
from gateway.config.reader import Node, read
from gateway.config.sections import FILE
from gateway.config.starter import starter


def as_editors_see_it(text: str) -> Any:
    """The file in YAML 1.2's types, variables not replaced."""

    def value(node: Node) -> Any:
        if node.kind == "list":
            return [value(item) for item in node.items]
        if node.kind == "map":
            return {key: value(entry.value) for key, entry in node.entries.items()}
        return None if node.null else plain_value(node)

    return value(read(text.replace("$", "$$"), {}, [], "f"))


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(config.schema())


def test_the_whole_schema_takes_the_file_with_every_setting() -> None:
    Draft202012Validator(FILE.schema()).validate(as_editors_see_it(TEXT))


@pytest.mark.parametrize("known", [[], [("openai", "OPENAI_API_KEY", "gpt-5-mini")]])
def test_the_schema_takes_what_init_writes(known: list[tuple[str, str, str]]) -> None:
    Draft202012Validator(config.schema()).validate(as_editors_see_it(starter({"OPENAI_API_KEY": "x"}, known)))


@pytest.mark.parametrize(
    "text",
    [
        "providers: {a: {base_ulr: x}}",
        "providers: {a: {thinking: maybe}}",
        "providers: {a: {timeouts: {idle: 5}}}",
        "providers: {a: {}}\nmodels: {m: {chain: []}}",
        "providers: {a: {}}\nmodels: {m: gpt}",
        "server: {port: x}\nproviders: {a: {}}",
        "server: {}",
        "providers: {a: {limits: {rpm: 0.5}}}",
        "providers: {a: {}}\nmodels: {m: {chain: [{target: a/x, weight: heavy}]}}",
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text: str) -> None:
    assert not Draft202012Validator(config.schema()).is_valid(as_editors_see_it(text))


def test_the_reference_has_every_setting_that_is_served_once() -> None:
    rows = {row.path: row for row in config.reference()}

    assert len(rows) == len(config.reference())
    assert all(row.doc and row.kind for row in rows.values())
    assert rows["providers.*.timeouts.first_token"].default == "1m (streams)"
    assert rows["server.max_body"].default == "32MiB"
    assert rows["models.*.chain[].target"].default == "required"


def test_the_sample_of_the_tests_has_every_setting() -> None:
    """So that the round trip of the sample covers the whole table."""
    written = set(config_paths(read(TEXT, ENV, [], "f"), ""))

    assert {row.path for row in config.reference()} - written == set()


NAMED = tuple(
    f"{place}."
    for place in (
        *("providers", "models", "keys", "teams", "providers.*.models", "providers.*.options", "providers.*.headers"),
        *("agents", "agents.*.mcp", "agents.*.mcp.*.env", "agents.*.mcp.*.headers", "agents.*.options.prompts"),
    )
)
"""what holds names of the user's own"""


def config_paths(node: Node, prefix: str) -> list[str]:
    """Paths of a file as the reference writes them."""
    named = prefix in NAMED
    found = []
    for key, entry in node.entries.items():
        path = f"{prefix}{'*' if named else key}"
        found.append(path)
        found += config_paths(entry.value, f"{path}.")
        for item in entry.value.items:
            found += config_paths(item, f"{path}[].")
    return found


def test_the_schema_takes_bare_on_and_off_as_either_version_of_yaml_reads_them() -> None:
    for off in ("off", False):
        given = {"providers": {"a": {"thinking": off}}, "models": {"m": {"chain": [{"target": "a/x", "thinking": off}], "resume": off}}}
        Draft202012Validator(config.schema()).validate(given)
    with pytest.raises(ValidationError):
        Draft202012Validator(config.schema()).validate({"providers": {"a": {}}, "models": {"m": {"chain": ["a/x"], "resume": True}}})
