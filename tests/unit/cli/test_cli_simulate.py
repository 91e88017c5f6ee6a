"""`tianzhou simulate`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tianzhou.testing.simulation import run as simulation_run
from tianzhou.testing.simulation.checkers import Promise, Violation
from tianzhou.testing.simulation.history import History

Run = Callable[..., tuple[int, str, str]]


def test_the_scenarios_are_listed(run: Run) -> None:
    code, out, _ = run("simulate", "--list", "-o", "json")
    assert code == 0
    names = [row["scenario"] for row in json.loads(out)]
    assert names == ["standalone", "bit-rot", "master-slave", "two-masters", "dledger", "folders"]


def test_seeds_that_hold_end_with_zero(run: Run) -> None:
    code, out, _ = run("simulate", "--seeds", 2, "--from", 5, "--scenario", "standalone")
    assert code == 0
    assert out.startswith("2 runs, 0 failed, ")


def test_a_seed_runs_again_to_the_same_step(run: Run) -> None:
    _, first, _ = run("simulate", "--scenario", "standalone", "--seed", 8, "-o", "json")
    code, traced, _ = run("simulate", "--scenario", "standalone", "--seed", 8, "--trace")
    assert code == 0
    document = json.loads(first)
    assert f"{document['steps']:,} steps" in traced.splitlines()[-1]
    assert document["digest"] in traced.splitlines()[-1]
    assert any(" acked " in line for line in traced.splitlines())


def test_a_seed_that_fails_says_how_to_see_it_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def always(history: History, _: Promise) -> list[Violation]:
        return [Violation(history.events[20].step, "lost", "a message is gone")]

    monkeypatch.setattr(simulation_run.checkers, "problems", always)
    code, out, err = run("simulate", "--scenario", "standalone", "--seeds", 1)
    assert code == 1
    assert "FAILED standalone seed 0 (" in out
    assert "  lost: a message is gone" in out
    assert "1 run, 1 failed, " in out
    assert "again: tianzhou simulate --scenario standalone --seed 0 --trace" in err
    code, out, _ = run("simulate", "--scenario", "standalone", "--seeds", 1, "-o", "json")
    assert code == 1
    [failed] = json.loads(out)["failed"]
    assert failed["replay"] == "tianzhou simulate --scenario standalone --seed 0 --trace"
    assert failed["problems"][0]["checker"] == "lost"
    assert failed["trace"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--scenario", "island"), "--scenario island: no such scenario; choose from standalone,"),
        (("--trace",), "--trace shows one run: say which by --seed"),
    ],
)
def test_what_cannot_be_run_is_named(run: Run, arguments: tuple[str, ...], text: str) -> None:
    code, _, err = run("simulate", *arguments)
    assert code == 2
    assert text in err
