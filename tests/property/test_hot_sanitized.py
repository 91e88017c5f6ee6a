"""The compiled twins under sanitizers, with invariants checked: no other tool guards their memory accesses
(ADR 0004).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-sanitize=alignment"
SUITES = (
    "tests/property/test_hot_batches.py",
    "tests/property/test_hot_client_sends.py",
    "tests/property/test_hot_deliveries.py",
    "tests/property/test_hot_dispatch.py",
    "tests/property/test_hot_entries.py",
    "tests/property/test_hot_pull_runs.py",
    "tests/property/test_hot_reads.py",
    "tests/property/test_hot_runs.py",
    "tests/property/test_hot_sends.py",
    "tests/property/test_hot_signing.py",
    "tests/property/test_hot_twins.py",
    "tests/property/test_frames.py",
    "tests/property/test_framed_walk.py",
    "tests/property/test_records.py",
    "tests/unit/wire/test_hot_frames.py",
    "tests/unit/store/test_hot_records.py",
    "tests/unit/store/test_store_ready_reads.py",
    "tests/unit/store/queues",
    "tests/unit/broker/messages/test_pull_runs.py",
    "tests/golden_checks/test_wire_frames.py",
)
PYTEST = """
import sys, pytest
from tianzhou import _hot
assert _hot.MODE == "compiled" and "sanitized" in _hot.__file__, (_hot.MODE, _hot.__file__)
assert _hot._twin.DEBUG, "no invariant is checked"
sys.exit(pytest.main(sys.argv[1:]))
"""


def library(name: str) -> str:
    """Return the path of a library of the compiler; empty when it has none."""
    if shutil.which("gcc") is None:
        return ""
    asked = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    found = asked.stdout.strip()
    return found if os.path.isabs(found) else ""


@pytest.mark.slow
def test_sanitizers_find_nothing(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Address errors, and all undefined behaviour except unaligned words, in all tests that use both twins."""
    preloaded = [library("libasan.so"), library("libubsan.so")]
    if not all(preloaded):
        pytest.skip("gcc has no sanitizers here")
    site = tmp_path / "sanitized"
    install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-cache", "--no-deps", "--target", str(site)]
    compiled = os.environ | {"CFLAGS": FLAGS, "LDFLAGS": FLAGS, "TIANZHOU_DEBUG": "1"}
    subprocess.run([*install, "--python", sys.executable, str(ROOT)], env=compiled, check=True, timeout=600)
    # The sources would precede the installed package.
    rooms = [str(site), *(room for room in map(str, pytestconfig.getini("pythonpath")) if Path(room) != ROOT / "src")]
    checked = os.environ | {
        "LD_PRELOAD": " ".join(preloaded),
        "PYTHONPATH": os.pathsep.join(rooms),
        "PYTHONMALLOC": "malloc",  # else overruns of a Python object stay in the arena unnoticed
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={tmp_path / 'addresses'}",  # Python itself leaks at its end
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={tmp_path / 'undefined'}",
    }
    config = ["-p", "no:cacheprovider", "-o", f"pythonpath={' '.join(rooms)}", "-q", "-x"]
    done = subprocess.run(
        [sys.executable, "-c", PYTEST, *config, *(str(ROOT / suite) for suite in SUITES)],
        env=checked,
        cwd=ROOT,
        timeout=3600,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = [file.read_text() for name in ("addresses", "undefined") for file in tmp_path.glob(f"{name}.*")]
    assert done.returncode == 0, "\n".join([*found, done.stdout[-8000:]])
