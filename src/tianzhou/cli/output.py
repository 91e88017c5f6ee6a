"""Output of commands: tables for users, JSON for programs, notes on stderr."""

from __future__ import annotations

import enum
import re
import select
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat, zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand

from tianzhou.cli.writing import Tone as Tone
from tianzhou.cli.writing import clear_screen
from tianzhou.cli.writing import print_json as print_json
from tianzhou.cli.writing import print_json_pieces as print_json_pieces
from tianzhou.cli.writing import print_line as print_line
from tianzhou.cli.writing import print_line_pieces as print_line_pieces
from tianzhou.cli.writing import print_note as print_note
from tianzhou.cli.writing import print_text as print_text
from tianzhou.escaping import escaped

if TYPE_CHECKING:
    import datetime as dt

T = TypeVar("T")
WATCH_EVERY_S: Final = 2.0
"""Seconds between two refreshes if `--watch` has no number."""


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


WatchOption = Annotated[
    float,
    typer.Option(
        "--watch",
        metavar="[SECONDS]",
        help="Show it again so often, 2 s unless given, until Ctrl-C.",
        show_default=False,
        min=0,
        max=86_400,
    ),
]
"""0 for a single output. Only for commands whose class is `WatchingCommand`."""
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)


class WatchingCommand(TyperCommand):
    """A command whose `--watch` may have no number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments as click does, after a missing number is inserted."""
        return super().parse_args(ctx, with_seconds(args))


def with_seconds(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, with the seconds inserted after a `--watch` without a number."""
    options = words[: words.index("--")] if "--" in words else words
    found: list[str] = []
    for word, following in zip_longest(options, options[1:], fillvalue=""):
        found.append(word)
        if word == "--watch" and not _SECONDS.fullmatch(following):
            found.append(str(WATCH_EVERY_S))
    return [*found, *words[len(options) :]]


async def watched(look: Callable[[], Awaitable[T]], every_s: float, output: Output) -> T:
    """Query and print once, or repeatedly until the reader of stdout ends. Return the last result of `look`.

    Args:
        look: queries and prints.
        every_s: seconds between two calls; 0 for a single one.
        output: form of the output. A terminal shows only the newest result; other outputs get one after another.
    """
    import asyncio  # This import takes longer than all others of this module, and `--help` does not need it.

    if every_s and output is Output.text:
        clear_screen()
    while True:
        result = await look()
        if not every_s or output_closed():
            return result
        await asyncio.sleep(every_s)
        if output is Output.text and not clear_screen():
            print_line("")


def output_closed() -> bool:
    """Whether the reader of stdout has ended. A waiting command would not notice it otherwise."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def print_rows(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], output: Output, tones: Iterable[Tone | None] = ()
) -> None:
    """Print rows as a table, or as a JSON array of objects whose keys are the columns.

    Args:
        columns: names of the columns. In JSON keys, spaces become underscores.
        rows: rows with one value per column.
        output: form of the output.
        tones: colours of the rows on a terminal. Missing ones mean none.
    """
    if output is Output.json:
        print_json(objects(columns, rows))
        return
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(columns))]
    for line, tone in zip([list(columns), *cells], chain([Tone.heading], tones, repeat(None)), strict=False):
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        print_line("  ".join(parts).rstrip(), tone)


def objects(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows as objects for JSON. Spaces in the columns' names become underscores."""
    keys = [name.replace(" ", "_") for name in columns]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def print_fields(values: Mapping[str, Any], output: Output) -> None:
    """Print one object: `name  value` lines, or a JSON object."""
    if output is Output.json:
        print_json(dict(values))
        return
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        print_line(f"{name.ljust(width)}  {_cell(value)}")


def print_names(names: Sequence[str], output: Output, none: str = "") -> None:
    """Print names: one per line, or a JSON array. In text form, print a note if there are none."""
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
    """Return a count with its noun: `1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _local_date(timestamp_ms: int) -> dt.datetime | None:
    from tianzhou.model.timestamps import local_date  # `--help` prints no time, and the import takes milliseconds.

    return local_date(timestamp_ms)


def local_time(timestamp_ms: int) -> str | None:
    """Return a readable time in the machine's zone, to the second; None for 0 or less."""
    if timestamp_ms <= 0:
        return None
    at = _local_date(timestamp_ms)
    return _no_date(timestamp_ms) if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def local_time_ms(timestamp_ms: int) -> str:
    """Return a readable time in the machine's zone, to the millisecond."""
    at = _local_date(timestamp_ms)
    return _no_date(timestamp_ms) if at is None else at.isoformat(" ", "milliseconds")[:23]


def _no_date(timestamp_ms: int) -> str:
    return f"{timestamp_ms} ms"


def body_text(body: bytes) -> str:
    """Return a message's body on one line. Bytes that are not text, and control characters, are escaped."""
    text = body.decode("utf-8", "backslashreplace")
    return escaped(text, keep="\t")
