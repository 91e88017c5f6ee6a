"""A short run of `benchmarks/crowds/hostile_crowd.py`: crowds exceed limits, and a well-behaved client loses
no message.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from processes import ROOT, environment

BENCHMARKS = ROOT / "benchmarks" / "crowds"
sys.path.append(str(BENCHMARKS))

from hostile_cases import CASES  # noqa: E402 - beside the package

SMALL = (
    "requests in flight, KV entries",  # a broker and a name server
    pytest.param("wrong signatures", marks=pytest.mark.slow),
)
MOST_MB = 150
BOUND_MB = 1_000
"""Memory bound of docs/reference/hostile-crowds.md for ten thousand connections above one limit."""
BOUND_OF_LARGE_HEARTBEATS_MB = 1_400
"""The same bound for connections that exceed four limits at once."""


def crowds(cases: str, *options: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "hostile_crowd.py"), "--cases", cases, "-o", "json", *options],
        env=environment(), capture_output=True, text=True, timeout=1_500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("cases", SMALL)
def test_small_crowds_meet_their_limits_and_nothing_acknowledged_is_lost(cases: str) -> None:
    found = crowds(cases, "--connections", "200", "--settle-s", "0.3", "--most-mb", str(MOST_MB))
    assert len(found) == len(cases.split(","))
    for case in found:
        assert (case["lost"], case["errors"], case["up"]) == (0, [], True)
        assert int(str(case["sent"])) > 20
        assert int(str(case["log_lines"])) < 100


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ten_thousand_hostile_connections(name: str) -> None:
    bound_mb = BOUND_OF_LARGE_HEARTBEATS_MB if name == "large heartbeats" else BOUND_MB
    (found,) = crowds(name, "--most-mb", str(bound_mb))
    assert int(str(found["log_lines"])) < 500


def test_a_case_that_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "hostile_crowd.py"), "--cases", "topics, misspelt"],
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no misspelt; choose from" in done.stderr
