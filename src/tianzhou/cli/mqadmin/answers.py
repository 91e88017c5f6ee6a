"""Results of sub-commands: text in the form of Apache's tools, and a value for JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tianzhou.errors import TianzhouError
from tianzhou.model.timestamps import local_date


class Answer(NamedTuple):
    """A result.

    Attributes:
        text: text in the form of Apache's tools; lines joined by line feeds.
        value: value for JSON.
    """

    text: str
    value: Any


def done(text: str, **value: Any) -> Answer:
    """Return the result of a change."""
    return Answer(text, value)


class Table:
    """A table of Apache's tools.

    Args:
        line: format of a line, as `%-32s  %s`.
        head: names of the columns, separated by `|`.
        row: format of the lines below the head; None for `line`.
    """

    def __init__(self, line: str, head: str, row: str | None = None) -> None:
        self._line, self._row = line, row or line
        self._head = head.split("|")
        self.keys = [_key(name) for name in self._head]

    def answer(self, rows: Iterable[Sequence[Any]], before: str = "", after: str = "") -> Answer:
        """Return a result with rows.

        Args:
            rows: rows with one value per column.
            before: text above the table.
            after: text below the table.
        """
        listed = list(rows)
        text = "\n".join([before] * bool(before) + [self.text(listed)] + [after] * bool(after))
        return Answer(text, self.objects(listed))

    def text(self, rows: Iterable[Sequence[Any]]) -> str:
        """Return head and rows as text."""
        return "\n".join([self._line % tuple(self._head), *(self.row(one) for one in rows)])

    def row(self, row: Sequence[Any]) -> str:
        """Return a row as text."""
        return self._row % tuple(map(_cell, row))

    def objects(self, rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
        """Return the rows as objects with the columns as keys."""
        return [dict(zip(self.keys, row, strict=True)) for row in rows]


def _key(name: str) -> str:
    words = re.sub(r"\(.*\)", "", name.lstrip("#")).strip()
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[ /]+", "_", words).lower()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value


def pairs(values: Iterable[tuple[str, Any]], width: int, between: str) -> list[str]:
    """Return lines of names and values. The names are padded with blanks."""
    return [f"{name:<{width}}{between}{value}" for name, value in values]


def cut(text: str, length: int) -> str:
    """Return the end of a long text, as Apache's tools shorten names."""
    return text[-length:]


def moment(timestamp_ms: int, *, milliseconds: bool = False) -> str:
    """Return a time in the machine's zone, as `2026-11-25 21:43:28` or with `,422` appended.

    A time outside the years 1 to 9999 becomes its number of milliseconds.
    """
    at = local_date(timestamp_ms)
    if at is None:
        return str(timestamp_ms)
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text},{timestamp_ms % 1000:03d}" if milliseconds else text


class NotFoundError(TianzhouError):
    """The requested object does not exist. The code is the one of Apache's tools.

    Args:
        code: see wire.md §2.
        text: description of the missing object.
    """

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(f"CODE: {code}  DESC: {text}")
