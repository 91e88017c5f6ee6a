"""Levels of loggers as text, `tianzhou.remoting=DEBUG,INFO`, for `--log-level` and the setting `logLevels`. Pure."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.escaping import shown

KEY: Final = "logLevels"
LEVELS: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
"""Levels by name, with the numbers of the standard library."""
MOST_LEVELS: Final = 32
"""Maximum number of parts in one text. The interpreter never deletes a named logger."""
LONGEST_NAME: Final = 128
ROOT: Final = ""
"""Name of the root logger, which has the level without a module."""
HOUSE: Final = PurePath(__file__).parent.name


def parse_levels(text: str, source: str = KEY) -> dict[str, int]:
    """Parse levels. Each part is `LEVEL`, for all modules, or `MODULE=LEVEL`, for a module and its submodules.

    Args:
        text: parts, separated by commas; the last part for a module wins.
        source: name of the key or option, for errors.

    Returns:
        Numbers of levels by logger name; `ROOT` for a level without a module.

    Raises:
        ConfigError: a part is invalid, or names no level or no module.
    """
    levels: dict[str, int] = {}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MOST_LEVELS:
        raise ConfigError(f"{source}: {len(parts)} levels, at most {MOST_LEVELS} are allowed")
    for part in parts:
        name, equals, level = (piece.strip() for piece in part.rpartition("="))
        if level.upper() not in LEVELS:
            raise ConfigError(
                f"{source}: {shown(level)!r} is no level; write one of {', '.join(LEVELS)}, "
                f"as in {HOUSE}.remoting=DEBUG"
            )
        if equals and not _is_ours(name):
            raise ConfigError(
                f"{source}: {shown(name)!r} is no module of {HOUSE}; "
                f"write its dotted name, as in {HOUSE}.remoting=DEBUG"
            )
        levels[name] = LEVELS[level.upper()]
    return levels


def _is_ours(name: str) -> bool:
    first, *others = name.split(".")
    return len(name) <= LONGEST_NAME and first == HOUSE and all(part.isidentifier() for part in others)
