"""Times of messages, in milliseconds since the epoch, that a date can stand for.

A producer's clock may say anything that fits into 64 bits. Python's dates end with the year 9999, so a row with a later
time would fail in whatever makes a date of it.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

_MARGIN_MS: Final = 2 * 86_400_000
"""Milliseconds by which Python looks beyond a time to find the time in another zone: zones differ by up to 14 hours,
and Python looks for changes of the clock in the 24 hours around."""
MIN_TIME_MS: Final = -62_135_596_800_000 + _MARGIN_MS
"""The earliest time that is a date in every time zone: the third day of the year 1, UTC."""
MAX_TIME_MS: Final = 253_402_300_799_999 - _MARGIN_MS
"""The latest time that is a date in every time zone: the end of 29 December 9999, UTC."""
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
