"""Logging of a process: one line per record, whatever text of peers is in it, for people or as JSON."""

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


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line, for programs that collect logs.

    Its fields: `time` (ISO 8601, milliseconds, with the zone), `level`, `logger`, `message`, `process` (its id), with
    several broker processes `broker`, and `exception` with the traceback where there is one.

    Args:
        broker: name of the broker of this process; empty leaves the field out.
    """

    def __init__(self, broker: str = "") -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """The record's line."""
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
        level: a level of `logging`.
        stream: stderr by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=level, handlers=[handler])


def log_as_json(broker: str = "") -> None:
    """Have the handlers of this process write JSON from now on.

    Args:
        broker: see `JsonFormatter`.
    """
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter(broker))


def set_levels(levels: Mapping[str, int]) -> None:
    """Set the levels that a process starts with, by the names of loggers."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def check_modules(levels: Mapping[str, int], source: str) -> None:
    """Refuse levels of modules that there are not.

    Raises:
        ConfigError: the first of them.
    """
    for name in absent_modules(levels):
        raise ConfigError(f"{source}: there is no module {name}; write its dotted name, as in {HOUSE}.remoting=DEBUG")


def absent_modules(levels: Mapping[str, int]) -> list[str]:
    """Names of loggers that are none of Tianzhou's modules."""
    house = Path(__file__).parent
    paths = {name: house.joinpath(*name.split(".")[1:]) for name in levels if name}
    return [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").exists())]


class ChangedLevels:
    """Levels that a setting has put in the place of those of the start, which come back when it names them no more.

    Loggers belong to the process: of a name server and a broker in one, who is changed last has the word.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def change(self, text: str) -> None:
        """Set the levels that the setting `logLevels` names now.

        Args:
            text: see `parse_levels`; its modules that there are not are named in the log.

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
"""Of this process."""
