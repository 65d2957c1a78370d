"""README, examples and deploy files do what they say. `THINKGATE_WRITE_DOCS=1` writes the generated tables anew."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from gateway import app, config, failures
from gateway.adapters import HOOKS, Loader, builtin_folder
from gateway.adapters.settings import COMMON_OPTIONS
from gateway.cli import parser
from gateway.upstream.mock import Knobs

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ENV = {"THINKGATE_KEY": "client-key-0123456789", "DEEPSEEK_API_KEY": "deepseek-key-0123456789", "OPENAI_API_KEY": "openai-key-0123456789"}


def block(name: str, lines: Iterable[str]) -> None:
    """The README's generated block must be these lines."""
    text = README.read_text(encoding="utf-8")
    before, start, rest = text.partition(f"<!-- {name} -->\n")
    old, end, after = rest.partition(f"<!-- /{name} -->")
    assert start, f"README.md has no block {name}"
    assert end, f"README.md has no end of block {name}"
    wanted = "\n".join(lines) + "\n"
    if os.environ.get("THINKGATE_WRITE_DOCS"):
        README.write_text(before + start + wanted + end + after, encoding="utf-8")
        return
    assert old == wanted, f"README.md: block {name} is not what the code says; THINKGATE_WRITE_DOCS=1 writes it anew"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") or "&nbsp;"


def code(language: str, marker: str = "") -> list[str]:
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [text for text in blocks if marker in text]


def test_the_table_of_settings_is_the_codes() -> None:
    rows = [f"| `{row.path}` | {cell(row.kind)} | {cell(row.default)} | {cell(row.doc)} |" for row in config.reference()]
    block("settings", ["| setting | kind | default | |", "|---|---|---|---|", *rows])


def test_the_table_of_options_is_the_codes() -> None:
    block("options", ["| option | default | |", "|---|---|---|", *(f"| `{name}` | {shown(o.default)} | {cell(o.doc)} |" for name, o in COMMON_OPTIONS.items())])


def shown(value: object) -> str:
    return {None: "null", True: "true", False: "false", (): "[]"}.get(value, str(value)) if value != {} else "{}"  # type: ignore[call-overload]


def test_every_failure_class_hook_and_mock_knob_is_in_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    for name in {*failures.CLASSES} - {"client_gone"}:
        assert f"`{name}`" in text, name
    for name in HOOKS:
        assert f"`{name}(" in text, name
    for name in Knobs.__dataclass_fields__:
        assert f"`{name}`" in text or name in ("faults", "name"), name


def test_the_chain_of_the_readme_is_a_config_that_can_be_used() -> None:
    (text,) = code("yaml", "# thinkgate.yaml")
    conf = config.parse(text, "README.md", ROOT, ENV)
    app.check(conf)

    assert [t.name for t in conf.models["smart"].chain] == ["deepseek/deepseek-v4-pro", "openai/gpt-5-mini", "house/qwen3-32b"]


def test_the_adapter_of_the_readme_loads_and_runs(tmp_path: Path) -> None:
    (text,) = code("lua", "adapters/house.lua")
    (tmp_path / "house.lua").write_text(text, encoding="utf-8")
    adapter = Loader([tmp_path, builtin_folder()], config.HookBudget()).get("house")

    assert adapter.base_url == "http://127.0.0.1:8000/v1"
    assert list(adapter.hooks) == ["transform_request"]


@pytest.mark.parametrize("file", sorted((ROOT / "deploy").glob("*.yaml")), ids=lambda file: file.name)
def test_the_configs_to_start_from_can_be_used(file: Path) -> None:
    if file.name == "compose.yaml":
        service = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]["thinkgate"]
        mounted = [volume.split(":")[0] for volume in service["volumes"]]
        assert all((file.parent / path).is_file() for path in mounted)
        assert (file.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        return
    conf = config.load(file, ENV)
    app.check(conf)

    assert conf.models


def test_the_replicas_to_start_from_fit_together() -> None:
    """Compose, config and nginx of deploy/replicas: every service that one names the other has, and the config can be used."""
    folder = ROOT / "deploy/replicas"
    services = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"]
    env = {**ENV, "THINKGATE_ADMIN_KEY": "admin-key-0123456789-0123456789", "POSTGRES_PASSWORD": "postgres-0123456789", "VALKEY_PASSWORD": "valkey-0123456789"}
    conf = config.load(folder / "thinkgate.yaml", env)
    app.check(conf)
    asked = re.findall(r"server (\w+):(\d+) ", (folder / "nginx.conf").read_text(encoding="utf-8"))

    assert [(name, int(port)) for name, port in asked] == [(name, conf.server.port) for name in ("one", "two")]
    assert {urlsplit(conf.store).hostname, urlsplit(conf.shared or "").hostname} | {name for name, _ in asked} | {"nginx"} == set(services)
    for name in ("one", "two"):
        replica = services[name]
        assert set(re.findall(r"\$\{(\w+)", (folder / "thinkgate.yaml").read_text(encoding="utf-8"))) == set(replica["environment"])
        args = parser().parse_args(["serve", *replica["command"]])
        assert args.workers == 2
        assert (folder / replica["build"]["context"] / replica["build"]["dockerfile"]).is_file()
        assert int(replica["stop_grace_period"].rstrip("s")) > conf.server.drain
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ()) if volume.startswith("./")]
    assert all((folder / path).is_file() for path in mounted)


def test_the_dockerfile_copies_what_is_there() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    assert re.search(r"^USER 10001$", text, re.MULTILINE)


def test_the_unit_starts_a_command_that_exists() -> None:
    text = (ROOT / "deploy/thinkgate.service").read_text(encoding="utf-8")
    (start,) = re.findall(r"^ExecStart=/opt/thinkgate/bin/thinkgate (.+)$", text, re.MULTILINE)

    args = parser().parse_args(start.split())
    assert args.config == "/etc/thinkgate/thinkgate.yaml"


def test_every_command_line_of_the_readme_can_be_parsed() -> None:
    lines = [line.split("#")[0].strip() for text in code("sh") for line in text.splitlines() if line.startswith("thinkgate ")]
    assert lines
    for line in lines:
        parser().parse_args(shlex.split(line)[1:])
