"""Access of tests to the inside of the Spark connector; see `store_probe` for the reason.

Each function imports the modules that need a package of an extra, because runs without that package skip its tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from tianzhou.spark.rows import _rows
from tianzhou.spark.sessions import java_runtime, sessions


def has_compiled_rows() -> bool:
    """Whether the code that builds rows is compiled on this machine."""
    return _rows.fill is not None


def use_pure_rows(patch: pytest.MonkeyPatch) -> None:
    """Make NumPy and Arrow build all rows, without the compiled code."""
    patch.setattr(_rows, "fill", None)


def prepare_processes(
    environ: MutableMapping[str, str], find: Callable[[Mapping[str, str]], java_runtime.Runtime] = java_runtime.find
) -> dict[str, str]:
    """Set the environment that the processes of a session inherit; return the settings of its executors.

    Args:
        environ: the variables to change.
        find: function that returns the Java to use.
    """
    return sessions._prepare_processes(environ, find)


def is_interactive() -> bool:
    """Whether a session treats this process as an interactive shell."""
    return sessions._is_interactive()


def use_packaged_java(patch: pytest.MonkeyPatch, home: Path | None) -> None:
    """Set the home of an installed Java package that the search for Java finds; None for no package."""
    patch.setattr(java_runtime, "_packaged_home", lambda: home)


def writer_options(writer: Any) -> Any:
    """Return the parsed options of a batch or stream writer."""
    return writer._sender.options


def merge_by(patch: pytest.MonkeyPatch, merge: Callable[..., None]) -> Callable[..., None]:
    """Replace the function that does each step of a merge into Delta tables; return the former function.

    Args:
        patch: restores the former function.
        merge: called with the `MergedDelta`, the path of the table or of the table of deleted keys, and the rows.
    """
    from tianzhou.spark.lake.merging import MergedDelta

    former = MergedDelta._merge
    patch.setattr(MergedDelta, "_merge", merge)
    return former


def apply_by(patch: pytest.MonkeyPatch, apply: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replace the function that returns the rules of a merge of changes; return the former function."""
    from tianzhou.spark.lake import merging

    former = merging._apply
    patch.setattr(merging, "_apply", apply)
    return former
