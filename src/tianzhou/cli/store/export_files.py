"""Files of exports: their form, and their atomic creation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from tianzhou.errors import ConfigError


class Format(Enum):
    """Forms of an export."""

    jsonl = "jsonl"
    parquet = "parquet"


FormatOption = Annotated[Format | None, typer.Option("--format", help="Default: by the file's name.")]


def format_of(form: Format | None, to: Path | None) -> Format:
    """Return the form of an export.

    Args:
        form: value of `--format`; None to derive it from the file's name.
        to: the file; None for stdout.

    Raises:
        ConfigError: the form is Parquet and the target is stdout.
    """
    chosen = form or (Format.parquet if to is not None and to.suffix == ".parquet" else Format.jsonl)
    if chosen is Format.parquet and to is None:
        raise ConfigError("--format parquet: needs a file; add --to FILE")
    return chosen


@contextmanager
def target(to: Path | None) -> Iterator[BinaryIO]:
    """Yield the file to write. It gets its name when it is complete, and is deleted after an error."""
    if to is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = to.with_name(to.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(to)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def need_pyarrow() -> None:
    """Check that Parquet can be written and read.

    Raises:
        ConfigError: PyArrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        raise ConfigError("Parquet needs PyArrow, which is not installed: pip install 'tianzhou[spark]'") from error
