"""Options of servers' logs: their form and levels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from tianzhou.cli import writing
from tianzhou.log_levels import parse_levels
from tianzhou.logs import check_modules, log_as_json, set_levels


class LogFormat(StrEnum):
    """Forms of the log."""

    text = "text"
    json = "json"


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", envvar="TIANZHOU_LOG_FORMAT", help="text for people; json: an object a line, for programs."
    ),
]
LogLevelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log-level",
        envvar="TIANZHOU_LOG_LEVEL",
        metavar="[MODULE=]LEVEL",
        help="As in INFO, or tianzhou.remoting=DEBUG; may be repeated. While it runs: the setting logLevels.",
    ),
]


@dataclass(frozen=True)
class ServerLogs:
    """The options of logs, for further processes of a command.

    Attributes:
        form: see `LogFormat`.
        levels: texts for `parse_levels`.
    """

    form: str = LogFormat.text.value
    levels: Sequence[str] = ()


def set_up_logs(form: str, levels: Sequence[str] | None, broker: str = "") -> ServerLogs:
    """Configure the logs by the options.

    Args:
        form: form of every line on stderr, including notes of the command; see `LogFormat`.
        levels: see `parse_levels`.
        broker: name of the broker of this process, if a command has several.

    Raises:
        ConfigError: a level or module does not exist.
    """
    if form == LogFormat.json:
        log_as_json(broker)
        writing.note_to = _log_note
    wanted = parse_levels(",".join(levels or ()), "--log-level")
    check_modules(wanted, "--log-level")
    set_levels(wanted)
    return ServerLogs(str(form), tuple(levels or ()))


def _log_note(text: str) -> None:
    level = logging.WARNING if text.startswith("warning: ") else logging.INFO
    logger = logging.getLogger(__name__)
    # Notes are logged at any level.
    record = logger.makeRecord(__name__, level, __file__, 0, text.removeprefix("warning: "), (), None)
    for handler in logging.getLogger().handlers:
        handler.handle(record)
