"""What `pip install tianzhou` brings is enough for all that needs no extra: servers, client, admin and commands."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from re import split

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tianzhou"
WITH_EXTRAS = ("spark", "pipelines", "console", "cli/pipelines", "cli/flights", "metrics/otlp.py", "testing/plugin.py")
"""Imported where their extra is wanted only."""


def imported_at_once(tree: ast.AST) -> Iterator[str]:
    """Names of modules that are imported with the module, whatever is installed."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.With | ast.ClassDef | ast.If) and "TYPE_CHECKING" not in ast.unparse(node):
            yield from imported_at_once(node)


def test_modules_outside_of_extras_import_what_comes_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {split(r"[\[<>=!;~ ]", one)[0].lower() for one in project["dependencies"]}
    distributions = packages_distributions()
    missing = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(WITH_EXTRAS):
            continue
        roots = {module.partition(".")[0] for module in imported_at_once(ast.parse(path.read_text(encoding="utf-8")))}
        strangers = roots - set(sys.stdlib_module_names) - {"tianzhou", "__future__"}
        unknown = {root for root in strangers if not core & {one.lower() for one in distributions.get(root, [])}}
        if unknown:
            missing[name] = sorted(unknown)
    assert not missing, missing
