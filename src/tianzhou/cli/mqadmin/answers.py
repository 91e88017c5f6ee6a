"""What a sub-command answers: the text of Apache's tools for people, a value for programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tianzhou.errors import TianzhouError
from tianzhou.model.timestamps import local_date


class Answer(NamedTuple):
    """An answer.

    Attributes:
        text: as Apache's tools print it; lines joined by newlines.
        value: what JSON shows instead.
    """

    text: str
    value: Any


def done(text: str, **value: Any) -> Answer:
    """An answer that says what was done."""
    return Answer(text, value)


class Table:
    """A table of Apache's tools.

    Args:
        line: how a line is formatted, as `%-32s  %s`.
        head: the names of the columns, as they are printed, separated by `|`.
        row: how the lines below the head are formatted, when that differs.
    """

    def __init__(self, line: str, head: str, row: str | None = None) -> None:
        self._line, self._row = line, row or line
        self._head = head.split("|")
        self.keys = [_key(name) for name in self._head]

    def answer(self, rows: Iterable[Sequence[Any]], before: str = "", after: str = "") -> Answer:
        """The answer with some rows.

        Args:
            rows: one value per column each.
            before: text above the table.
            after: text below it.
        """
        listed = list(rows)
        text = "\n".join([before] * bool(before) + [self.text(listed)] + [after] * bool(after))
        return Answer(text, self.objects(listed))

    def text(self, rows: Iterable[Sequence[Any]]) -> str:
        """Head and rows."""
        return "\n".join([self._line % tuple(self._head), *(self.row(one) for one in rows)])

    def row(self, row: Sequence[Any]) -> str:
        """One row."""
        return self._row % tuple(map(_cell, row))

    def objects(self, rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
        """The rows as objects, whose keys are the columns."""
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
    """Lines of names and values, the names filled up with blanks."""
    return [f"{name:<{width}}{between}{value}" for name, value in values]


def cut(text: str, length: int) -> str:
    """The end of a long text, as Apache's tables cut names."""
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
    """Nothing is there to be shown; the code is the one with which Apache's tools say so.

    Args:
        code: see wire.md §2.
        text: what is not there.
    """

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(f"CODE: {code}  DESC: {text}")
