"""A short run of `benchmarks/failover.py`: under any fault, a group of three processes loses no message under load."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from processes import ROOT, environment

BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

from faults.checks import ACKNOWLEDGED, Findings, compare_acknowledged, compare_members  # noqa: E402 - beside the package

KINDS = (
    "leader-killed", "follower-killed", "leader-stopped", "follower-stopped", "leader-cut-off", "leader-one-way",
    "all-killed",
)  # fmt: skip
ROUNDS = 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost(kind: str, tmp_path: Path) -> None:
    journal = tmp_path / "rounds"
    done = subprocess.run(
        [
            sys.executable, str(BENCHMARKS / "failover.py"), "--kinds", kind, "--rounds", str(ROUNDS), "--rate", "5000",
            "--stop", "5", "8", "--folder", str(tmp_path), "--json", str(journal),
        ],
        env=environment(), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *rounds, comparison = map(json.loads, journal.read_text().splitlines())
    assert len(rounds) == comparison["rounds"] == ROUNDS
    assert comparison["acknowledged"] > 1000
    assert {comparison[name] for name in ("lost", "misplaced", "doubled", "missing", "different", "unreadable")} == {0}


def test_what_is_lost_or_elsewhere_is_found(tmp_path: Path) -> None:
    file = tmp_path / "acknowledged"
    file.write_bytes(ACKNOWLEDGED.pack(1.0, 10, 3, 0, 0) + ACKNOWLEDGED.pack(1.1, 13, 2, 1, 0) + b"torn")
    findings = Findings()
    compare_acknowledged(file, [array("Q", [10, 11, 12]), array("Q", [13, 14])], findings)
    assert (findings.acknowledged, findings.clean) == (5, True)
    compare_acknowledged(file, [array("Q", [10, 12]), array("Q", [14, 13])], findings)
    assert findings.lost == [11]
    assert sorted(findings.misplaced) == [12, 13, 14]


def test_members_that_differ_are_found(tmp_path: Path) -> None:
    stores = [tmp_path / f"n{number}" for number in range(3)]
    for number, content in enumerate((b"same\0\0\0", b"same", b"sane\0\0\0")):
        data = stores[number] / f"dledger-n{number}" / "data"
        data.mkdir(parents=True)
        (data / "0").write_bytes(content)
    findings = Findings()
    compare_members(stores, "orders", findings)
    assert findings.different == ["data/0: members 0 and 2 differ at byte 2"]
