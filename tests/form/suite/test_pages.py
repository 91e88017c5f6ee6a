"""Every name that a page imports exists, and so does every command and option on a page."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import typer
from pages import Imported, Line, commands, dotted, fragments, imports

from tianzhou.cli.app import whole_app
from tianzhou.cli.mqadmin.catalogue import find
from tianzhou.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
MADE_UP: Final = frozenset({"topic lst"})
"""Command lines on pages that show an error about a missing command."""
WORD: Final = re.compile(r"[a-z][a-z-]*")


def page_ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def root() -> Any:
    return typer.main.get_command(whole_app())


def test_pages_are_found() -> None:
    assert len(PAGES) > 60
    everything = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
    found = list(fragments(everything))
    assert len({name for one in found for name in imports(one)}) > 40
    assert len({line for one in found for line in commands(one)}) > 150


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("tianzhou topic create orders --quues 4", "tianzhou topic create has no --quues"),
        ("A=b sudo /opt/tianzhou/bin/tianzhou topic crate orders", "tianzhou topic has no command crate"),
        ("cat x | tianzhou prodce orders", "tianzhou has no command prodce"),
        ("tianzhou admin topicLst", "did you mean topicList?"),
        ("tianzhou admin topicList --clustr", "topicList has no --clustr"),
    ],
)
def test_a_command_or_option_that_is_not_there_is_found(line: str, why: str) -> None:
    (found,) = commands(line)
    assert why in problem_of(found)


@pytest.mark.parametrize(
    "line",
    [
        "x=$(python -c 'from tianzhou.spark import java; print(java.home())')",
        "from tianzhou.spark.sessions import java_runtime; java_runtime.house()",
        "import tianzhou.nowhere",
        "from tianzhou import (\n    Message,\n    Mesage,\n)",
    ],
)
def test_a_name_that_is_not_there_is_found(line: str) -> None:
    assert not all(is_there(one) for one in imports(line))


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_every_name_that_a_page_imports_is_there(page: Path) -> None:
    found = list(fragments(page.read_text(encoding="utf-8")))
    wrong = [one for fragment in found for one in imports(fragment) if not is_there(one)]
    assert wrong == []
    assert [name for fragment in found for name in dotted(fragment) if not resolves(name)] == []


def is_there(wanted: Imported) -> bool:
    """Whether a name can be imported and has the attributes that the page uses."""
    try:
        value: Any = import_module(wanted.module)
        if wanted.name:
            value = (
                found
                if (found := getattr(value, wanted.name, None)) is not None
                else import_module(f"{wanted.module}.{wanted.name}")
            )
    except ImportError:
        return False
    return not isinstance(value, ModuleType) or all(hasattr(value, name) for name in wanted.attributes)


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    home, _, last = name.rpartition(".")
    try:
        if find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    try:
        return hasattr(import_module(home), last) or resolves(home)
    except ImportError:
        return bool(home.count(".")) and resolves(home)


@pytest.mark.parametrize("page", PAGES, ids=page_ids)
def test_every_command_and_option_that_a_page_prints_is_there(page: Path) -> None:
    lines = {line for fragment in fragments(page.read_text(encoding="utf-8")) for line in commands(fragment)}
    wrong = {" ".join(line.words): why for line in sorted(lines) if (why := problem_of(line))}
    assert {line: why for line, why in wrong.items() if not line.startswith(tuple(MADE_UP))} == {}


def problem_of(line: Line) -> str:
    """Return the reason why a command line is not one of `tianzhou`; empty when it is."""
    command, words, names = root(), list(line.words), {"-h", "--help"}
    context = typer.Context(command, info_name="tianzhou")
    path = ["tianzhou"]
    while True:
        names |= {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        if not hasattr(command, "get_command"):
            break
        first = next((number for number, word in enumerate(words) if not word.startswith("-")), None)
        if first is None or not WORD.fullmatch(words[first]):
            break
        following = command.get_command(context, words[first])
        if following is None:
            return "" if command.invoke_without_command else f"{' '.join(path)} has no command {words[first]}"
        path.append(words.pop(first))
        context = typer.Context(following, parent=context, info_name=path[-1])
        command = following
    if path[1:] == ["admin"]:
        return problem_of_mqadmin(words)
    assert context.get_help()
    given = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", word)}
    unknown = {
        one for one in given if one not in names and not (len(one) > 2 and one[0] == "-" != one[1] and one[:2] in names)
    }
    return f"{' '.join(path)} has no {', '.join(sorted(unknown))}" if unknown else ""


def problem_of_mqadmin(words: list[str]) -> str:
    """Return the reason why a command line is not one of Apache's tools; empty when it is."""
    if not words or not re.fullmatch(r"[a-z][A-Za-z]*", words[0]):
        return ""
    try:
        command = find(words[0])
    except ConfigError as error:
        return str(error)
    names = {name for one in command.every_option for name in (f"-{one.letter}", f"-{one.name}", f"--{one.name}")}
    given = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[A-Za-z]\w*(=.*)?", word)}
    return f"{command.name} has no {', '.join(sorted(given - names))}" if given - names else ""
