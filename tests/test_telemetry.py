"""The writer of request lines."""

from __future__ import annotations

import os
import re

from gateway.telemetry import LineWriter


def test_a_line_looks_like_one_of_the_log() -> None:
    end, into = os.pipe()
    try:
        LineWriter(into)("request=r1 status=200 model=模型 \ud800")
        line = os.read(end, 4096).decode()
    finally:
        os.close(end)
        os.close(into)

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO thinkgate\.request request=r1 status=200 model=模型 \\ud800\n", line)


def test_a_log_that_nobody_reads_any_more_disturbs_no_request() -> None:
    end, into = os.pipe()
    os.close(end)
    try:
        LineWriter(into)("request=r1")
    finally:
        os.close(into)
