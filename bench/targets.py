"""What is measured: how each gateway is started on 127.0.0.1:9200, in front of the mock on 9101 and its spare on 9102."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".peers"
CLIENT_KEY = "Authorization: Bearer sk-bench-client-0001"
UPSTREAM_KEY = "Authorization: Bearer sk-bench-upstream"


@dataclass(frozen=True, slots=True)
class Target:
    """One gateway. `soak` is the number of requests before the second RSS reading."""

    name: str
    version: str
    command: list[str]
    headers: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    soak: int = 50_000


def thinkgate() -> Target:
    compileall.compile_dir(HERE.parent / "gateway", quiet=1)  # as pip does with what it installs, the peers included
    command = [sys.executable, "-m", "gateway"]
    asked = subprocess.run([*command, "version"], cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=False)
    if asked.returncode:
        raise SystemExit("thinkgate itself does not run; make install first, or give PYTHON")
    return Target("thinkgate", asked.stdout.split()[-1], [*command, "serve", "-c", str(HERE / "thinkgate.yaml")], (CLIENT_KEY,))


def nginx() -> Target | None:
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:{PEERS}/nginx/usr/sbin")
    if binary is None:
        return None
    version = subprocess.run([binary, "-v"], capture_output=True, text=True, check=True).stderr
    return Target("nginx", re.findall(r"[\d.]+", version)[0], [binary, "-e", "stderr", "-p", str(HERE / "results"), "-c", str(HERE / "peers/nginx.conf")])


def portkey() -> Target | None:
    package, node = PEERS / "portkey/node_modules/@portkey-ai/gateway", shutil.which("node")
    if node is None or not package.exists():
        return None
    upstreams = [{"provider": "openai", "api_key": "sk-bench-upstream", "custom_host": f"http://127.0.0.1:{port}/v1"} for port in (9101, 9102)]
    chain = "x-portkey-config: " + json.dumps({"strategy": {"mode": "fallback"}, "targets": upstreams})
    env = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}
    version = json.loads((package / "package.json").read_text())["version"]
    return Target("portkey", version, [node, str(package / "build/start-server.js"), "--port=9200", "--headless"], (chain,), env, soak=20_000)


def litellm() -> Target | None:
    home = PEERS / "litellm"
    if not (home / "installed").exists():
        return None
    # The price map is fetched from the network at every start unless the local one is asked for.
    env = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True"}
    version = re.findall(r"^litellm==([\d.]+)", (HERE / "peers/litellm/requirements.txt").read_text(), re.MULTILINE)[0]
    command = [str(home / "bin/litellm"), "--config", str(HERE / "peers/litellm/config.yaml"), "--host", "127.0.0.1", "--port", "9200", "--num_workers", "1"]
    return Target("litellm", version, command, (CLIENT_KEY,), env, soak=10_000)


TARGETS = {"thinkgate": thinkgate, "nginx": nginx, "portkey": portkey, "litellm": litellm}
