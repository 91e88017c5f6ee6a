"""Rules for values of messages that no row can have: times of wrong clocks, and bodies that cannot be unpacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.model.timestamps import MAX_BORN_AHEAD_MS

FAIL: Final = "fail"
NULL: Final = "null"
SKIP: Final = "skip"
CORRUPT_BODIES: Final = (FAIL, NULL, SKIP)
"""Values of `corruptBodies`: a compressed body that cannot be unpacked ends the query, is null, or drops its row."""


@dataclass(frozen=True, slots=True)
class RowRules:
    """Options of both sources about single values.

    Attributes:
        max_born_ahead_ms: milliseconds by which the producer's time may be later than the broker's; `bornTimestamp` is
            null for later times.
        corrupt_bodies: FAIL, NULL or SKIP.
    """

    max_born_ahead_ms: int = MAX_BORN_AHEAD_MS
    corrupt_bodies: str = FAIL


DEFAULT_RULES: Final = RowRules()
