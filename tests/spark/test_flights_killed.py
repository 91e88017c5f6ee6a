"""The main job with its queries killed in the middle: the proof holds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 900


@pytest.mark.slow
def test_the_proof_holds_when_the_queries_are_killed(tmp_path):
    pytest.importorskip("matplotlib")
    command = ["flights", "--rows", "4000", "--kill", "-o", "json", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "tianzhou", *command],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    told = json.loads(done.stdout)
    assert told["proved"], told["checks"]
    assert len(told["killed_at"]) == 3
    assert max(told["killed_at"]) >= 800
    found = {check["name"]: check["found"] for check in told["checks"]}
    assert found["rows in Parquet"] == 4000
    assert found["late flights in their topic"] == found["distinct row numbers among them"] > 500
