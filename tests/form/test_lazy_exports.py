"""Packages that import their names late offer the same ones to programs, type checkers and `dir`."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import tianzhou

SOURCE = Path(tianzhou.__file__).parent
PACKAGES = sorted(
    ".".join(("tianzhou", *file.parent.relative_to(SOURCE).parts))
    for file in SOURCE.rglob("__init__.py")
    if "lazy_exports(" in file.read_text(encoding="utf-8")
)


def test_there_are_such_packages() -> None:
    assert {"tianzhou", "tianzhou.client", "tianzhou.store", "tianzhou.testing"} <= set(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_what_is_exported_is_what_type_checkers_see(name: str) -> None:
    package = importlib.import_module(name)
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(package.__all__) == sorted(homes)
    assert [public for public in dir(package) if public != "__version__"] == sorted(homes)
    for public, home in homes.items():
        assert getattr(package, public) is getattr(importlib.import_module(str(home)), public), public
        assert vars(package)[public] is getattr(package, public)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Nobody'"):
        package.Nobody  # noqa: B018
