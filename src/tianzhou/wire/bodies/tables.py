"""Small bodies of text and numbers: key-value tables (28, 219), broker statistics (315), wire.md §8.6, §9.9."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tianzhou.wire.bodies.beans import DOUBLE, INTEGER, TEXT, Bean, load_member, map_of
from tianzhou.wire.hashing import Octets
from tianzhou.wire.json_dialect import Members, dumps, dumps_slices


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """Names and texts (28, 219, reply of 103)."""
    return dumps({"table": dict(table)}, sort_keys=False)


def write_kv_table(table: Mapping[str, str]) -> Generator[None, None, bytes]:
    """As `encode_kv_table`, in slices; the table must not change meanwhile."""
    return dumps_slices({"table": Members(iter(table.items()))})


def decode_kv_table(data: Octets) -> dict[str, str]:
    """Names and texts; raises ProtocolError."""
    return load_member(data, "table", "table", map_of(TEXT, TEXT)) or {}


@dataclass(slots=True)
class StatsSample:
    """Sum, per second, and average per call of a statistics item over a while."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStats:
    """A statistics item over a minute, an hour and a day (315)."""

    stats_minute: StatsSample = field(default_factory=StatsSample)
    stats_hour: StatsSample = field(default_factory=StatsSample)
    stats_day: StatsSample = field(default_factory=StatsSample)


_SAMPLE: Final = Bean(StatsSample, sum=INTEGER, tps=DOUBLE, avgpt=DOUBLE)
_STATS: Final = Bean(BrokerStats, stats_minute=_SAMPLE.kind, stats_hour=_SAMPLE.kind, stats_day=_SAMPLE.kind)


def encode_broker_stats(stats: BrokerStats) -> bytes:
    """A statistics item."""
    return _STATS.dumps(stats)


def decode_broker_stats(data: Octets) -> BrokerStats:
    """A statistics item; raises ProtocolError."""
    return _STATS.loads(data)
