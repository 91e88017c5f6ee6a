"""Offsets of queues and groups: tables, statistics, time spans (wire.md §3.4, §7.10, §9.5, §9.6, §9.8, §9.10)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.model import DataVersion, MessageQueue, SubscriptionData
from tianzhou.records.checksum import Octets
from tianzhou.wire.bodies.beans import (
    INTEGER,
    QUEUE,
    SORTED,
    TEXT,
    Bean,
    MemberKind,
    Wrapper,
    list_of,
    load_object,
    map_of,
    read_integer,
    read_object,
    read_queue,
)
from tianzhou.wire.bodies.heartbeat import SUBSCRIPTION
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.json_dialect import Members, dumps_slices, queue_members

_QUEUE_OFFSETS: Final = map_of(QUEUE, INTEGER)
_OFFSET_ROWS: Final = MemberKind(
    lambda offsets: [queue_members(queue) | {"offset": offset} for queue, offset in offsets.items()],
    _QUEUE_OFFSETS.read,
)


class _OffsetTable(Wrapper[dict[MessageQueue, int]]):
    def loads(self, data: Octets) -> dict[MessageQueue, int]:
        """Decode the offsets per queue in any of the three shapes; raise ProtocolError for another shape."""
        members = load_object(data, self.noun)
        table = members.get("offsetTable") or members.get("messageQueueTable") or {}
        if isinstance(table, list):
            rows = [read_object(row, self.noun) for row in table]
            return {read_queue(row, self.noun): read_integer(row.get("offset"), f"{self.noun}.offset") for row in rows}
        offsets: dict[MessageQueue, int] = _QUEUE_OFFSETS.read(table, self.noun)
        return offsets


OFFSET_TABLE: Final = _OffsetTable("offset table", "offsetTable", _QUEUE_OFFSETS, dict)
"""Offsets per queue (220, 222)."""
OFFSET_LIST: Final = _OffsetTable("offset table", "offsetTable", _OFFSET_ROWS, dict, SORTED)
"""Offsets per queue as the list that C++ clients read (220, wire.md §7.10)."""
CLIENT_OFFSETS: Final = _OffsetTable("offset table", "messageQueueTable", _QUEUE_OFFSETS, dict)
"""Offsets per queue as a client reports its own (221)."""
CORRECTION_OFFSETS: Final = Wrapper[dict[int, int]]("offsets", "correctionOffsets", map_of(INTEGER, INTEGER), dict)
"""Offsets per queue id (308)."""


class _ConsumerStatus(Wrapper[dict[str, dict[MessageQueue, int]]]):
    def dumps(self, value: dict[str, dict[MessageQueue, int]]) -> bytes:
        """Encode the value as a body, with the additional table of Java's class."""
        return self._form.whole({self.member: value, "messageQueueTable": {}})


CONSUMER_STATUS: Final = _ConsumerStatus("consumer status", "consumerTable", map_of(TEXT, _QUEUE_OFFSETS), dict)
"""Offsets per client and queue (223)."""


@dataclass(slots=True)
class ConsumerOffsets:
    """All committed offsets of a broker (43): `topic@group` to queue id to next offset."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = None


@dataclass(slots=True)
class DelayOffsets:
    """Progress of the delay levels (45): level to next offset."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None


CONSUMER_OFFSETS: Final = Bean(
    ConsumerOffsets, offset_table=map_of(TEXT, map_of(INTEGER, INTEGER)), data_version=DATA_VERSION.kind
)


def write_consumer_offsets(
    tables: Mapping[str, Iterable[tuple[str, Mapping[int, int] | int]]], version: DataVersion
) -> Generator[None, None, bytes]:
    """Encode all committed offsets of a broker in slices; the offsets of a key are read when the key is written.

    Args:
        tables: by member name: keys, each with its offsets by queue, or with the offset of its only queue.
        version: version of the table.
    """
    members: dict[str, Any] = {"dataVersion": DATA_VERSION.encode(version)}
    for name, table in tables.items():
        members[name] = Members(
            (key, queues if isinstance(queues, int) else Members(iter(sorted(queues.items())))) for key, queues in table
        )
    return dumps_slices(members)


DELAY_OFFSETS: Final = Bean(DelayOffsets, offset_table=map_of(INTEGER, INTEGER), data_version=DATA_VERSION.kind)


@dataclass(slots=True)
class TopicOffset:
    """Bounds of a queue, and the store time of its last message (0 when the queue is empty)."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class TopicStats:
    """Bounds of a topic's queues on one broker (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


_TOPIC_OFFSET: Final = Bean(TopicOffset)
TOPIC_STATS: Final = Bean(TopicStats, offset_table=map_of(QUEUE, _TOPIC_OFFSET.kind))


@dataclass(slots=True)
class QueueProgress:
    """Progress of a group in a queue; `last_timestamp` is the store time of the last consumed message."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int = 0


@dataclass(slots=True)
class ConsumeStats:
    """Progress of a group in all its queues on one broker (208)."""

    offset_table: dict[MessageQueue, QueueProgress] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(slots=True)
class BrokerConsumeStats:
    """Progress of all groups of a broker (317): each entry of the list is one group and its statistics."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


_PROGRESS: Final = Bean(QueueProgress)
CONSUME_STATS: Final = Bean(ConsumeStats, offset_table=map_of(QUEUE, _PROGRESS.kind))
BROKER_CONSUME_STATS: Final = Bean(
    BrokerConsumeStats, consume_stats_list=list_of(map_of(TEXT, list_of(CONSUME_STATS.kind)))
)


@dataclass(slots=True)
class QueueTimeSpan:
    """Store times of a queue's first and last message, and of the message at a group's offset (303)."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


_TIME_SPAN: Final = Bean(QueueTimeSpan)
TIME_SPANS: Final = Wrapper[list[QueueTimeSpan]]("time spans", "consumeTimeSpanSet", list_of(_TIME_SPAN.kind), list)
"""Time spans of a group's queues. Java's additional derived texts are omitted, because readers ignore them."""


@dataclass(slots=True)
class QueueUnit:
    """One unit of a consume queue, for administrators (321)."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    eval: bool = False
    bit_map: str | None = None
    extend_data_json: str | None = None
    msg: str | None = None


@dataclass(slots=True)
class QueueUnits:
    """Some units of a consume queue and its bounds; `queue_data` is None when it has no units."""

    queue_data: list[QueueUnit] | None = None
    min_queue_index: int = 0
    max_queue_index: int = 0
    filter_data: str | None = None
    subscription_data: SubscriptionData | None = None


_QUEUE_UNIT: Final = Bean(QueueUnit)
QUEUE_UNITS: Final = Bean(QueueUnits, queue_data=list_of(_QUEUE_UNIT.kind), subscription_data=SUBSCRIPTION.kind)
