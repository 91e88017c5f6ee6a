"""The range of message times that become dates, and the properties that keep other times as numbers.

A message has two times in milliseconds since the epoch: the producer's and the broker's. The producer's clock may be
wrong, and the field has 64 bits. Python's dates end with the year 9999, so a later time makes the conversion of its
row fail.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

_MARGIN_MS: Final = 2 * 86_400_000
"""Milliseconds that must be free on both sides of a time so that Python can convert it. Zones differ by up to 14 hours
from UTC, and Python also converts the time 24 hours away to find changes of the clock."""
MIN_TIME_MS: Final = -62_135_596_800_000 + _MARGIN_MS
"""The earliest time that is a date in every time zone: the third day of the year 1, UTC."""
MAX_TIME_MS: Final = 253_402_300_799_999 - _MARGIN_MS
"""The latest time that is a date in every time zone: the end of 29 December 9999, UTC."""
MAX_BORN_AHEAD_MS: Final = 86_400_000
"""Maximum ms by which a producer's time may be later than the broker's. A later time comes from a wrong clock."""
BORN_TIMESTAMP_MS: Final = "BORN_TIMESTAMP_MS"
"""Property of a row with the producer's time as a number, where `bornTimestamp` is null."""
STORE_TIMESTAMP_MS: Final = "STORE_TIMESTAMP_MS"
"""Property of a row with the broker's time as a number, where `storeTimestamp` is null."""
RAW_TIMES: Final = frozenset({BORN_TIMESTAMP_MS, STORE_TIMESTAMP_MS})
"""Names of both properties."""


def is_date(timestamp_ms: int) -> bool:
    """Whether a time lies in the years 1 to 9999 of every time zone."""
    return MIN_TIME_MS <= timestamp_ms <= MAX_TIME_MS


def local_date(timestamp_ms: int) -> dt.datetime | None:
    """Return a time in the machine's zone; None outside the years 1 to 9999."""
    return dt.datetime.fromtimestamp(timestamp_ms / 1000).astimezone() if is_date(timestamp_ms) else None


def is_born_date(born_timestamp_ms: int, store_timestamp_ms: int, max_ahead_ms: int = MAX_BORN_AHEAD_MS) -> bool:
    """Whether a producer's time is a date, and not later than the broker's time by more than a bound.

    Args:
        born_timestamp_ms: the producer's time.
        store_timestamp_ms: the broker's time; bounds nothing when it is no date itself.
        max_ahead_ms: the bound.
    """
    if not is_date(born_timestamp_ms):
        return False
    return not is_date(store_timestamp_ms) or born_timestamp_ms - store_timestamp_ms <= max_ahead_ms


def raw_times(born_timestamp_ms: int, store_timestamp_ms: int, max_ahead_ms: int = MAX_BORN_AHEAD_MS) -> dict[str, str]:
    """Return the properties that keep a message's times as numbers where they are null in rows.

    Arguments are those of `is_born_date`.
    """
    result = {}
    if not is_born_date(born_timestamp_ms, store_timestamp_ms, max_ahead_ms):
        result[BORN_TIMESTAMP_MS] = str(born_timestamp_ms)
    if not is_date(store_timestamp_ms):
        result[STORE_TIMESTAMP_MS] = str(store_timestamp_ms)
    return result
