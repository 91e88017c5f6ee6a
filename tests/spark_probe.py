"""Questions that tests ask about the inside of the Spark connector; see `store_probe` for the reason.

Modules that need a package of an extra are imported where they are asked for: tests without that package are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from tianzhou.spark.rows import _rows
from tianzhou.spark.sessions import java_runtime, sessions


def has_compiled_rows() -> bool:
    """Whether the code that makes rows was compiled here."""
    return _rows.fill is not None


def use_pure_rows(patch: pytest.MonkeyPatch) -> None:
    """Have rows made by NumPy and Arrow alone."""
    patch.setattr(_rows, "fill", None)


def prepare_processes(
    environ: MutableMapping[str, str], find: Callable[[Mapping[str, str]], java_runtime.Runtime] = java_runtime.find
) -> dict[str, str]:
    """Set what the processes of a session inherit; return the settings of its executors.

    Args:
        environ: the variables to change.
        find: returns the Java to use.
    """
    return sessions._prepare_processes(environ, find)


def is_interactive() -> bool:
    """Whether a session takes this process for one in which a user types."""
    return sessions._is_interactive()


def use_packaged_java(patch: pytest.MonkeyPatch, home: Path | None) -> None:
    """Have the search for Java find this home of an installed package; None for no such package."""
    patch.setattr(java_runtime, "_packaged_home", lambda: home)


def writer_options(writer: Any) -> Any:
    """Return the parsed options of a batch or stream writer."""
    return writer._sender.options


def decide_batch(table: Any, writer: str, number: int, moves: dict[str, str]) -> None:
    """Have a directory table decide a batch without carrying the batch out, as when its driver dies in between.

    Args:
        table: the `ParquetDirectory`.
        writer: the query of the batch.
        number: number of the batch.
        moves: where each staged file goes.
    """
    table._decide(writer, number, moves, [])


def decide_by(patch: pytest.MonkeyPatch, decide: Callable[..., None]) -> Callable[..., None]:
    """Have directory tables decide batches by another function; return the former function."""
    from tianzhou.spark.lake.directory import ParquetDirectory

    former = ParquetDirectory._decide
    patch.setattr(ParquetDirectory, "_decide", decide)
    return former


def merge_by(patch: pytest.MonkeyPatch, merge: Callable[..., None]) -> Callable[..., None]:
    """Have each step of a merge into Delta tables done by another function; return the former function.

    Args:
        patch: restores the former function.
        merge: gets the `MergedDelta`, the path of the table or of the table of deleted keys, and the rows to merge.
    """
    from tianzhou.spark.lake.merging import MergedDelta

    former = MergedDelta._merge
    patch.setattr(MergedDelta, "_merge", merge)
    return former


def apply_by(patch: pytest.MonkeyPatch, apply: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Have a merge of changes get its rules from another function; return the former function."""
    from tianzhou.spark.lake import merging

    former = merging._apply
    patch.setattr(merging, "_apply", apply)
    return former
