"""The choice between compiled and pure hot functions, and the warning when the built ones are not used."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tianzhou
from spark_probe import has_compiled_rows
from tianzhou import _hot
from tianzhou._hot import sources

SOURCE = Path(tianzhou.__file__).parents[1]
ASK = "from tianzhou import _hot; print(_hot.MODE, _hot.split.__module__)"
ASK_ROWS = "from tianzhou.spark.rows import _rows; print(_rows.MODE, _rows.fill is None)"


def ask(source: Path, code: str = ASK, **environment: str) -> tuple[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "TIANZHOU_PURE"}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, "PYTHONPATH": str(source), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return run.stdout.strip(), run.stderr


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE / "tianzhou", tmp_path / "tianzhou", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def built() -> bool:
    try:
        compiled = importlib.import_module(sources.MODULE)
    except ImportError:
        return False
    return sources.digest() == compiled.SOURCE


def test_the_mode_is_one_of_two() -> None:
    forced = os.environ.get("TIANZHOU_PURE", "0") not in ("", "0")
    assert ("compiled" if built() and not forced else "pure") == _hot.MODE


def test_the_environment_forces_the_pure_twin() -> None:
    assert ask(SOURCE, TIANZHOU_PURE="1") == ("pure tianzhou._hot.frames", "")
    if built():
        assert ask(SOURCE, TIANZHOU_PURE="0")[0] == "compiled tianzhou._hot._compiled"
        assert ask(SOURCE) == ("compiled tianzhou._hot._compiled", "")


def test_without_the_extension_nothing_is_logged(copied: Path) -> None:
    for extension in (copied / "tianzhou" / "_hot").glob("*.so"):
        extension.unlink()
    assert ask(copied) == ("pure tianzhou._hot.frames", "")


@pytest.mark.skipif(not built(), reason="the compiled twin was not built here")
@pytest.mark.parametrize("name", ["frames.py", "_compiled.pyx", "slots.h"])
def test_an_extension_of_other_sources_is_not_used_and_that_is_logged(copied: Path, name: str) -> None:
    changed = copied / "tianzhou" / "_hot" / name
    changed.write_text(changed.read_text() + "\n")
    mode, words = ask(copied)
    assert mode == "pure tianzhou._hot.frames"
    assert "was built from other sources and is not used; rebuild it with pip install" in words


def test_an_extension_that_cannot_be_loaded_is_not_used_and_that_is_logged(copied: Path) -> None:
    folder = copied / "tianzhou" / "_hot"
    for extension in folder.glob("*.so"):
        extension.unlink()
    (folder / "_compiled.abi3.so").write_bytes(b"no library")
    mode, words = ask(copied)
    assert mode == "pure tianzhou._hot.frames"
    assert "cannot be loaded" in words


# Spark's rows use the same choice.


def test_the_environment_forces_the_other_way_to_rows() -> None:
    assert ask(SOURCE, ASK_ROWS, TIANZHOU_PURE="1") == ("pure True", "")


def test_without_the_extension_of_rows_nothing_is_logged(copied: Path) -> None:
    for extension in (copied / "tianzhou/spark/rows/_rows").glob("*.so"):
        extension.unlink()
    mode, words = ask(copied, ASK_ROWS)
    assert mode == "pure True"
    assert "_rows" not in words


@pytest.mark.skipif(not has_compiled_rows(), reason="rows were not compiled here")
def test_an_extension_of_other_sources_of_rows_is_not_used_and_that_is_logged(copied: Path) -> None:
    changed = copied / "tianzhou/spark/rows/_rows/rows.h"
    changed.write_text(changed.read_text() + "\n")
    mode, words = ask(copied, ASK_ROWS)
    assert mode == "pure True"
    assert "tianzhou.spark.rows._rows._compiled was built from other sources and is not used; rebuild it" in words
