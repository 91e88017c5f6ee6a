"""The tree follows the house rules that no linter checks."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import tianzhou
from tianzhou.cli.app import whole_app

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LONGEST_FILE = 500
LONGER: dict[str, str] = {
    "sync/admin.py": "written by scripts/facade; the modules it is written from are shorter",
}
"""Files above the limit, and the reasons."""
VAGUE = {"base", "common", "helper", "helpers", "impl", "manager", "misc", "shared", "tools", "util", "utils"}
# Spelled in pieces, so that this file does not match its own search.
MACHINE_PATHS = re.compile("(?<![\\w.}$])/(?:" + "|".join(["home", "Users", "root", "work"]) + r")/\w")
REGISTRIES = re.compile(
    "|".join([r"pypi\.org", "python" + "hosted", r"registry\.npm", r"maven\.org", r"proxy\.golang", "extra-" + "index"])
)
TEXT = {".py", ".md", ".toml", ".txt", ".in", ".cfg", ".ini", ".sh", ".yml", ".yaml", ".xml", ".go", ".java", ".c", ""}


def tracked() -> list[Path]:
    """Return the files under version control; in an unpacked archive, all of its files."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git, or no repository")
    names = [Path(name) for name in listed.split("\0") if name]
    paths = [ROOT / name for name in names if "golden" not in name.parts]
    return [path for path in paths if path.suffix in TEXT and path.is_file()]


def modules() -> list[str]:
    """Return the names of all modules. No package is imported, because each worker collects this file."""
    found, packages = [], [("tianzhou", Path(tianzhou.__path__[0]))]
    for package, folder in packages:
        for info in pkgutil.iter_modules([str(folder)]):
            found.append(f"{package}.{info.name}")
            if info.ispkg:
                packages.append((found[-1], folder / info.name))
    return sorted(found)


@pytest.mark.parametrize("package", sorted({name.split(".")[1] for name in modules()} - {"__main__"}))
def test_every_module_can_be_imported_and_its_public_names_are_there(package: str) -> None:
    if package in ("pipelines", "spark"):
        pytest.importorskip("pyspark")
    for name in ["tianzhou", *modules()]:
        if name.split(".")[1:2] not in ([], [package]):
            continue
        module = importlib.import_module(name)
        names = getattr(module, "__all__", [])
        assert len(set(names)) == len(names), name
        assert [public for public in names if getattr(module, public, None) is None] == [], name


def test_source_files_fit_into_a_head() -> None:
    lengths = {
        str(path.relative_to(ROOT / "src" / "tianzhou")): len(path.read_text(encoding="utf-8").splitlines())
        for path in SOURCES
        if "tianzhou" in path.relative_to(ROOT).parts
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE and name not in LONGER} == {}
    # Files within the limit must be removed from the list.
    assert {name: lengths.get(name) for name in LONGER if lengths.get(name, 0) <= LONGEST_FILE} == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [str(path) for path in SOURCES if path.stem.strip("_") in VAGUE or path.parent.name in VAGUE] == []


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, (*path, name))


COMMANDS = set(commands(typer.main.get_command(whole_app())))


def code_of(text: str) -> Iterator[str]:
    """Yield the code of a Markdown page: spans, fenced and indented lines."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


def pages() -> list[Path]:
    return [
        path
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        if path.name not in {"bad-input.md", "plan.md"} and path.parent.name != "spec"
    ]


STARTS_TASKS = {
    "supervision.py": "has the functions that other modules call",
    "remoting/connection.py": "retrieves the exception in `_finished`; one task for each slow request",
    "testing/simulation/machines.py": "a process that dies drops its tasks",
    "testing/simulation/cluster.py": "the run gathers its faults",
    "testing/simulation/run.py": "the run awaits its tasks",
}
"""Modules that may create asyncio tasks, and the reasons."""


def test_tasks_are_started_by_functions_that_retrieve_their_exceptions() -> None:
    starts = re.compile(
        r"\b(?:asyncio|loop|_loop|get_running_loop\(\))\.(?:create_task|ensure_future|run_coroutine_threadsafe)\("
    )
    found = {
        str(path.relative_to(ROOT / "src" / "tianzhou"))
        for path in (ROOT / "src" / "tianzhou").rglob("*.py")
        if starts.search(path.read_text(encoding="utf-8"))
    }
    assert found - set(STARTS_TASKS) == set(), "call tianzhou.supervision's start_awaited or start_owned"
    assert set(STARTS_TASKS) - found == set(), "take these off the list"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_documentation_exist(page: Path) -> None:
    for code in code_of(page.read_text(encoding="utf-8")):
        for words in re.findall(r"(?<![\w.-])(?<!from )tianzhou ([a-z]+(?: [a-z]+)?)", code):
            first, *rest = words.split()
            assert (first,) in COMMANDS, code
            if any(path[:1] == (first,) and len(path) > 1 for path in COMMANDS) and rest:
                assert (first, rest[0]) in COMMANDS, code


@pytest.mark.parametrize("readme", ["README.md", "README.zh.md"])
def test_the_readmes_commands_can_be_run(readme: str) -> None:
    path = ROOT / readme
    if not path.exists():
        pytest.skip(f"no {readme}")
    text = path.read_text(encoding="utf-8")
    for name in ("run", "test"):
        assert f"./{name}" in text
        assert os.access(ROOT / name, os.X_OK)
    for command in ("serve", "namesrv", "broker", "produce", "consume", "topic", "group", "store", "flights"):
        assert f"`{command}`" in text
        assert (command,) in COMMANDS


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_decisions_are_numbered_without_gaps_and_titled_by_their_number() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [path.name[:4] for path in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    for path in records:
        assert path.read_text(encoding="utf-8").startswith(f"# {path.name[:4]}: "), path.name


def test_no_text_names_a_place_on_somebodys_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATHS.search(line) or REGISTRIES.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("kind", ["run", "dev", "build"])
def test_locks_pin_everything_by_hash_and_name_no_address(kind: str) -> None:
    text = (ROOT / "locks" / f"{kind}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    requirements = re.findall(r"^[a-zA-Z0-9][^\s]*", text, re.MULTILINE)
    assert requirements
    for requirement in requirements:
        assert "==" in requirement, requirement
    assert text.count("--hash=sha256:") >= len(requirements)
