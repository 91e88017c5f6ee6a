"""Small bodies of texts and numbers: key-value tables (28, 219), broker statistics (315), wire.md §8.6, §9.9."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tianzhou.wire.bodies.beans import TEXT, Bean, Wrapper, map_of

KV_TABLE: Final = Wrapper[dict[str, str]]("table", "table", map_of(TEXT, TEXT), dict)
"""Names and texts (28, 219, reply of 103)."""


@dataclass(slots=True)
class StatsSample:
    """Sum, rate per second, and average per call of a statistics item in a period."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStats:
    """A statistics item over a minute, an hour and a day (315)."""

    stats_minute: StatsSample = field(default_factory=StatsSample)
    stats_hour: StatsSample = field(default_factory=StatsSample)
    stats_day: StatsSample = field(default_factory=StatsSample)


_SAMPLE: Final = Bean(StatsSample)
BROKER_STATS: Final = Bean(BrokerStats, stats_minute=_SAMPLE.kind, stats_hour=_SAMPLE.kind, stats_day=_SAMPLE.kind)
