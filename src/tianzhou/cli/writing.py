"""Output to stdout and stderr: lines, texts and JSON, with control characters escaped; colours on terminals only."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

from tianzhou.escaping import escaped, escaped_json

note_to: Callable[[str], None] | None = None
"""Receives the notes of a server whose log is JSON, so that each line on stderr is JSON."""


class Tone(enum.Enum):
    """Styles of a line on a terminal, as SGR codes of ECMA-48."""

    heading = "1"
    bad = "31"
    doubtful = "33"


_CLEAR: Final = "\x1b[H\x1b[2J"


def has_colours(stream: TextIO) -> bool:
    """Whether to use colours on a stream: it is a terminal with colours, and `NO_COLOR` is not set."""
    return bool(stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def print_json(value: Any) -> None:
    """Print one JSON document and a line feed on stdout."""
    _write(escaped_json(json.dumps(value, ensure_ascii=False, default=str)))


def print_line(text: str, tone: Tone | None = None) -> None:
    """Print one line on stdout and flush. Line feeds in the text are escaped, so that it remains one line."""
    _write(_toned(escaped(text, keep="\t"), tone, sys.stdout))


def clear_screen() -> bool:
    """Clear the terminal. Return whether stdout is a terminal."""
    if not has_colours(sys.stdout):
        return False
    sys.stdout.write(_CLEAR)
    return True


def print_text(text: str) -> None:
    """Print a text of several lines on stdout and flush."""
    _write(escaped(text, keep="\t\n"))


def print_json_pieces(pieces: Iterable[str]) -> None:
    """Print the pieces of one JSON document, and a line feed, on stdout."""
    _write_pieces(map(escaped_json, pieces))


def print_line_pieces(pieces: Iterable[str]) -> None:
    """Print the pieces of one line on stdout; see `print_line`."""
    _write_pieces(escaped(piece, keep="\t") for piece in pieces)


def _write(text: str) -> None:
    _write_pieces((text,))


def _write_pieces(pieces: Iterable[str]) -> None:
    encoding = sys.stdout.encoding
    try:
        for text in pieces:
            # Escape characters that the encoding of the terminal or file lacks, instead of raising an error.
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        raise


def _toned(text: str, tone: Tone | None, stream: TextIO) -> str:
    return text if tone is None or not has_colours(stream) else f"\x1b[{tone.value}m{text}\x1b[0m"


def print_note(text: str, tone: Tone | None = None) -> None:
    """Print a note on stderr. Notes are for users and never part of the output."""
    if note_to is not None:
        note_to(text)
        return
    sys.stderr.write(_toned(escaped(text, keep="\t\n"), tone, sys.stderr) + "\n")
    sys.stderr.flush()
