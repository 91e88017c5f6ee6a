"""Tests name few private attributes of `src`, and their number only falls.

A use is an attribute `value._name`, an import `from tianzhou… import _name`, or a string "_name" given to `setattr` or
`getattr`, where `src` defines a name `_name` and the same file defines no function of that name. Names behind `self.`,
`cls.` and `super().` and a named tuple's `_replace` do not count.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BY_NAME = frozenset({"setattr", "getattr", "delattr", "object"})
"""Functions whose second argument names an attribute; `patch.object` among them."""
DEFINED = re.compile(r"(?:\bdef |\bclass |\bself\.|\bcls\.|\"|^)(_\w+)", re.MULTILINE)
"""Definitions of private names in a module: functions, classes, variables, attributes and slots."""
MAYBE_USED = re.compile(r"\._[A-Za-z]|[\"']_[A-Za-z]|import .*\b_[A-Za-z]")
"""A text without a match uses no private name, so the test skips its syntax tree, which is slow to parse."""
MAX_USES = 50
"""Maximum number of private names in all tests. Only lower it: use a probe (`tests/*_probe.py`), or extend one."""


def uses(tests: Path = ROOT / "tests", sources: Path = ROOT / "src") -> dict[str, Counter[str]]:
    """Return the private names of `sources` that each file of `tests` uses, and how often, by path below `tests`.

    The probes (`tests/*_probe.py`) do not count, because their purpose is to name private attributes.
    """
    private = {name for path in sources.rglob("*.py") for name in DEFINED.findall(path.read_text()) if is_private(name)}
    found: dict[str, Counter[str]] = {}
    for path in sorted(set(tests.rglob("*.py")) - set(tests.glob("*_probe.py"))):
        text = path.read_text()
        if not MAYBE_USED.search(text):
            continue
        tree = ast.parse(text)
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if names := Counter(name for name in used(tree) if name in private - own):
            found[str(path.relative_to(tests))] = names
    return found


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore; `_` alone and `_replace` of named tuples are public."""
    return name.startswith("_") and not name.startswith("__") and name not in {"_", "_replace"}


def used(tree: ast.Module) -> Iterator[str]:
    """Yield each use of a private name in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                names = []
            case ast.Attribute(attr=name):
                names = [name]
            case ast.ImportFrom(module=str(module), names=aliases) if module.startswith("tianzhou"):
                names = [alias.name for alias in aliases]
            case ast.Call(func=ast.Attribute(attr=function), args=[_, ast.Constant(value=str(name)), *_]):
                names = [name] if function in BY_NAME else []
            case ast.Call(func=ast.Name(id=function), args=[_, ast.Constant(value=str(name)), *_]):
                names = [name] if function in BY_NAME else []
            case _:
                names = []
        yield from (name for name in names if is_private(name))


def test_tests_name_few_private_attributes() -> None:
    found = uses()
    count = sum(names.total() for names in found.values())
    worst = sorted(found, key=lambda path: -found[path].total())[:10]
    assert count <= MAX_USES, f"{count} uses; run python tests/form/suite/test_private_names.py; most in {worst}"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("store._queues.table", ["_queues"]),
        ("self._queues.table", []),
        ("store.queues", []),
        ("named_tuple._replace(a=1)", []),
        ("from tianzhou.store import _queues", ["_queues"]),
        ("from elsewhere import _queues", []),
        ("monkeypatch.setattr(store, '_queues', {})", ["_queues"]),
        ("patch.object(store, '_queues')", ["_queues"]),
        ("store._no_name_of_src", []),
    ],
)
def test_uses_are_found(line: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "store.py").write_text("class Store:\n    def __init__(self): self._queues = {}\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_store.py").write_text(line)
    assert [name for one in uses(tmp_path / "tests", tmp_path / "src").values() for name in one] == names


if __name__ == "__main__":
    all_uses = uses()
    for path, names in sorted(all_uses.items(), key=lambda one: -one[1].total()):
        print(f"{names.total():4} {path}: {', '.join(f'{name} {count}' for name, count in names.most_common())}")
    print(f"{sum(names.total() for names in all_uses.values())} uses in {len(all_uses)} files")
