"""Uses of private names of `src` in the tests, found in their syntax trees.

A use is an attribute `value._name`, an import `from tianzhou… import _name`, or a string "_name" given to `setattr` or
`getattr`, where `src` defines a name `_name` and the same file defines no function of that name. Names behind `self.`,
`cls.` and `super().` and a named tuple's `_replace` do not count.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
BY_NAME = frozenset({"setattr", "getattr", "delattr", "object"})
"""Functions whose second argument names an attribute; `patch.object` among them."""


def uses(tests: Path = ROOT / "tests", sources: Path = ROOT / "src") -> dict[str, Counter[str]]:
    """Return the private names of `sources` that each file of `tests` uses, and how often, by path below `tests`.

    The probes (`tests/*_probe.py`) are left out: naming private attributes is their purpose.
    """
    private = {name for path in sources.rglob("*.py") for name in defined(ast.parse(path.read_text()))}
    found: dict[str, Counter[str]] = {}
    for path in sorted(set(tests.rglob("*.py")) - set(tests.glob("*_probe.py"))):
        tree = ast.parse(path.read_text())
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if names := Counter(name for name in used(tree) if name in private - own):
            found[str(path.relative_to(tests))] = names
    return found


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore; `_` alone and `_replace` of named tuples are public."""
    return name.startswith("_") and not name.startswith("__") and name not in {"_", "_replace"}


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a module defines: functions, classes, variables, attributes of `self`, slots."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Name(id=name, ctx=ast.Store()):
                names = [name]
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names = [name]
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                names = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
            case _:
                names = []
        yield from (name for name in names if isinstance(name, str) and is_private(name))


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


if __name__ == "__main__":
    all_uses = uses()
    for path, names in sorted(all_uses.items(), key=lambda one: -one[1].total()):
        print(f"{names.total():4} {path}: {', '.join(f'{name} {count}' for name, count in names.most_common())}")
    print(f"{sum(names.total() for names in all_uses.values())} uses in {len(all_uses)} files")
