"""`tianzhou prove`: its output and refusals. The proof itself is in tests/scenario/test_proof.py."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tianzhou.bench.proof import run as proof_run
from tianzhou.bench.proof.comparison import QueueReading, Reading, compare
from tianzhou.bench.proof.run import ProofOutcome, ProofPlan

Run = Callable[..., tuple[int, str, str]]
MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"


def outcome(*, slave: str, consumed: str = "kmn", acknowledged: str = "kmn") -> ProofOutcome:
    readings = [
        Reading("broker-a", MASTER, {0: QueueReading(0, list("kmn"))}, whole=True),
        Reading("broker-a", SLAVE, {0: QueueReading(0, list(slave))}, whole=True),
    ]
    verdict = compare(dict.fromkeys(acknowledged), readings, {}, Counter(consumed))
    return ProofOutcome(verdict, readings, Counter({"SLAVE_NOT_AVAILABLE": 2}), ["broker-a: a note"], 1.5)


@pytest.fixture
def proving(monkeypatch: pytest.MonkeyPatch) -> Callable[[ProofOutcome], list[ProofPlan]]:
    """Return a function that sets the outcome of the next proof and returns the list of started proofs."""

    def prepare(ended: ProofOutcome) -> list[ProofPlan]:
        asked: list[ProofPlan] = []

        async def prove(proof: ProofPlan, *arguments: Any, **more: Any) -> ProofOutcome:
            asked.append(proof)
            return ended

        monkeypatch.setattr(proof_run, "prove", prove)
        return asked

    return prepare


def test_what_is_proved_ends_with_0_and_says_so_last(run: Run, proving: Any) -> None:
    proving(outcome(slave="kmn"))
    code, out, err = run("prove", "orders")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["broker", "address", "messages", "state"]
    assert lines[2].split() == ["broker-a", SLAVE, "3", "whole"]
    assert lines[-1] == "proven: 3 acknowledged, 3 on a majority, 3 consumed"
    assert "failed 2 times, and never acknowledged: SLAVE_NOT_AVAILABLE" in err
    assert "note: broker-a: a note" in err


def test_what_is_lost_ends_with_1_and_is_named(run: Run, proving: Any) -> None:
    proving(outcome(slave="kX", consumed="km"))
    code, out, _ = run("prove", "orders")
    assert code == 1
    assert f"lost: m: on 1 of 2 replicas ({MASTER})" in out
    assert f"lost: n: on 1 of 2 replicas ({MASTER})" in out
    assert "not consumed: n" in out
    assert f"replicas differ: broker-a:0@1: {MASTER} has m, {SLAVE} has X" in out
    assert "1 behind" in out
    assert out.splitlines()[-1] == "NOT PROVEN: 3 acknowledged, 1 on a majority, 2 consumed"


def test_programs_get_all_of_it(run: Run, proving: Any) -> None:
    proving(outcome(slave="kX", consumed="kk"))
    code, out, err = run("prove", "orders", "-o", "json")
    found = json.loads(out)
    assert (code, err) == (1, "")
    assert (found["proven"], found["acknowledged"], found["on_majority"], found["consumed"]) == (False, 3, 1, 1)
    assert found["differing"] == [{"broker": "broker-a", "queue_id": 0, "offset": 1, "keys": {MASTER: "m", SLAVE: "X"}}]
    assert found["consumed_twice"] == [{"key": "k", "times": 2}]
    assert found["failed_sends"] == {"SLAVE_NOT_AVAILABLE": 2}


def test_repetitions_are_a_failure_for_those_who_say_so(run: Run, proving: Any) -> None:
    proving(outcome(slave="kmn", consumed="kmnn"))
    assert run("prove", "orders")[0] == 0
    assert run("prove", "orders", "--no-duplicates")[0] == 1


def test_many_findings_are_cut_for_people(run: Run, proving: Any) -> None:
    proving(outcome(slave="kmn", acknowledged="abcdefghijklmnopqrstuvwxyz"))
    _, out, _ = run("prove", "orders")
    assert sum(line.startswith("lost: ") for line in out.splitlines()) == 21
    assert "lost: 3 more; -o json has all" in out


def test_a_thousand_are_sent_unless_the_options_say_otherwise(run: Run, proving: Any) -> None:
    asked = proving(outcome(slave="kmn"))
    run("prove", "orders")
    run("prove", "orders", "--seconds", 2)
    run("prove", "orders", "--seconds", 2, "--count", 7)
    assert [(one.load.count, one.load.seconds) for one in asked if one.load] == [(1000, None), (None, 2), (7, 2)]


def test_a_file_of_keys_is_looked_for_and_nothing_sent(run: Run, proving: Any, tmp_path: Path) -> None:
    asked = proving(outcome(slave="kmn"))
    file = tmp_path / "acked"
    file.write_text("k\nm broker-a 0 1\n")
    assert run("prove", "orders", "--acked", file)[0] == 0
    assert asked[0].load is None
    assert [str(place) for place in (asked[0].acknowledged or {}).values()] == ["None", "broker-a:0@1"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--acked", "nowhere"], "--acked nowhere: No such file"),
        (["--acked", "nowhere", "--count", 3], "--acked sends nothing"),
        (["--ledger", "nowhere/file"], "--ledger nowhere/file: No such file"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, options: list[object], words: str) -> None:
    code, _, err = run("prove", "orders", *options)
    assert code == 2
    assert words in err
