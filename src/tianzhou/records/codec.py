"""Codec of single commit-log records (store.md §3).

`encode_record` and `decode_record` are the reference. The store writes the same bytes straight into a segment, and the
walk over a log (`tianzhou.records.walk`) reads records in runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as struct_error
from typing import Final

import msgspec

from tianzhou.errors import CorruptRecord
from tianzhou.limits import PROPERTIES_BYTES
from tianzhou.model import names
from tianzhou.records.checksum import Octets, crc32
from tianzhou.records.layout import (
    AT,
    BLANK_SIZE,
    BORN_HOST_V6,
    HEADS,
    HOST_BITS,
    LENGTH,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAGICS,
    NUMBER,
    OVERHEAD,
    POSITION,
    SIZE_MAGIC,
    STORE_HOST_V6,
    SYS_FLAG,
    body_size_at,
    store_time_at,
)

CRC_PROPERTY_BYTES: Final = 20
CRC_PROPERTY_START: Final = f"{names.CRC32}\x01".encode()
_MAX_PROPERTIES: Final = PROPERTIES_BYTES.default
_HEAD_V4: Final = HEADS[0]
_SYS_FLAG_AT: Final = AT["sys_flag"]


class Record(msgspec.Struct, gc=False):
    """One record, with offsets and times as stored, and hosts as address bytes and port.

    `body` is as stored: still compressed when `sys_flag` has the compression bit. `properties` is the raw property
    string.
    `body_crc` and `size` are the decoded values. `encode_record` computes both again, as well as the host bits of
    `sys_flag`.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    born_port: int
    store_timestamp: int
    store_host: bytes
    store_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: bytes
    body_crc: int = 0
    size: int = 0


def record_size(body: int, topic: int, properties: int, born_host: int = 4, store_host: int = 4) -> int:
    """Return the size of a record from the byte lengths of its parts (store.md §3.2)."""
    version2 = 1 if topic > 127 else 0
    return OVERHEAD + version2 + body + topic + properties + (born_host - 4) + (store_host - 4)


def encode_record(record: Record) -> bytes:
    """Encode a record; version 2 when the topic has more than 127 bytes (store.md §3.1).

    Raises:
        CorruptRecord: topic or properties are longer than their length fields allow, or a host has neither
            4 nor 16 bytes.
    """
    topic = record.topic.encode()
    born, stored = record.born_host, record.store_host
    if len(topic) > 32_767 or len(record.properties) > _MAX_PROPERTIES:
        raise CorruptRecord(
            f"topic of {len(topic)} and properties of {len(record.properties)} bytes: "
            f"a record holds at most {_MAX_PROPERTIES} of each",
            reason="length",
        )
    if len(born) not in (4, 16) or len(stored) not in (4, 16):
        raise CorruptRecord(f"hosts of {len(born)} and {len(stored)} bytes; an address has 4 or 16", reason="length")
    sys_flag = record.sys_flag & ~HOST_BITS
    if len(born) == 16:
        sys_flag |= BORN_HOST_V6
    if len(stored) == 16:
        sys_flag |= STORE_HOST_V6
    version2 = len(topic) > 127
    fixed = HEADS[sys_flag & HOST_BITS].pack(
        record_size(len(record.body), len(topic), len(record.properties), len(born), len(stored)),
        MAGIC_V2 if version2 else MAGIC_V1,
        crc32(record.body),
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp,
        born,
        record.born_port,
        record.store_timestamp,
        stored,
        record.store_port,
        record.reconsume_times,
        record.prepared_transaction_offset,
        len(record.body),
    )
    return b"".join(
        (
            fixed,
            record.body,
            LENGTH.pack(len(topic)) if version2 else bytes((len(topic),)),
            topic,
            LENGTH.pack(len(record.properties)),
            record.properties,
        )
    )


def encode_blank(room: int) -> bytes:
    """Return the eight bytes that close a segment with `room` bytes left (store.md §3.4)."""
    return SIZE_MAGIC.pack(room, MAGIC_BLANK)


def peek(buffer: Octets, offset: int = 0) -> tuple[int, int]:
    """Return total size and magic number at `offset`; (0, 0) when fewer than eight bytes are left.

    A blank record returns the room left in its segment and MAGIC_BLANK. Unwritten space returns (0, 0).
    """
    try:
        size, magic = SIZE_MAGIC.unpack_from(buffer, offset)
    except struct_error:
        return 0, 0
    return size, magic


def decode_record(buffer: Octets, offset: int = 0, check_crc: bool = False) -> Record:
    """Decode the record at `offset`.

    Args:
        buffer: bytes of a log or of a reply.
        offset: where the record begins in `buffer`.
        check_crc: whether to check the body against its CRC.

    Raises:
        CorruptRecord: see its `reason` and `size`. A blank record has the reason `magic`; `peek` identifies it.
    """
    try:
        fixed = _HEAD_V4
        head = fixed.unpack_from(buffer, offset)
        if head[SYS_FLAG] & HOST_BITS:
            fixed = HEADS[head[SYS_FLAG] & HOST_BITS]
            head = fixed.unpack_from(buffer, offset)
        (
            size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
            born_port, store_timestamp, store_host, store_port, reconsume_times, prepared_transaction_offset, body_size,
        ) = head  # fmt: skip
        body_at = offset + fixed.size
        topic_at = body_at + body_size + 1
        if magic == MAGIC_V1:
            topic_size = buffer[topic_at - 1]
        elif magic == MAGIC_V2:
            (topic_size,) = LENGTH.unpack_from(buffer, topic_at - 1)
            topic_at += 1
        else:
            raise _misfit(buffer, offset)
        properties_at = topic_at + topic_size + 2
        (properties_size,) = LENGTH.unpack_from(buffer, properties_at - 2)
    except (struct_error, IndexError):
        raise _misfit(buffer, offset) from None
    end = properties_at + properties_size
    if end - offset != size or body_size < 0 or topic_size < 0 or properties_size < 0 or end > len(buffer):
        raise _misfit(buffer, offset)
    if type(buffer) is bytes:
        data, start = buffer, 0
    else:
        # Copy once, after the extent is checked: slices of bytes are cheaper than slices of views.
        data, start = bytes(memoryview(buffer)[offset:end]), offset
    body_at -= start
    body = data[body_at : body_at + body_size]
    if check_crc and body_size and crc32(body) != body_crc:
        raise CorruptRecord(
            f"record of {size} bytes at physical offset {physical_offset}: body CRC is {crc32(body)}, "
            f"the record says {body_crc}",
            size=size,
            reason="crc",
        )
    return Record(
        data[topic_at - start : topic_at - start + topic_size].decode("utf-8", "replace"),
        queue_id,
        queue_offset,
        physical_offset,
        flag,
        sys_flag,
        born_timestamp,
        born_host,
        born_port,
        store_timestamp,
        store_host,
        store_port,
        reconsume_times,
        prepared_transaction_offset,
        body,
        data[properties_at - start : end - start],
        body_crc,
        size,
    )


def _misfit(data: Octets, at: int) -> CorruptRecord:
    """Return the error with the reason why no record can be decoded at `at` (store.md §3.5)."""
    size, magic = peek(data, at)
    left = len(data) - at
    if left < BLANK_SIZE:
        return CorruptRecord(f"{max(left, 0)} bytes are left, too few for a record", reason="short")
    if magic not in MAGICS:
        return CorruptRecord(f"no record: magic is {magic & 0xFFFFFFFF:#010x}", reason="magic")
    if size < OVERHEAD:
        return CorruptRecord(f"a record of {size} bytes is shorter than its fixed part", reason="length")
    if size > left:
        return CorruptRecord(f"the record claims {size} bytes, {left} are left", reason="short")
    return CorruptRecord(f"the parts of a record do not add up to its {size} bytes", size=size, reason="length")


def decode_records(buffer: Octets) -> Iterator[Record]:
    """Yield the records of a reply body; end silently at the first corrupt one, as Java does (wire.md §5)."""
    data = buffer if type(buffer) is bytes else bytes(buffer)
    at, end = 0, len(data)
    while at < end:
        try:
            record = decode_record(data, at)
        except CorruptRecord:
            return
        yield record
        at += record.size


def properties_of(record: memoryview) -> bytes:
    """Return the property string of a complete record."""
    (sys_flag,) = NUMBER.unpack_from(record, _SYS_FLAG_AT)
    at = body_size_at(sys_flag)
    (body_size,) = NUMBER.unpack_from(record, at)
    at += 4 + body_size
    (magic,) = NUMBER.unpack_from(record, AT["magic"])
    at += 1 + record[at] if magic == MAGIC_V1 else 2 + (record[at] << 8 | record[at + 1])
    return bytes(record[at + 2 : at + 2 + (record[at] << 8 | record[at + 1])])


def store_time(record: memoryview) -> int:
    """Return the store timestamp of a record in ms; the first `UP_TO_STORE_TIME` bytes of the record are enough."""
    (sys_flag,) = NUMBER.unpack_from(record, _SYS_FLAG_AT)
    timestamp: int = POSITION.unpack_from(record, store_time_at(sys_flag))[0]
    return timestamp


def record_edges(buffer: Octets) -> list[int]:
    """Return the positions where the records of a reply body begin, by their size fields, and where the last one ends.

    The last position is the end of the buffer if the buffer holds only whole records. Otherwise it is where the first
    broken record begins, or a position behind the buffer's end.
    """
    edges = [0]
    # This loop runs once for each message, so everything that need not be in it is outside.
    note, read = edges.append, NUMBER.unpack_from
    at, last = 0, len(buffer) - OVERHEAD
    while at <= last:
        (size,) = read(buffer, at)
        if size < OVERHEAD:
            break
        at += size
        note(at)
    return edges


def reserve_property_crc(properties: bytes) -> bytes:
    """Return a property string with room for the record CRC at its end (store.md §3.6).

    Remove an incoming `__CRC32#`, and add a missing last separator. `fill_property_crc` writes the value.
    """
    if CRC_PROPERTY_START in properties:
        pieces = properties.split(b"\x02")
        properties = b"\x02".join([piece for piece in pieces if not piece.startswith(CRC_PROPERTY_START)])
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return properties + bytes(CRC_PROPERTY_BYTES)


def fill_property_crc(record: bytearray | memoryview) -> None:
    """Write the record CRC property into the last 20 bytes of a complete record (store.md §3.6)."""
    split = len(record) - CRC_PROPERTY_BYTES
    record[split:] = _crc_property(crc32(memoryview(record)[:split]))


def verify_property_crc(record: Octets) -> bool:
    """Whether a record ends with its own CRC property, and the value is correct (store.md §3.6)."""
    view = memoryview(record)
    split = len(view) - CRC_PROPERTY_BYTES
    return split > 0 and view[split:] == _crc_property(crc32(view[:split]))


def crc_property_fits(record: Octets) -> bool:
    """Whether a record agrees with its own CRC property, if it has one (store.md §3.6).

    When bits of the property's name flipped, the last property has another name and still the correct value. Such a
    record does not fit: no other property has the CRC of the bytes before it as its value by chance. When a bit of the
    value or of its separator flipped, the name is intact and the value is wrong.
    """
    own = memoryview(record)[-CRC_PROPERTY_BYTES:]
    if own[: len(CRC_PROPERTY_START)] == CRC_PROPERTY_START:
        return verify_property_crc(record)
    value = bytes(own[len(CRC_PROPERTY_START) :])
    if value[-1:] != b"\x02" or not value[:-1].isdigit():
        return True
    return value != _crc_property(crc32(memoryview(record)[:-CRC_PROPERTY_BYTES]))[len(CRC_PROPERTY_START) :]


def _crc_property(crc: int) -> bytes:
    # Ten digits, least significant first, padded with zeros at the end: 123 is "3210000000".
    return CRC_PROPERTY_START + f"{crc:010d}"[::-1].encode() + b"\x02"
