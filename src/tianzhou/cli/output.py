"""What commands print: tables for people, JSON for programs, and errors that say what to do."""

from __future__ import annotations

import datetime as dt
import enum
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer


class Output(enum.StrEnum):
    """The two forms of every command's output."""

    text = "text"
    json = "json"


OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", help="text for people, json for programs (one document on stdout)."),
]
NamesrvOption = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrv",
        envvar=["TIANZHOU_NAMESRV", "NAMESRV_ADDR"],
        help="Name servers, host:port, several joined by ';'.",
    ),
]
DEFAULT_NAMESRV = "127.0.0.1:9876"


def print_json(value: Any) -> None:
    """Write one JSON document and a newline to stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_line(text: str) -> None:
    """Write one line to stdout at once, also when it is a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_note(text: str) -> None:
    """Write one line to stderr: for people, never part of the output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], output: Output) -> None:
    """Write rows as a table, or as a JSON array of objects whose keys are the columns.

    Args:
        columns: the names; as JSON keys, spaces become underscores.
        rows: as many values as columns in each.
        output: the form.
    """
    if output is Output.json:
        keys = [name.replace(" ", "_") for name in columns]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(columns))]
    for line in [list(columns), *cells]:
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        print_line("  ".join(parts).rstrip())


def print_fields(values: Mapping[str, Any], output: Output) -> None:
    """Write one object: `name  value` lines, or a JSON object."""
    if output is Output.json:
        print_json(dict(values))
        return
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        print_line(f"{name.ljust(width)}  {_cell(value)}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).lstrip("-").isdigit()


def local_time(timestamp_ms: int) -> str | None:
    """A time for people, in the machine's zone; None for 0 or less."""
    if timestamp_ms <= 0:
        return None
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
