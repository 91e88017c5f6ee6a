"""Records into a mapped segment and out of it: the pure twin of the compiled functions (store.md §3.2)."""

from __future__ import annotations

import struct
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tianzhou._hot.cursors import IndexCursor, LogCursor, NewRecord, Pending, QueueCursor
from tianzhou.records.checksum import full_crc32
from tianzhou.records.codec import crc_property_fits
from tianzhou.records.layout import (
    HOST_BITS,
    INNER_BATCH,
    LENGTH,
    MAGICS,
    NUMBER,
    OVERHEAD,
    PLACE,
    PREPARED,
    TRANSACTION_BITS,
    body_size_at,
    fields_at,
    head_format,
)

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence


UNIT: Final = struct.Struct(">qiq")
"""A unit of a consume queue: commit-log offset, record size, tags code (store.md §5.1)."""
EXTENSION_ADDRESS: Final = -(1 << 31) - 1
"""Tags codes up to here are addresses in extension files, by which nobody can filter here (store.md §5.5)."""
HOLE: Final = 0x7FFFFFFF7FFFFFFF
"""Tags code of a unit that keeps the place of a lost record (`tianzhou.store.log.holes`)."""
BLOCK_BITS: Final = 20
GRAIN_BITS: Final = 6
"""Bits of a log offset inside a block of `Proof.checked`, and inside what one of its bits is for."""
_BLANK_SIZE: Final = 0x7FFFFFFF
_PROVED: Final = fields_at("body_crc", "queue_id", "queue_offset", "sys_flag")

# A layout compiled for the lengths of body, topic and properties writes a whole record in one call. Producers
# send few shapes; beyond the limit the pieces are written one by one.
_SHAPES: Final[dict[tuple[int, int, int], struct.Struct]] = {}
_MAX_SHAPES: Final = 2048
_MAX_SHAPED_BODY: Final = 16_384
_HEAD_V4: Final = head_format(whole_store_address=True)
_HEADS: Final = {
    (born, store): struct.Struct(head_format(born, store, whole_store_address=True))
    for born in (4, 16) for store in (4, 16)
}  # fmt: skip
# Inner batches, halves and what was rolled back: they count for several messages, or for none.
_NOT_COUNTED: Final = PREPARED | INNER_BATCH

Result = Any
"""The store's answer to a put: status, place in the log, queue offset, time, end in the log, as its first fields."""


def put_record(
    target: mmap,
    position: int,
    size: int,
    physical_offset: int,
    magic: int,
    topic_field: bytes,
    queue_offset: int,
    sys_flag: int,
    store_timestamp: int,
    store_host_field: bytes,
    record: NewRecord,
) -> None:
    """Write one record at `position` of a mapped segment.

    Args:
        target: the segment.
        position: where the record begins in it.
        size: of the whole record.
        physical_offset: field 7 of store.md §3.2.
        magic: signed magic number of the record version.
        topic_field: length (1 or 2 bytes by version) and topic.
        queue_offset: field 6.
        sys_flag: field 8, with the address bits set to fit the hosts.
        store_timestamp: field 11.
        store_host_field: address and port of field 12, 8 or 20 bytes.
        record: all other fields.
    """
    body = record.body
    properties = record.properties
    born_host = record.born_host
    body_length = len(body)
    properties_length = len(properties)
    if len(born_host) == 4 and len(store_host_field) == 8:
        shape = (body_length, len(topic_field), properties_length)
        layout = _SHAPES.get(shape)
        if layout is None and len(_SHAPES) < _MAX_SHAPES and body_length <= _MAX_SHAPED_BODY:
            layout = _SHAPES[shape] = struct.Struct(f"{_HEAD_V4}{body_length}s{shape[1]}sh{properties_length}s")
        if layout is not None and type(body) is bytes:
            layout.pack_into(
                target,
                position,
                size,
                magic,
                full_crc32(body) & 0x7FFFFFFF,
                record.queue_id,
                record.flag,
                queue_offset,
                physical_offset,
                sys_flag,
                record.born_timestamp,
                born_host,
                record.born_port,
                store_timestamp,
                store_host_field,
                record.reconsume_times,
                record.prepared_transaction_offset,
                body_length,
                body,
                topic_field,
                properties_length,
                properties,
            )
            return
    head = _HEADS[len(born_host), len(store_host_field) - 4]
    head.pack_into(
        target,
        position,
        size,
        magic,
        full_crc32(body) & 0x7FFFFFFF,
        record.queue_id,
        record.flag,
        queue_offset,
        physical_offset,
        sys_flag,
        record.born_timestamp,
        born_host,
        record.born_port,
        store_timestamp,
        store_host_field,
        record.reconsume_times,
        record.prepared_transaction_offset,
        body_length,
    )
    start = position + head.size
    end = start + body_length
    target[start:end] = body
    target[end : position + size] = b"".join((topic_field, LENGTH.pack(properties_length), properties))


def put_plain(
    log: LogCursor, queue: QueueCursor, record: NewRecord, stored: int, pending: deque[Pending], done: Result
) -> Result | None:
    """Store a plain message: write its record where the log ends, and add what dispatch has to know.

    Plain is a message of a queue that counts it, with an IPv4 sender and room for it in what is prepared of the
    segment, that is stored as it came.

    Args:
        log: where the log ends; moved.
        queue: the message's queue, whose next offset it gets.
        record: the message.
        stored: the store's time, ms.
        pending: gets what is to be dispatched.
        done: the store's answer to a put that went well, to be copied.

    Returns:
        That answer, with places and time; None when the message is not plain, and nothing was done.
    """
    body, properties, sys_flag = record.body, record.properties, record.sys_flag
    if sys_flag & _NOT_COUNTED or queue.delayed or log.appends_crc or len(record.born_host) != 4 or 0 in properties:
        return None
    size = log._overhead + len(queue.topic_field) + len(body) + len(properties)
    position = log.position
    memory = log._map
    if position + size > log._check or memory is None or type(body) is not bytes:
        return None
    place = log.base + position
    offset = queue.next_offset
    try:
        put_record(
            memory,
            position,
            size,
            place,
            queue.magic,
            queue.topic_field,
            offset,
            sys_flag & ~HOST_BITS | log._sys_bits,
            stored,
            log.store_host_field,
            record,
        )
    except struct.error:
        return None
    log.position = position + size
    queue.next_offset = offset + 1
    pending.append(
        (
            queue,
            offset,
            place,
            size,
            record.tags_code,
            stored,
            sys_flag & TRANSACTION_BITS,
            record.uniq_key,
            record.keys,
        )
    )
    result: Result = done.__class__(done.status, place, offset, stored, place + size)
    return result


def put_batch(
    log: LogCursor,
    queue: QueueCursor,
    record: NewRecord,
    batch: bytes | memoryview,
    most: int,
    stored: int,
    pending: deque[Pending],
    done: Result,
) -> Result | None:
    """Store a plain batch as it came: a record for each of its messages, all in one segment.

    This twin leaves all of them to the store, which takes them apart.

    Args:
        log: where the log ends; moved.
        queue: the messages' queue, whose next offsets they get.
        record: what they have in common; its properties are added behind those of each.
        batch: the messages, as they travel (wire.md §4.5).
        most: bytes that their bodies may have together.
        stored: the store's time, ms.
        pending: gets what is to be dispatched.
        done: the store's answer to a put that went well, to be copied.

    Returns:
        That answer, with places and time; None when a message is not plain, and nothing was done.
    """
    return None


BY_HAND: Final = 32
"""Records that the dispatcher does itself when `fill` stops at one that is not ordinary."""


def fill(
    pending: deque[Pending], dirty: list[Any], indexed: bool, newest: IndexCursor | None, limit: int | None, most: int
) -> tuple[int, int, int]:
    """Give the oldest pending records their queue units and index entries, as long as they are ordinary ones.

    This twin leaves all of them to the dispatcher, which knows how to.

    Args:
        pending: records, oldest first; what is done is taken from it.
        dirty: gets the queues that were not dirty before.
        indexed: there is an index.
        newest: the index file that takes new entries; None when there is none yet.
        limit: records that end behind this log offset wait; None when nothing has to.
        most: at most so many.

    Returns:
        How many were done, where the last of them ends, and its store time.
    """
    return 0, 0, 0


class Mapped(Protocol):
    """A commit-log segment as `gather` reads it."""

    @property
    def start(self) -> int:
        """Offset of its first byte."""
        ...

    @property
    def view(self) -> memoryview:
        """All its bytes."""
        ...


class GatherLimits(NamedTuple):
    """When a read is full (store.md §14.1): how many messages and bytes, near the log's end and farther back.

    Attributes:
        memory_bound: bytes before the log's end that count as held in memory.
        count_in_memory: most messages while their records are.
        bytes_in_memory: most bytes.
        count_on_disk: most messages once they are not.
        bytes_on_disk: most bytes.
    """

    memory_bound: int
    count_in_memory: int
    bytes_in_memory: int
    count_on_disk: int
    bytes_on_disk: int


class Proof(NamedTuple):
    """What units and records have to prove that may have been changed on the disk.

    Attributes:
        topic_field: length and topic as stored in the queue's records; empty when they are those of other queues.
        queue_id: of the queue.
        queue_offset: of the first unit.
        trusted_from: records from this log offset on need no CRC.
        checked: the bits of a block of 1 MiB of the log, by its number: one for each 64 bytes, set once the record that
            begins there was found whole.
    """

    topic_field: bytes
    queue_id: int
    queue_offset: int
    trusted_from: int
    checked: Callable[[int], bytearray]


def is_sound(view: memoryview, at: int, size: int, physical: int, queue_offset: int, proof: Proof) -> bool:
    """Whether the record of a size at a place of a segment is the one of a queue offset, and whole.

    Args:
        view: the segment.
        at: where in it the record begins; size, magic number and place of its head are right.
        size: of the record.
        physical: where it begins in the log.
        queue_offset: what it has to say.
        proof: what else.
    """
    topic_field, queue_id, _, trusted_from, checked = proof
    if size < OVERHEAD:
        return False
    crc, found_id, found_offset, flags = _PROVED.unpack_from(view, at)
    if topic_field and (found_id != queue_id or found_offset != queue_offset):
        return False
    end = at + size
    body_at = at + body_size_at(flags) + 4
    if body_at + 3 > end:
        return False
    (body_size,) = NUMBER.unpack_from(view, body_at - 4)
    rest = body_at + body_size
    if body_size < 0 or rest + len(topic_field) + 2 > end:
        return False
    if topic_field:
        properties_at = rest + len(topic_field) + 2
        stated = view[properties_at - 2] << 8 | view[properties_at - 1]
        if view[rest : properties_at - 2] != topic_field or properties_at + stated != end:
            return False
    if physical >= trusted_from:
        return True
    bits = checked(physical >> BLOCK_BITS)
    number = (physical & (1 << BLOCK_BITS) - 1) >> GRAIN_BITS
    if bits[number >> 3] >> (number & 7) & 1:
        return True
    if body_size and full_crc32(view[body_at:rest]) & 0x7FFFFFFF != crc:
        return False
    if not crc_property_fits(view[at:end]):
        return False
    bits[number >> 3] |= 1 << (number & 7)
    return True


def gather(  # noqa: C901 - one pass over the units: no call that can be avoided
    units: memoryview,
    segments: Sequence[Mapped],
    segment_size: int,
    log_end: int,
    tag_codes: frozenset[int] | None,
    accept: Callable[[memoryview], bool | None] | None,
    limits: GatherLimits,
    proof: Proof | None = None,
) -> tuple[bytes, int, int, int, bool]:
    """The records that queue units point to, until a limit is reached; the first one is never too much.

    Args:
        units: 20-byte units.
        segments: the commit log's, without gaps between them.
        segment_size: bytes of each.
        log_end: end of the log.
        tag_codes: only units with one of these codes; None for all.
        accept: only records for which it holds, up to one for which it gives None; None for all.
        limits: when to stop.
        proof: what has to be proved of each record; None when this process wrote all of them.

    Returns:
        The records one behind the other, how many they are, the number of units passed, the offset of the last
        record, and whether a unit pointed to a record that is gone before any was found. Behind what was found, a unit
        that leads elsewhere ends the read; with a proof any does, and is the last one passed when nothing was found.
    """
    parts: list[memoryview] = []
    keep = parts.append
    total = scanned = last = 0
    gone = False
    locate, magics, hole = PLACE.unpack_from, MAGICS, HOLE
    memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk = limits
    in_memory = log_end - memory_bound
    log_begin = segments[0].start if segments else log_end
    # Consecutive units mostly point into one segment: from `begin` to `latest` records may start in `view`.
    begin, latest, view = 0, -1, memoryview(b"")
    for physical, size, tags in UNIT.iter_unpack(units):
        if parts:
            if physical >= in_memory:
                if total + size > bytes_in_memory or len(parts) >= count_in_memory:
                    break
            elif total + size > bytes_on_disk or len(parts) >= count_on_disk:
                break
        scanned += 1
        if tag_codes is not None and tags not in tag_codes and tags > EXTENSION_ADDRESS:
            continue
        if tags == hole or size == _BLANK_SIZE:
            gone = gone or not parts
            continue
        leads = log_begin <= physical <= log_end - size and PLACE.size <= size <= segment_size
        if leads and not begin <= physical <= latest:
            segment = segments[(physical - log_begin) // segment_size]
            begin, view = segment.start, segment.view
            latest = begin + segment_size - PLACE.size
            leads = physical <= latest
        if leads:
            at = physical - begin
            stated, magic, place = locate(view, at)
            record = view[at : at + size]
            leads = stated == size and place == physical and magic in magics and len(record) == size
            if leads and proof is not None:
                leads = is_sound(view, at, size, physical, proof.queue_offset + scanned - 1, proof)
        if not leads:
            # It expired, or unit or record was changed on the disk: who reads could not tell where the next one begins.
            if parts:
                scanned -= 1  # the next read begins with it, and finds out what became of it
                break
            gone = True
            if proof is not None:
                break
            continue
        if accept is not None and not (verdict := accept(record)):
            if verdict is None:
                scanned -= 1
                break
            continue
        keep(record)
        total += size
        last = physical
    return b"".join(parts), len(parts), scanned, last, gone
