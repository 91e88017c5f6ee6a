"""The log of a process: one line a record, whatever strangers wrote into the texts that are logged."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from tianzhou.escaping import escaped

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTINUED = "    "


class OneLineFormatter(logging.Formatter):
    """Formats records so that no text of a stranger can forge a line or move a cursor.

    A message is one line. A traceback has several, all of them indented, so that none looks like a record.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """The line of the record itself."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - the standard library's name
        """The traceback behind it."""
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(_CONTINUED + escaped(line) for line in text.split("\n"))


def log_to_stderr(level: int, stream: TextIO | None = None) -> None:
    """Have everything that is logged from a level on written to a stream.

    Args:
        level: as `logging` has it.
        stream: where it goes; stderr by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=level, handlers=[handler])
