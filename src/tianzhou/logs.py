"""Logging of a process: one line per record, whatever text of peers is in it."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from tianzhou.escaping import escaped

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTINUED = "    "


class OneLineFormatter(logging.Formatter):
    """Formats records so that no text of a peer can forge a line or move a cursor.

    A message is one line. A traceback has several, all of them indented, so that none looks like a record.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """The record's line."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - the standard library's name
        """The traceback, indented."""
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(_CONTINUED + escaped(line) for line in text.split("\n"))


def log_to_stderr(level: int, stream: TextIO | None = None) -> None:
    """Log records of a level and above to a stream.

    Args:
        level: a level of `logging`.
        stream: stderr by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=level, handlers=[handler])
