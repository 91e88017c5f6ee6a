"""Code on pages: imports of the package, and command lines of `tianzhou`. Pure functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

FENCE: Final = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
INDENTED: Final = re.compile(r"^    (?! )(.*)$", re.MULTILINE)
INLINE: Final = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
IMPORT: Final = re.compile(
    r"\bfrom (tianzhou[\w.]*) import (\([^)]*\)|[\w, ]+)|\bimport (tianzhou[\w.]*)(?: as (\w+))?"
)
DOTTED: Final = re.compile(r"tianzhou(?:\.\w+)+")
OPERATORS: Final = frozenset({"|", "||", "&", "&&", ";", "(", ")", "<", ">", ">>", "|&"})
BEFORE: Final = frozenset({"sudo", "exec", "env", "nohup"})
"""Programs that may precede the command."""
PROGRAM: Final = re.compile(r"(?:[\w./-]*/)?tianzhou")
FILE: Final = re.compile(r"\.(?:cnf|conf|css|db|json|log|md|org|properties|py|service|sh|svg|toml|txt|yaml|yml|whl)$")


class Imported(NamedTuple):
    """A name that a page imports, and the attributes of it that the same fragment uses.

    Attributes:
        module: module that it is imported from.
        name: its name there; empty for the module itself.
        attributes: attributes that follow the name and a dot.
    """

    module: str
    name: str
    attributes: frozenset[str]


class Line(NamedTuple):
    """A command line of `tianzhou`: the words after the program's name."""

    words: tuple[str, ...]


def fragments(page: str) -> Iterator[str]:
    """Yield a page's blocks of code, lines that are indented as code, and code within a sentence."""
    rest = page
    for found in FENCE.finditer(page):
        yield re.sub(f"^{found[1]}", "", found[4], flags=re.MULTILINE)
        rest = rest.replace(found[0], "\n")
    yield from INDENTED.findall(rest)
    yield from (found.replace("\n", " ") for found in INLINE.findall(rest))


def imports(fragment: str) -> Iterator[Imported]:
    """Yield the names that a fragment imports from the package."""
    for module, names, alone, alias in IMPORT.findall(fragment):
        for name in re.findall(r"(\w+)(?: as (\w+))?", names):
            used = re.findall(rf"(?<![\w.]){name[1] or name[0]}\.(\w+)", fragment)
            yield Imported(module, name[0], frozenset(used))
        if alone:
            yield Imported(alone, "", frozenset(re.findall(rf"(?<![\w.]){alias}\.(\w+)", fragment) if alias else ()))


def dotted(fragment: str) -> Iterator[str]:
    """Yield a fragment that consists of a dotted name of the package."""
    if DOTTED.fullmatch(fragment) and not FILE.search(fragment):
        yield fragment


def commands(fragment: str) -> Iterator[Line]:
    """Yield the command lines of `tianzhou` in a fragment: at the beginning of lines and after operators of a shell."""
    for line in re.sub(r"\\\n\s*", " ", fragment).splitlines():
        yield from _of_line(line.strip().removeprefix("$ ").removeprefix("# "))


def _of_line(line: str) -> Iterator[Line]:
    lexer = shlex.shlex(line.replace("…", " … "), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:
        return  # a sentence with an apostrophe, or a line of another language
    part: list[str] = []
    for word in [*words, ";"]:
        if word not in OPERATORS:
            part.append(word)
            continue
        while part and (
            ("=" in part[0] and not part[0].startswith("-")) or part[0] in {"sudo", "exec", "env", "nohup"}
        ):
            part.pop(0)
        if part and PROGRAM.fullmatch(part[0]):
            yield Line(tuple(part[1:]))
        elif part[:3] in (["python", "-m", "tianzhou"], ["python3", "-m", "tianzhou"]):
            yield Line(tuple(part[3:]))
        part = []
