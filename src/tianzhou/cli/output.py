"""What commands print: tables for people, JSON for programs, notes on stderr."""

from __future__ import annotations

import datetime as dt
import enum
import json
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from tianzhou.escaping import escaped, escaped_json


class Output(enum.StrEnum):
    """The two forms of every command's output."""

    text = "text"
    json = "json"


OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", help="text for people; json for programs, one document a line on stdout."),
]
NamesrvOption = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrv",
        envvar=["TIANZHOU_NAMESRV", "NAMESRV_ADDR"],
        metavar="HOST:PORT",
        help="Name servers, several joined by ';'.",
    ),
]
DEFAULT_NAMESRV = "127.0.0.1:9876"
TlsOption = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls",
        help="Speak TLS; default: TIANZHOU_TLS_ENABLE. TIANZHOU_TLS_CONFIG_FILE says whom to trust, else all are.",
    ),
]


def print_json(value: Any) -> None:
    """Write one JSON document and a newline to stdout."""
    _write(escaped_json(json.dumps(value, ensure_ascii=False, default=str)))


def print_line(text: str) -> None:
    """Write one line to stdout at once, also when it is a pipe; strangers' words in it cannot make it two."""
    _write(escaped(text, keep="\t"))


def print_text(text: str) -> None:
    """Write a text of several lines to stdout at once."""
    _write(escaped(text, keep="\t\n"))


def _write(text: str) -> None:
    try:
        # What a terminal or file of another encoding cannot show is escaped, not an error.
        sys.stdout.write(text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding) + "\n")
        sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        raise


def print_note(text: str) -> None:
    """Write a note to stderr: for people, never part of the output."""
    sys.stderr.write(escaped(text, keep="\t\n") + "\n")
    sys.stderr.flush()


def output_closed() -> bool:
    """Whether whoever read our stdout has gone away, which a command that waits would not notice otherwise."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], output: Output) -> None:
    """Write rows as a table, or as a JSON array of objects whose keys are the columns.

    Args:
        columns: the names; as JSON keys, spaces become underscores.
        rows: as many values as columns in each.
        output: the form.
    """
    if output is Output.json:
        print_json(objects(columns, rows))
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


def objects(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as objects for JSON; spaces in the columns' names become underscores."""
    keys = [name.replace(" ", "_") for name in columns]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def print_fields(values: Mapping[str, Any], output: Output) -> None:
    """Write one object: `name  value` lines, or a JSON object."""
    if output is Output.json:
        print_json(dict(values))
        return
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        print_line(f"{name.ljust(width)}  {_cell(value)}")


def print_names(names: Sequence[str], output: Output, none: str = "") -> None:
    """Write names: a line each, or a JSON array; for people a note when there are none."""
    if output is Output.json:
        print_json(names)
        return
    for name in names:
        print_line(name)
    if not names and none:
        print_note(none)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.2f}"
    return escaped(str(value), keep="\t")


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).lstrip("-").isdigit()


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def local_time(timestamp_ms: int) -> str | None:
    """A time for people, in the machine's zone, to the second; None for 0 or less."""
    if timestamp_ms <= 0:
        return None
    return _local(timestamp_ms).strftime("%Y-%m-%d %H:%M:%S")


def local_time_ms(timestamp_ms: int) -> str:
    """A time for people, in the machine's zone, to the millisecond."""
    return _local(timestamp_ms).isoformat(" ", "milliseconds")[:23]


def _local(timestamp_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()


def body_text(body: bytes) -> str:
    """A message's body on one line: what is no text, or would move the cursor, is escaped."""
    text = body.decode("utf-8", "backslashreplace")
    return escaped(text, keep="\t")
