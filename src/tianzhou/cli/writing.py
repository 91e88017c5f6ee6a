"""Writing to stdout and stderr: lines, texts and JSON, with strangers' words escaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from tianzhou.escaping import escaped, escaped_json

note_to: Callable[[str], None] | None = None
"""Takes the notes of a server whose log is JSON, so that each line on stderr is."""


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
    if note_to is not None:
        note_to(text)
        return
    sys.stderr.write(escaped(text, keep="\t\n") + "\n")
    sys.stderr.flush()
