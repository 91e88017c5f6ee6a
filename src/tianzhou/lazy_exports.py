"""Names of a package that are imported at first use, so that a program loads only the modules that it needs."""

from __future__ import annotations

import sys
from importlib import import_module

# Not typing's constant: importing typing would take most of a command's time before Ctrl-C exits silently.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


def lazy_exports(
    package: str, names: Mapping[str, str], *, present: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package (PEP 562).

    Args:
        package: the package's `__name__`.
        names: exported names, separated by spaces, by the submodule that defines them.
        present: names that the package has already and lists as well.
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
