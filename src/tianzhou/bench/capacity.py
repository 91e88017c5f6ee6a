"""The number of brokers, and the disk, network and memory, that a load needs. Pure: figures in, figures out.

The rate of one broker is measured (`tianzhou bench produce`). All other figures follow from the load by the arithmetic
that docs/howto/planning.md writes out.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.errors import ConfigError
from tianzhou.limits import BODY_BYTES

MEASURED_SIZE_BYTES: Final = 1024
"""Size in bytes of the bodies in the measurements of `DEFAULT_RATES`."""
RECORD_BYTES: Final = 91 + 150
"""Bytes of a commit log record without its body: fixed fields (store.md §3.2), 150 bytes of topic and properties."""
ENTRY_BYTES: Final = 48
"""Bytes before each record of a DLedger group (broker.md §19.5)."""
QUEUE_UNIT_BYTES: Final = 20
INDEX_UNIT_BYTES: Final = 20
UNITS_OF_QUEUE_FILE: Final = 300_000
UNITS_OF_INDEX_FILE: Final = 20_000_000
SEGMENT_BYTES: Final = 1_073_741_824
MAPS_ALLOWED: Final = 65_530
"""Default of the kernel's `vm.max_map_count`."""
DISK_FILL: Final = 0.75
"""`diskMaxUsedSpaceRatio`: above it, segments are deleted before they expire."""
MEMORY_OF_LOG: Final = 0.4
"""`accessMessageInMemoryMaxRatio`: the part of all memory in which a broker assumes its newest messages."""
PROCESS_BYTES: Final = 1 << 30
MOST_NODES: Final = 10_000
GIB: Final = 1 << 30
MB: Final = 1_000_000


class Mode(enum.StrEnum):
    """The condition on which a broker acknowledges a message."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"
    GROUP = "GROUP"


SOURCE: Final = "docs/performance.md, 2026-11-22 16:08, 2 cores, 8 connections with 32 sends each"
DEFAULT_RATES: Final[Mapping[Mode, tuple[int, str]]] = {
    Mode.ASYNC_FLUSH: (66_000, f"PUT 8 x 32 of {SOURCE}"),
    Mode.SYNC_FLUSH: (41_000, f"SYNC_FLUSH, PUT 8 x 32 of {SOURCE}"),
    Mode.GROUP: (20_000, f"half of SYNC_FLUSH, PUT 8 x 32 of {SOURCE}; an assumption, not measured"),
}
"""Messages of 1 KiB per second that one broker accepts, and the source of the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load to plan for.

    Args:
        rate: messages a second at the peak.
        size_bytes: average body.
        average_rate: messages a second over the whole retention; 0 for `rate`.
        retention_hours: retention of messages in hours.
        copies: number of brokers that store each message.
        mode: the condition of an acknowledgement.
        node_rate: messages of `size_bytes` a second that one broker accepts; 0 for `DEFAULT_RATES`, by bytes when
            bodies are larger than those of the measurement.
        disk_mb_s: MB per second that a broker's disk can write; 0 for no limit.
        network_mb_s: MB per second that a broker's network can transfer in one direction; 0 for no limit.
        headroom: part of a broker's rate that is left free, from 0 to below 1.
        groups: number of consumer groups that read every message.
        queues: number of queues of all topics on each broker.
        keys: number of keys of a message, including its unique key.
        hot_minutes: maximum lag in minutes of readers that are to be served from memory.

    Raises:
        ConfigError: a value is out of its range.
    """

    rate: float
    size_bytes: int = MEASURED_SIZE_BYTES
    average_rate: float = 0
    retention_hours: float = 72
    copies: int = 3
    mode: Mode = Mode.GROUP
    node_rate: float = 0
    disk_mb_s: float = 0
    network_mb_s: float = 0
    headroom: float = 0.4
    groups: int = 1
    queues: int = 64
    keys: int = 1
    hot_minutes: float = 10

    def __post_init__(self) -> None:
        for name, least, most in (
            ("rate", 1, 1e9),
            ("size_bytes", 1, BODY_BYTES.default),
            ("average_rate", 0, 1e9),
            ("retention_hours", 0.1, 1e6),
            ("copies", 1, 9),
            ("node_rate", 0, 1e9),
            ("disk_mb_s", 0, 1e6),
            ("network_mb_s", 0, 1e6),
            ("groups", 0, 10_000),
            ("queues", 1, 10_000_000),
            ("keys", 0, 1_000),
            ("hot_minutes", 0, 1e6),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise ConfigError(f"{name}={value:g}: expected {least:g} to {most:g}")
        if not 0 <= self.headroom < 1:
            raise ConfigError(f"headroom={self.headroom:g}: expected a part from 0 to below 1, as 0.4 for 40 %")
        if self.average_rate > self.rate:
            raise ConfigError(f"average_rate={self.average_rate:g}: is above the peak, rate={self.rate:g}; swap them")

    @property
    def average(self) -> float:
        """Messages per second over the whole retention."""
        return self.average_rate or self.rate

    @property
    def log_bytes(self) -> int:
        """Size in bytes of a message in the commit log."""
        return self.size_bytes + RECORD_BYTES + (ENTRY_BYTES if self.mode is Mode.GROUP else 0)

    @property
    def stored_bytes(self) -> int:
        """Size in bytes of a message on a broker's disk: log, queue and index."""
        return self.log_bytes + QUEUE_UNIT_BYTES + INDEX_UNIT_BYTES * self.keys


@dataclass(frozen=True, slots=True)
class Figures:
    """The needs of a load. Unless stated otherwise, sizes (bytes) and rates (per second) are of one broker at the peak.

    Attributes:
        node_rate: messages per second that one broker accepts.
        node_rate_source: source of that figure.
        bound_by: the limit that determines the number of sets: `rate`, `disk` or `network`.
        sets: number of masters. Each has its copies on other brokers.
        nodes: number of all brokers.
        messages: number of messages on a broker after the retention.
        log_bytes: size of a broker's commit log.
        disk_bytes: size of a broker's disk that stays below the limit of `diskMaxUsedSpaceRatio`.
        disk_bytes_of_all: size of all copies on all brokers, without that reserve.
        write_bytes_s: bytes per second that a broker's disk writes.
        network_in_bytes_s: bytes per second that a master receives.
        network_out_bytes_s: bytes per second that a master sends to copies and consumers.
        segments: number of commit log files.
        files: number of all files of the store.
        memory_bytes: memory with which readers of `hot_minutes` lag are served from the page cache.
        warnings: sentences for the operator.
    """

    node_rate: float
    node_rate_source: str
    bound_by: str
    sets: int
    nodes: int
    messages: int
    log_bytes: int
    disk_bytes: int
    disk_bytes_of_all: int
    write_bytes_s: int
    network_in_bytes_s: int
    network_out_bytes_s: int
    segments: int
    files: int
    memory_bytes: int
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return all figures for JSON."""
        return {name: getattr(self, name) for name in self.__slots__} | {"warnings": list(self.warnings)}


def plan(load: Load) -> Figures:
    """Return the needs of a load.

    A set is a master and its copies. Every broker of a set writes all messages of the set.

    Raises:
        ConfigError: the load needs more than 10,000 brokers.
    """
    node_rate, source = _node_rate(load)
    free = 1 - load.headroom
    copied_out = (load.copies - 1 + load.groups) * load.log_bytes
    needed = {
        "rate": load.rate / (node_rate * free),
        "disk": load.rate * load.stored_bytes / (load.disk_mb_s * MB * free) if load.disk_mb_s else 0,
        "network": load.rate * max(load.log_bytes, copied_out) / (load.network_mb_s * MB * free)
        if load.network_mb_s
        else 0,
    }
    bound_by = max(needed, key=lambda name: needed[name])
    # Without the tolerance, the rounding error of a division could add a set.
    sets = max(1, math.ceil(needed[bound_by] - 1e-9))
    if sets * load.copies > MOST_NODES:
        raise ConfigError(
            f"rate={load.rate:g}: needs {sets * load.copies} brokers of {node_rate:g} messages/s, and more than "
            f"{MOST_NODES} are not planned; check the figures"
        )
    share = load.rate / sets
    messages = math.ceil(load.average / sets * load.retention_hours * 3600)
    log_bytes = messages * load.log_bytes
    stored = messages * load.stored_bytes
    segments = math.ceil(log_bytes / SEGMENT_BYTES) + 1
    queue_files = math.ceil(messages / UNITS_OF_QUEUE_FILE) + load.queues
    index_files = math.ceil(messages * load.keys / UNITS_OF_INDEX_FILE)
    hot_bytes = share * 60 * load.hot_minutes * load.log_bytes
    figures = Figures(
        node_rate=node_rate,
        node_rate_source=source,
        bound_by=bound_by,
        sets=sets,
        nodes=sets * load.copies,
        messages=messages,
        log_bytes=log_bytes,
        disk_bytes=math.ceil(stored / DISK_FILL),
        disk_bytes_of_all=stored * load.copies * sets,
        write_bytes_s=math.ceil(share * load.stored_bytes),
        network_in_bytes_s=math.ceil(share * load.log_bytes),
        network_out_bytes_s=math.ceil(share * copied_out),
        segments=segments,
        files=segments + queue_files + index_files,
        memory_bytes=math.ceil(hot_bytes / MEMORY_OF_LOG) + PROCESS_BYTES,
        warnings=(),
    )
    return _with_warnings(load, figures)


def _node_rate(load: Load) -> tuple[float, str]:
    if load.node_rate:
        return load.node_rate, "as measured"
    rate, source = DEFAULT_RATES[load.mode]
    # Assume that larger bodies cost the same number of bytes per second. At worst the result is one broker too many.
    return rate * min(1.0, MEASURED_SIZE_BYTES / load.size_bytes), source


def _with_warnings(load: Load, figures: Figures) -> Figures:
    values = {name: getattr(figures, name) for name in Figures.__slots__}
    return Figures(**values | {"warnings": tuple(_warnings(load, figures))})


def _warnings(load: Load, figures: Figures) -> Iterator[str]:
    if not load.node_rate:
        yield (
            f"the rate of a broker is {figures.node_rate_source}; measure yours with `tianzhou bench produce` and give "
            "it with --node-rate or --measured"
        )
    if load.copies == 1:
        yield "one copy: a disk that is lost takes its messages with it; plan for 3"
    if load.mode is Mode.GROUP:
        if load.copies < 3:
            yield f"a group of {load.copies} has no majority when one member is away, and stops; plan for 3"
        elif load.copies % 2 == 0:
            yield f"a group of {load.copies} bears no more failures than one of {load.copies - 1}"
    elif load.copies > 1 and load.mode is Mode.ASYNC_FLUSH:
        yield "ASYNC_FLUSH: a power failure of all copies at once loses what the disks did not have yet"
    if figures.sets == 1:
        yield (
            "one broker takes all messages: while it is away, or a group elects, producers wait"
            if load.mode is Mode.GROUP
            else "one broker takes all messages: while it is away, nobody does"
        )
    else:
        left = load.rate / (figures.sets - 1)
        if left > figures.node_rate:
            yield (
                f"with one of {figures.sets} away, each of the others is to take {left:,.0f} messages/s, and can take "
                f"{figures.node_rate:,.0f}; raise --headroom to {math.ceil(100 / figures.sets)} % or more"
            )
    if figures.files > MAPS_ALLOWED:
        yield (
            f"{figures.files} files of a store may all be mapped, and the kernel's default vm.max_map_count is "
            f"{MAPS_ALLOWED}; raise it to {2 * figures.files}"
        )
    if figures.network_out_bytes_s > 1000 * MB:
        yield (
            f"{figures.network_out_bytes_s / MB:,.0f} MB/s leave each broker, more than 10 Gbit/s carry with ease; "
            "give --network-mb so that it counts"
        )
