"""Times in options of commands: `10m` ago, or `2026-01-31T08:00:00`. Pure."""

from __future__ import annotations

import datetime as dt
import re

from tianzhou.errors import ConfigError

_AGO = re.compile(r"([0-9]{1,9})(s|m|h|d)", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, option: str, now_ms: int) -> int:
    """Parse a time. Return milliseconds since the epoch, 0 or more.

    Args:
        text: a duration before now as `30s`, `10m`, `2h` or `3d`, or a time in ISO 8601, by default in the machine's
            zone.
        option: the option with the text, for the error.
        now_ms: the present time, milliseconds since the epoch.

    Raises:
        ConfigError: the text is neither.
    """
    if ago := _AGO.fullmatch(text):
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    try:
        return max(0, int(dt.datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{option} {text}: expected how long ago as 30s, 10m, 2h or 3d, or a time as 2026-01-31T08:00:00"
        ) from None


def span_ms(since: str | None, until: str | None, now_ms: int) -> tuple[int | None, int | None]:
    """Return the times of `--since` and `--until`, None for a missing option.

    Raises:
        ConfigError: a time is malformed, or the first is later than the second.
    """
    begin = None if since is None else moment_ms(since, "--since", now_ms)
    end = None if until is None else moment_ms(until, "--until", now_ms)
    if begin is not None and end is not None and begin > end:
        raise ConfigError(f"--since {since} is after --until {until}; exchange them")
    return begin, end
