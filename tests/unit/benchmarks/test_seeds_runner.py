"""`benchmarks/faults/seeds.py`: the seeds it runs, the lines it writes, and how it resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def ran(seeds: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the seeds that were run; seed 30 fails."""
    found: list[tuple[str, int]] = []

    def runner(simulation: str) -> object:
        def run(seed: int) -> str:
            found.append((simulation, seed))
            return "lost: a message" if seed == 30 else ""

        return run

    monkeypatch.setattr(seeds, "runner", runner)
    return found


Start = Callable[..., int]


@pytest.fixture
def started(seeds: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that runs the program with some words of the command line."""

    def start(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["seeds.py", "--json", str(tmp_path / "seeds.jsonl"), *words])
        return int(seeds.main())

    return start


def test_simulations_take_turns_and_an_earlier_run_goes_on(
    tmp_path: Path, ran: list[tuple[str, int]], started: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "seeds.jsonl"
    assert started("--simulations", "core,folders", "--seeds", "30") == 0
    assert [name for name, _ in ran[::25]][:2] == ["core", "folders"]
    assert sorted(ran) == [(name, seed) for name in ("core", "folders") for seed in range(30)]
    assert capsys.readouterr().out.splitlines()[-1].startswith("folders: 30 seeds, 0 failed, ")
    # The last line is incomplete.
    file.write_text(file.read_text()[:-20])
    ran.clear()
    assert started("--simulations", "core,folders", "--seeds", "30") == 0
    assert sorted(ran) == [("folders", seed) for seed in range(25, 30)]


def test_a_seed_that_fails_is_written_down_and_others_follow(
    tmp_path: Path, ran: list[tuple[str, int]], started: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "seeds.jsonl"
    assert started("--simulations", "folders", "--seeds", "3", "--from", "29") == 1
    assert [seed for _, seed in ran] == [29, 30, 31]
    assert "FAILED folders 30: lost: a message" in capsys.readouterr().out
    [line] = map(json.loads, file.read_text().splitlines())
    assert (line["begin"], line["end"], line["failed"]) == (29, 32, {"30": "lost: a message"})
    # The finding counts in a later run, too.
    assert started("--simulations", "folders", "--seeds", "3", "--from", "29") == 1
