"""Times of messages, in milliseconds since the epoch, that a date can stand for.

A producer's clock may say anything that fits into 64 bits. Python's dates end with the year 9999, so a row with a later
time would fail in whatever makes a date of it.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

_DAY_MS: Final = 86_400_000
MIN_TIME_MS: Final = -62_135_596_800_000 + _DAY_MS
"""The second day of the year 1, UTC: earlier times are before the year 1 in some time zone."""
MAX_TIME_MS: Final = 253_402_300_799_999 - _DAY_MS
"""The last but one day of the year 9999, UTC: later times are after the year 9999 in some time zone."""
BORN_TIMESTAMP_MS: Final = "BORN_TIMESTAMP_MS"
"""Property of a row that has the producer's time as a number, where no date can stand for it."""
STORE_TIMESTAMP_MS: Final = "STORE_TIMESTAMP_MS"
"""Property of a row that has the broker's time as a number, where no date can stand for it."""
RAW_TIMES: Final = frozenset({BORN_TIMESTAMP_MS, STORE_TIMESTAMP_MS})


def is_date(timestamp_ms: int) -> bool:
    """Whether a time lies in the years 1 to 9999 of every time zone."""
    return MIN_TIME_MS <= timestamp_ms <= MAX_TIME_MS


def local_date(timestamp_ms: int) -> dt.datetime | None:
    """Return a time in the machine's zone; None when no date can stand for the time."""
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone() if is_date(timestamp_ms) else None


def raw_times(born_timestamp_ms: int, store_timestamp_ms: int) -> dict[str, str]:
    """Return the properties that hold those of a message's two times that no date can stand for."""
    times = {BORN_TIMESTAMP_MS: born_timestamp_ms, STORE_TIMESTAMP_MS: store_timestamp_ms}
    return {name: str(at_ms) for name, at_ms in times.items() if not is_date(at_ms)}
