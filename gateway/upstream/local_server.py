"""The process in which the local model runs: started by local.py, never imported.

Reads one line of JSON from standard input (`{"model": PATH, "name": TEXT, "key": TEXT, "context": TOKENS}`),
loads the model, answers `{"address": URL}` on one line, and serves until its input ends: so
it goes with the gateway, however that one ends.
"""

from __future__ import annotations

import json
import os
import sys

_ERRORS_ONLY = 1


def main() -> None:
    import xllamacpp

    order = json.loads(sys.stdin.readline())
    settings = xllamacpp.CommonParams()
    settings.model.path = order["model"]
    settings.model_alias = {order["name"]}
    settings.api_keys = [order["key"]]
    settings.n_ctx = order["context"]
    settings.port = 0
    settings.use_jinja = True
    settings.ui = False
    settings.verbosity = _ERRORS_ONLY
    # One thread: with two on shared cores its spin barriers cost more than nine tenths of the speed (measured 2026-11).
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    print(json.dumps({"address": server.listening_address}), flush=True)
    sys.stdin.read()
    os._exit(0)  # the server's own end waits for answers that nobody reads any more


if __name__ == "__main__":
    main()
