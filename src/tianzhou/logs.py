"""Logging of a process: one line per record, with peers' text escaped, as text or as JSON."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from tianzhou.errors import ConfigError
from tianzhou.escaping import escaped, escaped_json
from tianzhou.log_levels import HOUSE, parse_levels

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTINUED = "    "
_log = logging.getLogger(__name__)


class OneLineFormatter(logging.Formatter):
    """A formatter that escapes records, so that no peer's text can forge a line or move a cursor.

    A message is one line. A traceback has several lines, all indented, so that none looks like a record.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """Return the record's line."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - the standard library's name
        """Return the traceback, indented."""
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(_CONTINUED + escaped(line) for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """A formatter that writes a record as one JSON object on one line, for programs that collect logs.

    Its fields: `time` (ISO 8601, milliseconds, with the zone), `level`, `logger`, `message`, `process` (its id),
    `broker` with several broker processes, and `exception` with the traceback, if there is one.

    Args:
        broker: name of the broker of this process; empty leaves the field out.
    """

    def __init__(self, broker: str = "") -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        fields: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if self._broker:
            fields["broker"] = self._broker
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        return escaped_json(json.dumps(fields, ensure_ascii=False))


def log_to_stderr(level: int, stream: TextIO | None = None) -> None:
    """Log records of a level and above to a stream.

    Args:
        level: minimum level, a number of `logging`.
        stream: the stream; None for stderr.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=level, handlers=[handler])


def log_as_json(broker: str = "") -> None:
    """Switch the handlers of this process to JSON.

    Args:
        broker: see `JsonFormatter`.
    """
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter(broker))


def set_levels(levels: Mapping[str, int]) -> None:
    """Set the levels at the start of a process, by name of the logger."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def check_modules(levels: Mapping[str, int], source: str) -> None:
    """Reject levels of modules that do not exist.

    Raises:
        ConfigError: a module does not exist; the text has the first one.
    """
    for name in absent_modules(levels):
        raise ConfigError(f"{source}: there is no module {name}; write its dotted name, as in {HOUSE}.remoting=DEBUG")


def absent_modules(levels: Mapping[str, int]) -> list[str]:
    """Return the names of loggers that are not modules of Tianzhou."""
    house = Path(__file__).parent
    paths = {name: house.joinpath(*name.split(".")[1:]) for name in levels if name}
    return [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").exists())]


class ChangedLevels:
    """Levels that a setting has changed. A logger's level at the start is restored when the setting no longer names it.

    Loggers belong to the process. When a name server and a broker share a process, the last change wins.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def change(self, text: str) -> None:
        """Set the levels in the present value of the setting `logLevels`.

        Args:
            text: see `parse_levels`; missing modules are reported in the log.

        Raises:
            ConfigError: the text is not valid.
        """
        wanted = parse_levels(text)
        for name in self._before.keys() - wanted.keys():
            logging.getLogger(name).setLevel(self._before.pop(name))
        for name, level in wanted.items():
            logger = logging.getLogger(name)
            self._before.setdefault(name, logger.level)
            logger.setLevel(level)
        for name in absent_modules(wanted):
            _log.warning("logLevels: there is no module %s, so its level changes nothing", name)


CHANGED_LEVELS: Final = ChangedLevels()
"""Changed levels of this process."""
