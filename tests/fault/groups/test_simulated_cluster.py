"""Simulated clusters from seeds: all guarantees hold under every fault, and a seed has the same run everywhere.

Repeat one seed, up to the same step: `tianzhou simulate --scenario NAME --seed N --trace`.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tianzhou.errors import ConfigError
from tianzhou.testing.simulation.loop import SimulationLoop
from tianzhou.testing.simulation.run import run
from tianzhou.testing.simulation.scenarios import SCENARIOS

SOURCES = Path(__file__).resolve().parents[3] / "src"
CHUNK = 5
"""Number of seeds of one test: few enough for two workers to share them evenly."""
SHARES = {"standalone": 10, "bit-rot": 5, "master-slave": 10, "two-masters": 10, "dledger": 5, "folders": 5}
SLOW_CHUNK = 100
SLOW_SHARES = {
    "standalone": 2_000, "bit-rot": 1_000, "master-slave": 3_000, "two-masters": 2_000, "dledger": 2_000,
    "folders": 2_000,
}  # fmt: skip


def chunks(shares: dict[str, int], size: int) -> list[tuple[str, int, int]]:
    return [(name, begin, begin + size) for name, count in shares.items() for begin in range(0, count, size)]


def failures(scenario: str, begin: int, end: int) -> list[str]:
    verdicts = [run(scenario, seed) for seed in range(begin, end)]
    return [f"{one.replay}: {one.problems[0]}" for one in verdicts if one.failed]


@pytest.mark.parametrize(("scenario", "begin", "end"), chunks(SHARES, CHUNK))
def test_promises_hold(scenario: str, begin: int, end: int) -> None:
    assert failures(scenario, begin, end) == []


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "begin", "end"), chunks(SLOW_SHARES, SLOW_CHUNK))
def test_promises_hold_for_many(scenario: str, begin: int, end: int) -> None:
    assert failures(scenario, begin, end) == []


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SHARES)
def test_a_seed_does_the_same_again(scenario: str) -> None:
    first, again = run(scenario, 3), run(scenario, 3, trace=True)
    assert (again.digest, again.steps, again.virtual_s) == (first.digest, first.steps, first.virtual_s)
    assert first.counts["messages"] > 50
    assert run(scenario, 4).digest != first.digest


@pytest.mark.parametrize(
    "scenario", ["dledger", *(pytest.param(name, marks=pytest.mark.slow) for name in SHARES if name != "dledger")]
)
def test_a_seed_leaves_nothing_in_memory(scenario: str) -> None:
    """One process runs ten thousand of them."""
    run(scenario, 5)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is SimulationLoop]


@pytest.fixture(scope="module")
def digests() -> list[str]:
    """Return the digest of each scenario's run in this process from one seed."""
    return [run(name, 7).digest for name in SHARES]


@pytest.mark.parametrize("hash_seed", ["0", pytest.param("12345", marks=pytest.mark.slow)])
def test_a_seed_does_the_same_in_another_process(hash_seed: str, digests: list[str]) -> None:
    names = list(SHARES)
    code = f"from tianzhou.testing.simulation.run import run\nfor name in {names!r}: print(run(name, 7).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONHASHSEED": hash_seed, "TZ": "Asia/Shanghai"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.split() == digests


def test_a_seed_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.testing.simulation.run.MEMORY", tmp_path)
    descriptors = len(os.listdir("/proc/self/fd"))
    run("master-slave", 5)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_scenario_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="no such scenario; choose from standalone, bit-rot, "):
        run("island", 1)


def test_all_scenarios_that_can_be_run_are_tested() -> None:
    assert SCENARIOS.keys() == SHARES.keys() == SLOW_SHARES.keys()
