"""`thinkgate serve` as a process: start, signals, workers, the embedded default."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

SLOW = "providers: {slow: {adapter: openai, base_url: 'mock://?reply=one+two+three+four+five&gap=150ms', api_key: k-0123456789}}\nmodels: {m: slow/m}\n"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def served(*args: str, cwd: Path, wait: bool = True, **env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway process: its base URL and itself. It is ended with SIGKILL if it still runs."""
    port = free_port()
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    command = [sys.executable, "-m", "gateway", "serve", "--port", str(port), *args]
    process = subprocess.Popen(command, cwd=cwd, env=clean | env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        if wait:
            until(lambda: httpx.get(f"{url}/healthz", trust_env=False).status_code == 200, process)
        yield url, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers too: they hold the pipe open
        process.communicate(timeout=10)


def until(condition: object, process: subprocess.Popen[str], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(process.stderr.read() if process.stderr else "it ended")
        with contextlib.suppress(httpx.TransportError):
            if condition():  # type: ignore[operator]
                return
        time.sleep(0.05)
    raise AssertionError("it did not come to that")


def ended(process: subprocess.Popen[str], seconds: float = 15) -> str:
    """The log of a process that ends by itself."""
    _, log = process.communicate(timeout=seconds)
    return log


def test_the_embedded_default_answers_without_key_config_or_network(tmp_path: Path) -> None:
    with served(cwd=tmp_path) as (url, process):
        models = [m["id"] for m in httpx.get(f"{url}/v1/models", trust_env=False).json()["data"]]
        answer = httpx.post(f"{url}/v1/chat/completions", json={**BODY, "model": "auto"}, trust_env=False)
        process.send_signal(signal.SIGTERM)
        log = ended(process)

    assert models[:2] == ["demo", "auto"]
    assert answer.headers["x-thinkgate-provider"] == "demo"
    (curl,) = re.findall(r"^  curl (\S+) -H 'content-type: application/json' -d '(.*)'$", log, re.MULTILINE)
    assert curl == (f"{url}/v1/chat/completions", '{"model":"demo","messages":[{"role":"user","content":"Hello"}]}')
    assert f"OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=none" in log
    assert re.search(r"thinkgate\.request id=\S+ endpoint=chat model=auto status=200 provider=demo", log)
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_a_key_in_the_environment_makes_auto_a_chain_of_that_provider_and_is_never_shown(tmp_path: Path) -> None:
    with served(cwd=tmp_path, DEEPSEEK_API_KEY="deepseek-secret-0123456789", THINKGATE_KEY="client-secret-0123456789") as (url, process):
        refused = httpx.get(f"{url}/v1/models", trust_env=False)
        headers = {"authorization": "Bearer client-secret-0123456789", "x-thinkgate-dry-run": "1"}
        shown = httpx.post(f"{url}/v1/chat/completions", json={**BODY, "model": "auto"}, headers=headers, trust_env=False)
        process.send_signal(signal.SIGTERM)
        log = ended(process)

    assert refused.status_code == 401
    assert [(t["provider"], t["model"]) for t in shown.json()["targets"]] == [("deepseek", "deepseek-v4-pro")]
    assert "secret" not in shown.text + log


def test_port_0_is_told_as_the_port_that_was_taken(tmp_path: Path) -> None:
    with served("--port", "0", cwd=tmp_path, wait=False) as (_, process):
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("Thinkgate is at "))
        url = line.split()[3]
        until(lambda: httpx.get(f"{url}/models", trust_env=False).status_code == 200, process)

    assert not url.endswith(":0/v1")


def test_it_refuses_an_open_address_without_a_key(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gateway", "serve", "--host", "0.0.0.0", "--port", str(free_port())]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False, env={"PATH": os.environ["PATH"]})

    assert done.returncode == 1
    assert "refusing to listen on 0.0.0.0 without a client key" in done.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_lets_running_streams_end(tmp_path: Path, workers: int) -> None:
    (tmp_path / "slow.yaml").write_text(SLOW)
    with (
        served("-c", "slow.yaml", "--workers", str(workers), cwd=tmp_path) as (url, process),
        httpx.stream("POST", f"{url}/v1/chat/completions", json={**BODY, "stream": True}, trust_env=False) as answer,
    ):
        lines = answer.iter_lines()
        first = next(lines)
        process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
        ended(process)

    assert first.startswith("data: {")
    assert rest[-1] == "data: [DONE]"
    assert process.returncode == 0


def test_a_stream_that_outlasts_the_drain_ends_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(SLOW.replace("gap=150ms", "stall_after=1&gap=0") + "server: {drain: 1s}\n")
    with (
        served("-c", "slow.yaml", cwd=tmp_path) as (url, process),
        httpx.stream("POST", f"{url}/v1/chat/completions", json={**BODY, "stream": True}, trust_env=False, timeout=20) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
        ended(process)

    assert '"code":"shutting_down"' in rest[-1]
    assert "data: [DONE]" not in rest


def test_an_agents_responses_stream_that_outlasts_the_drain_ends_under_its_own_id(tmp_path: Path) -> None:
    agent = "agents: {slow: {pattern: simple, model: m}}\nserver: {drain: 1s}\n"
    (tmp_path / "slow.yaml").write_text(SLOW.replace("gap=150ms", "stall_after=1&gap=0") + agent)
    body = {"model": "agent/slow", "input": "hi", "stream": True}
    with (
        served("-c", "slow.yaml", cwd=tmp_path) as (url, process),
        httpx.stream("POST", f"{url}/v1/responses", json=body, trust_env=False, timeout=20) as answer,
    ):
        told: list[dict[str, Any]] = []
        for line in answer.iter_lines():
            told += [json.loads(line[6:])] if line.startswith("data: ") else []
            if told and told[-1]["type"] == "response.output_text.delta" and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        ended(process)

    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    assert told[-1]["response"]["error"]["code"] == "server_error"
    assert len({event["response"]["id"] for event in told if "response" in event}) == 1
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", ["signal", "watched"])
def test_a_changed_config_is_taken_over_and_a_bad_one_is_not(tmp_path: Path, how: str, workers: int) -> None:
    file = tmp_path / "thinkgate.yaml"
    text = "providers: {a: {adapter: openai, base_url: 'mock://?reply=WORD&gap=0', api_key: k-0123456789}}\nmodels: {m: a/m}\n"
    file.write_text(text.replace("WORD", "one"))

    def says(word: str) -> bool:
        """Every worker says it: each request is a connection of its own, and 12 of them reach both."""
        return all(word in httpx.post(f"{url}/v1/chat/completions", json=BODY, trust_env=False).text for _ in range(12))

    def tells() -> bool:
        config = httpx.get(f"{url}/readyz", trust_env=False).json()["config"]
        return config["state"] == "stale" and "at least one provider is needed" in config["error"]

    def changed(word: str) -> None:
        file.write_text(text.replace("WORD", word) if word else "providers: {}\n")
        if how == "signal":
            process.send_signal(signal.SIGHUP)

    options = ["--workers", str(workers), *(["--reload-config"] if how == "watched" else [])]
    with served("-c", str(file), *options, cwd=tmp_path) as (url, process):
        assert says("one")
        changed("two")
        until(lambda: says("two"), process, 30)
        changed("")
        until(lambda: all(tells() for _ in range(12)), process, 30)
        assert says("two")
        changed("three")
        until(lambda: says("three"), process, 30)


def test_a_worker_that_dies_while_the_file_is_wrong_is_replaced_by_one_that_serves_what_was_good(tmp_path: Path) -> None:
    """B117: a bad edit takes no healthy gateway down, not even one whose processes die."""
    file = tmp_path / "thinkgate.yaml"
    text = "providers: {a: {adapter: openai, base_url: 'mock://?reply=WORD&gap=0', api_key: k-0123456789}}\nmodels: {m: a/m}\n"
    file.write_text(text.replace("WORD", "one"))
    with served("-c", str(file), "--workers", "2", cwd=tmp_path) as (url, process):

        def asked() -> tuple[int, str]:
            """Who answers, and what."""
            answer = httpx.post(f"{url}/v1/chat/completions", json=BODY, trust_env=False)
            return answer.status_code, answer.json()["choices"][0]["message"]["content"]

        def processes() -> set[int]:
            found = set()
            for status in Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError):
                    if int(status.read_text().rpartition(")")[2].split()[1]) == process.pid and "spawn_main" in (status.parent / "cmdline").read_text():
                        found.add(int(status.parent.name))
            return found

        file.write_text(text.replace("WORD", "two"))
        process.send_signal(signal.SIGHUP)
        until(lambda: all(asked() == (200, "two") for _ in range(12)), process, 30)
        file.write_text("nonsense: 1\n")
        before = processes()
        assert len(before) == 2
        for pid in before:  # both, one after the other, so that the new ones alone are left
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: len(processes() - {pid}) == 2, process, 30)
        until(lambda: not processes() & before and all(asked() == (200, "two") for _ in range(12)), process, 30)
        assert "nonsense" in httpx.get(f"{url}/readyz", trust_env=False).json()["config"]["error"]


def test_a_link_that_leads_to_another_file_is_a_change_of_the_config(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: the file is a link through a folder that is a link, and that is replaced."""
    text = "providers: {a: {adapter: openai, base_url: 'mock://?reply=WORD&gap=0', api_key: k-0123456789}}\nmodels: {m: a/m}\n"
    for word in ("one", "two"):
        (tmp_path / word).mkdir()
        (tmp_path / word / "thinkgate.yaml").write_text(text.replace("WORD", word))
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "..data").symlink_to("../one")
    (tmp_path / "mount" / "thinkgate.yaml").symlink_to("..data/thinkgate.yaml")
    with served("-c", "mount/thinkgate.yaml", "--reload-config", cwd=tmp_path) as (url, process):

        def says(word: str) -> bool:
            return word in httpx.post(f"{url}/v1/chat/completions", json=BODY, trust_env=False).text

        assert says("one")
        (tmp_path / "mount" / "..new").symlink_to("../two")
        (tmp_path / "mount" / "..new").replace(tmp_path / "mount" / "..data")
        until(lambda: says("two"), process, 30)
