"""The smoke test of an installed package: it ends by itself, and names the part that failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "smoke"


def smoke(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--without-spark", *options]
    environ = {**os.environ, **environment}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)


def test_its_time_is_limited_and_the_part_that_runs_is_named(tmp_path: Path) -> None:
    slow = tmp_path / "tianzhou"
    slow.mkdir()
    (slow / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    done = smoke("--limit", "0.3", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "not ended within 0.3 s; part import runs" in done.stderr
    assert str(slow / "__init__.py") in done.stderr  # the waiting module


def test_the_part_that_failed_is_named_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "tianzhou.py").write_text("")
    done = smoke(PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "part import failed after 0 s: ModuleNotFoundError: No module named 'tianzhou.testing'" in done.stderr
