"""The ends that grow, and what is appended to them: the pure classes, and what their attributes are.

The compiled twin has extension types of the same names (`_cursors.pxi`). The store's classes derive from those that
`tianzhou._hot` has chosen, and the hot functions of both twins work on them.
"""

from __future__ import annotations

from mmap import mmap
from typing import Any

import msgspec

Pending = tuple["QueueCursor", int, int, int, int | bytes, int, int, str | bytes, str]
"""Queue, queue offset, physical offset, size, tags code, store timestamp, transaction bits, unique key, keys.

The same of a few records of a batch together: the numbers are those of the first, and instead of the tags code there
are the queue units of all, instead of the unique key each one's unique key and keys, with 0x02 behind each of these.
"""


class NewRecord(msgspec.Struct, gc=False):
    """A message to be stored (store.md §3.2).

    Attributes:
        topic: topic name.
        queue_id: queue within the topic.
        body: bytes as they are to be stored (compressed or not, by `sys_flag`).
        properties: the property string (store.md §0.3).
        flag: the client's opaque flag.
        sys_flag: store.md §0.4; the address bits 0x10 and 0x20 are ignored, the store sets them itself.
        born_timestamp: the client's clock, ms.
        born_host: the client's address, 4 or 16 bytes.
        born_port: the client's port.
        reconsume_times: deliveries before this one.
        prepared_transaction_offset: position of the half message of a committed one (store.md §3.7).
        tags_code: code of the tag for the queue unit (`wire.hashing.tags_code`). In the schedule topic with a
            `DELAY` property the store puts the deliver time there, whatever this is (store.md §5.3).
        keys: value of `KEYS`, so that the index need not parse the properties.
        uniq_key: value of `UNIQ_KEY`, likewise.
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
        appends_crc: every record carries a CRC property; otherwise those that come with room for it.
        base: start of the segment that is written to.
        position: where in it the next record goes.
        store_host_field: address and port as stored.
        next_index: in a log of entries (broker.md §19.5), of the next entry.
        term: likewise, that puts get.
        end_term: likewise, of the last entry; -1 without one.
    """

    # _map: the segment. _check: up to where records may end before someone has to look. _overhead: bytes of a record
    # beside topic field, body and properties. _sys_bits: what the length of the store's address makes of system flags.
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
        plain: the queue is of the ordinary kind, whose units the hot functions write.
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
    """A topic that sends are stored in without a further look.

    Attributes:
        limit: how many queues may be sent to.
        flags: what is added to the system flags of messages.
        counts: messages of each queue, raised with every one.
        sizes: bytes of their records, likewise.
    """

    __slots__ = ("counts", "flags", "limit", "sizes")

    counts: list[int]
    flags: int
    limit: int
    sizes: list[int]
