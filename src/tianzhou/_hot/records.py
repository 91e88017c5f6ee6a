"""Records written into a mapped segment and read from it: the pure twin of the compiled functions (store.md §3.2)."""

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
"""Tags codes up to this one are addresses in extension files, which pass every tag filter here (store.md §5.5)."""
HOLE: Final = 0x7FFFFFFF7FFFFFFF
"""Tags code of a unit in the place of a lost record (`tianzhou.store.log.holes`)."""
BLOCK_BITS: Final = 20
GRAIN_BITS: Final = 6
"""Number of low bits of a log offset within a block of `Proof.checked`, and within the part that one bit covers."""
_BLANK_SIZE: Final = 0x7FFFFFFF
_PROVED: Final = fields_at("body_crc", "queue_id", "queue_offset", "sys_flag")

# A layout compiled for the lengths of body, topic and properties writes a whole record in one call. Producers
# send few different lengths. Beyond the limit, the pieces are written one by one.
_SHAPES: Final[dict[tuple[int, int, int], struct.Struct]] = {}
_MAX_SHAPES: Final = 2048
_MAX_SHAPED_BODY: Final = 16_384
_HEAD_V4: Final = head_format(whole_store_address=True)
_HEADS: Final = {
    (born, store): struct.Struct(head_format(born, store, whole_store_address=True))
    for born in (4, 16) for store in (4, 16)
}  # fmt: skip
# Inner batches, half messages and rolled-back messages count as several messages or as none.
_NOT_COUNTED: Final = PREPARED | INNER_BATCH

Result = Any
"""The store's answer to a put. Its first fields are status, log offset, queue offset, time, and end in the log."""


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
        position: start of the record in it.
        size: bytes of the whole record.
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
    """Store a plain message: write its record at the end of the log, and add an item for dispatch.

    A message is plain when its queue counts it, its sender has an IPv4 address, it fits the prepared part of the
    segment, and it is stored unchanged.

    Args:
        log: end of the log; advanced.
        queue: the message's queue, whose next offset it gets.
        record: the message.
        stored: store time, ms.
        pending: receives the item to dispatch.
        done: template of the store's answer to a successful put.

    Returns:
        The answer with offsets and time; None, without any effect, when the message is not plain.
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
    """Store a plain batch unchanged: one record for each message, all in one segment.

    This twin stores none: it leaves all batches to the store, which splits them.

    Args:
        log: end of the log; advanced.
        queue: the messages' queue, whose next offsets they get.
        record: their common fields; its properties are appended to those of each message.
        batch: the messages in wire format (wire.md §4.5).
        most: maximum bytes of their bodies together.
        stored: store time, ms.
        pending: receives the items to dispatch.
        done: template of the store's answer to a successful put.

    Returns:
        The answer with offsets and time; None, without any effect, when a message is not plain.
    """
    return None


BY_HAND: Final = 32
"""Number of records that the dispatcher dispatches itself when `fill` stops at one that is not ordinary."""


def fill(
    pending: deque[Pending], dirty: list[Any], indexed: bool, newest: IndexCursor | None, limit: int | None, most: int
) -> tuple[int, int, int]:
    """Write queue units and index entries of the oldest pending records, up to the first that is not ordinary.

    This twin dispatches none: it leaves all records to the dispatcher.

    Args:
        pending: records, oldest first; dispatched ones are removed.
        dirty: receives the queues that were not dirty before.
        indexed: whether there is an index.
        newest: the index file for new entries; None when there is none yet.
        limit: log offset; records that end after it wait. None dispatches all.
        most: maximum number of records.

    Returns:
        The number of dispatched records, the end of the last one in the log, and its store time.
    """
    return 0, 0, 0


class Mapped(Protocol):
    """A commit-log segment as `gather` reads it."""

    @property
    def start(self) -> int:
        """Log offset of its first byte."""
        ...

    @property
    def view(self) -> memoryview:
        """All bytes of the segment."""
        ...


class GatherLimits(NamedTuple):
    """Limits of a read (store.md §14.1): messages and bytes, near the log's end and farther back.

    Attributes:
        memory_bound: bytes before the log's end that count as in memory.
        count_in_memory: maximum messages while their records are in memory.
        bytes_in_memory: maximum bytes while the records are in memory.
        count_on_disk: maximum messages otherwise.
        bytes_on_disk: maximum bytes otherwise.
    """

    memory_bound: int
    count_in_memory: int
    bytes_in_memory: int
    count_on_disk: int
    bytes_on_disk: int


class Proof(NamedTuple):
    """Expected values for units and records that may have been changed on the disk.

    Attributes:
        topic_field: length and topic as stored in the queue's records; empty when records of other queues are expected.
        queue_id: the queue.
        queue_offset: queue offset of the first unit.
        trusted_from: log offset; records from it on need no CRC check.
        checked: bits of a 1 MiB block of the log, by block number: one bit for each 64 bytes, set once the record that
            begins there has passed the check.
    """

    topic_field: bytes
    queue_id: int
    queue_offset: int
    trusted_from: int
    checked: Callable[[int], bytearray]


def is_sound(view: memoryview, at: int, size: int, physical: int, queue_offset: int, proof: Proof) -> bool:
    """Whether the record at a position of a segment belongs to a queue offset, and is intact.

    Args:
        view: the segment.
        at: start of the record in it; size, magic number and log offset in its head are correct.
        size: bytes of the record.
        physical: log offset of the record.
        queue_offset: expected queue offset.
        proof: the other expected values.
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
    """Return the records that queue units point to, until a limit is reached. The first record may exceed the limits.

    Args:
        units: 20-byte units.
        segments: the commit log's segments, without gaps.
        segment_size: bytes of a segment.
        log_end: end of the log.
        tag_codes: only units with one of these codes; None for all.
        accept: checks a record; false skips it, None ends the read before it. Without `accept` all records pass.
        limits: limits of the read.
        proof: expected values of each record; None when this process wrote all of them.

    Returns:
        The contiguous records, their number, the number of units passed, the log offset of the last record, and whether
        a unit pointed to a lost record before the first record was found. After a found record, a unit without its
        record ends the read. With a proof, any such unit ends the read; it counts as passed if no record was found.
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
            # The record expired, or unit or record was changed on the disk. A reader could not find the next record.
            if parts:
                scanned -= 1  # the next read begins with this unit and reports the loss
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
