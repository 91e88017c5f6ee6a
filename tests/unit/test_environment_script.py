"""The interpreter that `./run` and `./test` choose for their environment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "env.sh"


CHOOSE = 'found=$(find_python) || exit 7; echo "$found"; tell_of_slow_python "$found"'


def chosen(folder: Path, points: dict[str, str], script: str = CHOOSE, **environment: str) -> tuple[int, str, str]:
    """Run the script with fake interpreters that print points; the path has nothing else but the tools that
    bash needs.
    """
    for name, answer in points.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{answer}\n")
        path.chmod(0o755)
    (folder / "tools").mkdir(parents=True)
    for tool in ("cat", "sh"):
        (folder / "tools" / tool).symlink_to(str(shutil.which(tool)))
    path = ":".join(str(folder / part) for part in ("first", "second", "tools"))
    text = f'set -euo pipefail; . "{SCRIPT}"; {script}'
    done = subprocess.run(
        [str(shutil.which("bash")), "-c", text],
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("points", "best"),
    [
        ({"first/python3.11": "echo 6", "second/python3.11": "echo 7"}, "second/python3.11"),  # optimised
        ({"first/python3.11": "echo 5", "first/python3.13": "echo 6"}, "first/python3.13"),  # can compile
        ({"first/python3.11": "exit 127", "first/python3.14": "echo 7"}, "first/python3.14"),
        ({"first/python3.14": "echo 7", "second/python3.11": "echo 7"}, "second/python3.11"),
        ({"first/python3.9": "echo 7", "second/python3": "echo 7"}, "second/python3"),
    ],
)
def test_the_best_interpreter_is_taken(tmp_path: Path, points: dict[str, str], best: str) -> None:
    code, found, said = chosen(tmp_path, points)
    assert (code, found) == (0, str(tmp_path / best))
    assert ("without optimisation" in said) == (points[best] == "echo 6")


def test_without_one_it_says_so(tmp_path: Path) -> None:
    assert chosen(tmp_path, {"first/python3.11": "exit 1"})[0] == 7


def test_another_can_be_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    code, found, _ = chosen(tmp_path, {"first/python3.11": "echo 7", "mine": "echo 6"}, TIANZHOU_PYTHON=str(mine))
    assert (code, found) == (0, str(mine))


def test_newer_interpreters_than_the_environments_are_found_once_each(tmp_path: Path) -> None:
    points = {
        "mine": "echo 11", "first/python3.11": "echo 7", "first/python3.12": "exit 1", "first/python3.13": "echo 5",
        "second/python3.13": "echo 7", "second/python3.14": "echo 7",
    }  # fmt: skip
    code, found, _ = chosen(tmp_path, points, f'newer_pythons "{tmp_path / "mine"}"')
    assert (code, found.splitlines()) == (
        0, [f"3.13 {tmp_path / 'first/python3.13'}", f"3.14 {tmp_path / 'second/python3.14'}"],
    )  # fmt: skip


def test_without_newer_interpreters_none_is_found(tmp_path: Path) -> None:
    points = {"mine": "echo 13", "first/python3.11": "echo 7", "first/python3.13": "echo 7"}
    assert chosen(tmp_path, points, f'newer_pythons "{tmp_path / "mine"}"')[:2] == (0, "")


def test_interpreters_of_pyenv_are_found_whose_versions_are_not_switched_on(tmp_path: Path) -> None:
    installed = "pyenv/versions/3.12.1/bin/python3.12"
    points = {"mine": "echo 11", "first/python3.12": "exit 127", installed: "echo 7", "second/python3.13": "echo 7"}
    newer = f'newer_pythons "{tmp_path / "mine"}"'
    script = f"{newer}; echo and; {newer} pyenv; python_of 3.12"
    code, found, _ = chosen(tmp_path, points, script, PYENV_ROOT=str(tmp_path / "pyenv"))
    in_path = f"3.13 {tmp_path / 'second/python3.13'}"
    assert (code, found.splitlines()) == (
        0, [in_path, "and", f"3.12 {tmp_path / installed}", in_path, str(tmp_path / installed)],
    )  # fmt: skip


@pytest.mark.parametrize("named", ["3.13", "{folder}/first/python3.13"])
def test_an_interpreter_that_is_named_has_an_environment_of_its_own(tmp_path: Path, named: str) -> None:
    points = {"first/python3.13": "echo 3.13"}
    script = f'use_python "{named.format(folder=tmp_path)}"; echo "$VENV $TIANZHOU_PYTHON"'
    assert chosen(tmp_path, points, script)[:2] == (0, f".venv-3.13 {tmp_path / 'first/python3.13'}")
    code, _, said = chosen(tmp_path / "empty", {}, "use_python 3.14")
    assert (code, "there is no python3.14 in the path" in said) == (1, True)
