"""The growing ends of log, queues and index, and the records appended to them: the pure classes and their attributes.

The compiled twin has extension types of the same names (`_cursors.pxi`). The store's classes derive from the classes
that `tianzhou._hot` has selected, and the hot functions of both twins work on them.
"""

from __future__ import annotations

from mmap import mmap
from typing import Any

import msgspec

Pending = tuple["QueueCursor", int, int, int, int | bytes, int, int, str | bytes, str]
"""Queue, queue offset, physical offset, size, tags code, store timestamp, transaction bits, unique key, keys.

An item may also describe several records of a batch. Then the numbers are those of the first record. In the place of
the tags code are the queue units of all records. In the place of the unique key are the unique key and keys of each
record, with 0x02 after each of these.
"""


class NewRecord(msgspec.Struct, gc=False):
    """A message to store (store.md §3.2).

    Attributes:
        topic: topic name.
        queue_id: queue within the topic.
        body: bytes as they are stored (compressed or not, by `sys_flag`).
        properties: the property string (store.md §0.3).
        flag: the client's opaque flag.
        sys_flag: store.md §0.4; the address bits 0x10 and 0x20 are ignored, the store sets them itself.
        born_timestamp: the client's clock, ms.
        born_host: the client's address, 4 or 16 bytes.
        born_port: the client's port.
        reconsume_times: number of earlier deliveries.
        prepared_transaction_offset: position of the half message of a committed one (store.md §3.7).
        tags_code: code of the tag for the queue unit (`wire.hashing.tags_code`). In the schedule topic with a
            `DELAY` property the store writes the deliver time there instead (store.md §5.3).
        keys: value of `KEYS`, so that the index need not parse the properties.
        uniq_key: value of `UNIQ_KEY`, for the same reason.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01"
    born_port: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    keys: str = ""
    uniq_key: str = ""


class LogCursor:
    """End of the commit log.

    Attributes:
        appends_crc: whether every record carries a CRC property; otherwise only records that come with room for it.
        base: start of the segment that receives records.
        position: position of the next record in it.
        store_host_field: address and port as stored.
        next_index: in a log of entries (broker.md §19.5), index of the next entry.
        term: in a log of entries, term of new entries.
        end_term: in a log of entries, term of the last entry; -1 without one.
    """

    # _map: the segment. _check: position up to which records need no further room. _overhead: bytes of a record beside
    # topic field, body and properties. _sys_bits: system flags for the length of the store's address.
    __slots__ = (
        "_check", "_map", "_overhead", "_sys_bits", "appends_crc", "base", "end_term", "next_index", "position",
        "store_host_field", "term",
    )  # fmt: skip

    _check: int
    _map: mmap | None
    _overhead: int
    _sys_bits: int
    appends_crc: bool
    base: int
    end_term: int
    next_index: int
    position: int
    store_host_field: bytes
    term: int


class QueueCursor:
    """End of a queue; its attributes are described at `tianzhou.store.queues.consumequeue.ConsumeQueue`.

    Attributes:
        plain: whether the queue is of the ordinary kind, whose units the hot functions write.
    """

    __slots__ = (
        "_map", "_position", "_reserved", "arrived", "delayed", "dirty", "magic", "max_offset", "max_physical",
        "next_offset", "plain", "topic", "topic_field",
    )  # fmt: skip

    _map: mmap | None
    _position: int
    _reserved: int
    arrived: Any
    delayed: bool
    dirty: bool
    magic: int
    max_offset: int
    max_physical: int
    next_offset: int
    plain: bool
    topic: str
    topic_field: bytes


class IndexCursor:
    """End of an index file; its attributes are described at `tianzhou.store.index.indexfile.IndexFile`."""

    __slots__ = (
        "_entries", "_map", "_reserved", "_touched", "begin_offset", "begin_timestamp", "capacity", "count",
        "end_offset", "end_timestamp", "slot_count", "slots",
    )  # fmt: skip

    _entries: int
    _map: mmap
    _reserved: int
    _touched: bytearray
    begin_offset: int
    begin_timestamp: int
    capacity: int
    count: int
    end_offset: int
    end_timestamp: int
    slot_count: int
    slots: int


class SendTarget:
    """A topic that accepts sends without a further check.

    Attributes:
        limit: number of queues that accept sends.
        flags: system flags to add to messages.
        counts: messages of each queue, raised with every message.
        sizes: bytes of the queues' records, raised with every message.
    """

    __slots__ = ("counts", "flags", "limit", "sizes")

    counts: list[int]
    flags: int
    limit: int
    sizes: list[int]
