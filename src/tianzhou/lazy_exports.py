"""Names of a package that are imported when they are first used, so that a program pays only for what it needs."""

from __future__ import annotations

import sys
from importlib import import_module

# Not typing's: importing that would be most of what a command does before Ctrl-C ends it quietly.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


def lazy_exports(
    package: str, names: Mapping[str, str], *, present: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package (PEP 562).

    Args:
        package: its `__name__`.
        names: what it exports, separated by spaces, by the module below it that has it.
        present: what it has from the beginning and shows as well.
    """
    homes = {name: f"{package}.{module}" for module, exported in names.items() for name in exported.split()}
    shown = sorted([*homes, *present])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: list(shown)
