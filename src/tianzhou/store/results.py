"""Arguments and results of the store's operations (store.md §4.3, §14.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tianzhou._hot import ReadyStretch
from tianzhou._hot.cursors import NewRecord as NewRecord
from tianzhou.records.checksum import Octets
from tianzhou.records.codec import record_edges

if TYPE_CHECKING:
    from tianzhou.store.queues.extension import ExtensionUnit

MAX_READ_BYTES: Final = 128 << 20
"""Maximum bytes that one read returns."""


class PutStatus(Enum):
    """Outcome of a put; RocketMQ's names (store.md §4.3), mapped to codes by the broker (broker.md §7.3)."""

    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()
    FLUSH_SLAVE_TIMEOUT = auto()
    SLAVE_NOT_AVAILABLE = auto()
    SERVICE_NOT_AVAILABLE = auto()
    CREATE_MAPPED_FILE_FAILED = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    OS_PAGE_CACHE_BUSY = auto()
    UNKNOWN_ERROR = auto()
    IN_SYNC_REPLICAS_NOT_ENOUGH = auto()
    PUT_TO_REMOTE_BROKER_FAIL = auto()
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = auto()
    WHEEL_TIMER_FLOW_CONTROL = auto()
    WHEEL_TIMER_MSG_ILLEGAL = auto()
    WHEEL_TIMER_NOT_ENABLE = auto()


class GetStatus(Enum):
    """Outcome of a read; names are RocketMQ's (store.md §14.1)."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()


class PutResult(msgspec.Struct, gc=False):
    """Answer to a put. Offsets are of the first record of a batch; -1 when nothing was stored.

    Attributes:
        status: outcome of the put.
        physical_offset: position in the commit log.
        queue_offset: number in the queue.
        store_timestamp: ms, the store's clock.
        end_offset: position after the last stored byte; `flushed` must reach it.
        physical_offsets: one per record of a batch, else empty.
        remark: for a refused put, the exceeded limit, its value and the remedy.
        limit: name of that limit, if it is one of `tianzhou.limits`.
    """

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    end_offset: int = -1
    physical_offsets: tuple[int, ...] = ()
    remark: str = ""
    limit: str = ""


class RecordBatch(msgspec.Struct):
    """Several messages of one queue, stored contiguously in one segment (store.md §16.1).

    Attributes:
        common: the fields that the messages share. Its body, flag and tags are not used. Its properties are appended to
            those of each message.
        members: the messages in wire format (wire.md §4.5), or flag, body and property string of each.
    """

    common: NewRecord
    members: bytes | memoryview | Sequence[tuple[int, Octets, Octets]]


class AppendPlan(NamedTuple):
    """The decisions of the caller of an append about its records.

    Attributes:
        bounded: whether `maxMessageSize` bounds their bodies.
    """

    bounded: bool = True


OF_CLIENTS: Final = AppendPlan()
"""Plan of messages that clients send."""
OF_BROKER: Final = AppendPlan(bounded=False)
"""Plan of records that the broker makes from stored records, as the limit may have been lowered since."""


class ReadRequest(msgspec.Struct):
    """A range of a queue, a filter and limits of one read (store.md §14.1).

    Attributes:
        topic: topic.
        queue_id: queue.
        offset: first queue offset wanted.
        max_messages: maximum messages; exceeded in a BatchCQ queue when the first record alone holds more.
        tag_codes: only records with one of these tags codes, and inner batches, as only their messages have tags; None
            for all.
        accept: checks a record that matches the tags; false skips it, None ends the read before it.
        accept_unit: checks a record's extension unit, if it has one, before the record is read; without `tag_codes`
            only.
        max_bytes: maximum bytes; exceeded when the first record alone is longer.
        goes_on: whether the same request is repeated with other offsets, so that it notes `ready`.
        ready: the stretch of the queue that the last read of this request found in memory; None without one.
    """

    topic: str
    queue_id: int
    offset: int
    max_messages: int
    tag_codes: frozenset[int] | None = None
    accept: Callable[[memoryview], bool | None] | None = None
    accept_unit: Callable[[ExtensionUnit], bool] | None = None
    max_bytes: int = MAX_READ_BYTES
    goes_on: bool = False
    ready: ReadyStretch | None = None


class GetResult(msgspec.Struct):
    """Answer to a read of one queue.

    Attributes:
        status: outcome of the read.
        next_offset: offset of the next read.
        min_offset: smallest offset of the queue (0 when it is unknown).
        max_offset: next offset of the queue (0 when it is unknown).
        records: whole records, contiguous.
        count: number of messages in `records`.
        suggest_slave: whether the records have left the memory of this machine (store.md §14.1).
    """

    status: GetStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: bytes = b""
    count: int = 0
    suggest_slave: bool = False

    @property
    def parts(self) -> list[memoryview]:
        """The records as separate views; store.md §3.2."""
        view = memoryview(self.records)
        return [view[start:end] for start, end in pairwise(record_edges(self.records))]


class QueryResult(msgspec.Struct):
    """Answer to a look-up by key (store.md §8.6).

    Attributes:
        parts: whole records in log order. Only hashes were compared, so records with other keys may be among them.
        physical_offsets: log offsets of the records.
        index_last_update_timestamp: store time of the newest indexed record, ms; 0 when no entry was found.
        index_last_update_phyoffset: log offset of that record.
    """

    parts: list[memoryview]
    physical_offsets: list[int]
    index_last_update_timestamp: int = 0
    index_last_update_phyoffset: int = 0
