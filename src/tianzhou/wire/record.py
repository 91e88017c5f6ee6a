"""The record: a message as the commit log stores it and as pulls deliver it (store.md §3, wire.md §5).

`encode_record` and `decode_record` are the reference; the store writes the same bytes straight into a
segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from struct import error as struct_error
from typing import Final

import msgspec

from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.limits import ENTRIES_OF_ANSWER, UNPACKED_BODY
from tianzhou.model import MessageExt, names
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.compression import COMPRESSED, decompress
from tianzhou.wire.delivered import HEAD_SIZE, DeliveredMessage, PackedMessage
from tianzhou.wire.hashing import Octets, crc32
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.properties import MAX_BYTES, decode_properties

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
INNER_BATCH: Final = 0xC0
BLANK_SIZE: Final = 8
MAX_UNPACKED: Final = UNPACKED_BODY.default
"""Largest body that is unpacked unless told otherwise."""
OVERHEAD: Final = 91
"""Bytes of a version 1 record with IPv4 hosts besides body, topic and properties (store.md §3.2)."""

_V6_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
_UNUSUAL: Final = COMPRESSED | INNER_BATCH | _V6_BITS
# totalSize magic bodyCRC queueId flag queueOffset physicalOffset sysFlag bornTimestamp bornHost bornPort
# storeTimestamp storeHost storePort reconsumeTimes preparedTransactionOffset bodyLength; hosts by sysFlag.
_FIXED: Final = {
    bits: Struct(f">iiiiiqqiq{'16' if bits & BORN_HOST_V6 else '4'}siq{'16' if bits & STORE_HOST_V6 else '4'}siiqi")
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, _V6_BITS)
}
_FIXED_V4: Final = _FIXED[0]
_USUAL_V4: Final = Struct(">ii12xq8xi44xi")  # of these: totalSize magic queueOffset sysFlag bodyLength
_SIZE_MAGIC: Final = Struct(">ii")
_SHORT: Final = Struct(">h")

CRC_PROPERTY_BYTES: Final = 20
_CRC_PREFIX: Final = f"{names.CRC32}\x01".encode()


class Record(msgspec.Struct, gc=False):
    """One record; positions and times as stored, hosts as address bytes and port.

    `body` is as stored, so still compressed when `sys_flag` says so; `properties` is the raw property string.
    `body_crc` and `size` are what the record said; encoding computes them anew, and the host bits of
    `sys_flag` too.
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
    """Size of a record from the byte lengths of its parts (store.md §3.2)."""
    version2 = 1 if topic > 127 else 0
    return OVERHEAD + version2 + body + topic + properties + (born_host - 4) + (store_host - 4)


def encode_record(record: Record) -> bytes:
    """The record's bytes; version 2 when the topic has more than 127 bytes (store.md §3.1).

    Raises:
        CorruptRecord: topic or properties are longer than their length fields can say, or a host is neither
            4 nor 16 bytes.
    """
    topic = record.topic.encode()
    born, stored = record.born_host, record.store_host
    if len(topic) > 32_767 or len(record.properties) > MAX_BYTES:
        raise CorruptRecord(
            f"topic of {len(topic)} and properties of {len(record.properties)} bytes: "
            f"a record holds at most {MAX_BYTES} of each",
            reason="length",
        )
    if len(born) not in (4, 16) or len(stored) not in (4, 16):
        raise CorruptRecord(f"hosts of {len(born)} and {len(stored)} bytes; an address has 4 or 16", reason="length")
    sys_flag = record.sys_flag & ~_V6_BITS
    if len(born) == 16:
        sys_flag |= BORN_HOST_V6
    if len(stored) == 16:
        sys_flag |= STORE_HOST_V6
    version2 = len(topic) > 127
    fixed = _FIXED[sys_flag & _V6_BITS].pack(
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
            _SHORT.pack(len(topic)) if version2 else bytes((len(topic),)),
            topic,
            _SHORT.pack(len(record.properties)),
            record.properties,
        )
    )


def encode_blank(room: int) -> bytes:
    """The eight bytes that close a segment with `room` bytes left (store.md §3.4)."""
    return _SIZE_MAGIC.pack(room, MAGIC_BLANK)


def peek(buffer: Octets, offset: int = 0) -> tuple[int, int]:
    """Total size and magic at `offset`; (0, 0) when fewer than eight bytes are left.

    A blank record shows MAGIC_BLANK and the room left in its segment; untouched space shows (0, 0).
    """
    try:
        size, magic = _SIZE_MAGIC.unpack_from(buffer, offset)
    except struct_error:
        return 0, 0
    return size, magic


def decode_record(buffer: Octets, offset: int = 0, check_crc: bool = False) -> Record:
    """The record at `offset`.

    Args:
        buffer: bytes of a log or of a reply.
        offset: where the record begins in it.
        check_crc: whether the body is checked against its CRC.

    Raises:
        CorruptRecord: see its `reason` and `size`; a blank record counts as `magic`, ask `peek` about it.
    """
    try:
        fixed = _FIXED_V4
        head = fixed.unpack_from(buffer, offset)
        if head[7] & _V6_BITS:
            fixed = _FIXED[head[7] & _V6_BITS]
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
            (topic_size,) = _SHORT.unpack_from(buffer, topic_at - 1)
            topic_at += 1
        else:
            raise _misfit(buffer, offset)
        properties_at = topic_at + topic_size + 2
        (properties_size,) = _SHORT.unpack_from(buffer, properties_at - 2)
    except (struct_error, IndexError):
        raise _misfit(buffer, offset) from None
    end = properties_at + properties_size
    if end - offset != size or body_size < 0 or topic_size < 0 or properties_size < 0 or end > len(buffer):
        raise _misfit(buffer, offset)
    if type(buffer) is bytes:
        data, start = buffer, 0
    else:
        # One copy, once the extent is known to be true: slices of bytes are cheaper than those of views.
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
    """Why no record can be read at `at` (store.md §3.5)."""
    size, magic = peek(data, at)
    left = len(data) - at
    if left < BLANK_SIZE:
        return CorruptRecord(f"{max(left, 0)} bytes are left, too few for a record", reason="short")
    if magic not in (MAGIC_V1, MAGIC_V2):
        return CorruptRecord(f"no record: magic is {magic & 0xFFFFFFFF:#010x}", reason="magic")
    if size < OVERHEAD:
        return CorruptRecord(f"a record of {size} bytes is shorter than its fixed part", reason="length")
    if size > left:
        return CorruptRecord(f"the record claims {size} bytes, {left} are left", reason="short")
    return CorruptRecord(f"the parts of a record do not add up to its {size} bytes", size=size, reason="length")


def decode_records(buffer: Octets) -> Iterator[Record]:
    """The records of a reply body; stops silently at the first bad one, as Java does (wire.md §5)."""
    data = buffer if type(buffer) is bytes else bytes(buffer)
    at, end = 0, len(data)
    while at < end:
        try:
            record = decode_record(data, at)
        except CorruptRecord:
            return
        yield record
        at += record.size


class Allowance:
    """What the batches of one answer may still take, however small they were sent.

    Args:
        size_bytes: most bytes of unpacked batches together.
    """

    __slots__ = ("entries", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.entries = ENTRIES_OF_ANSWER.default


def to_message(
    record: Record,
    broker_name: str,
    limit_bytes: int = MAX_UNPACKED,
    added: bytes = b"",
    allowance: Allowance | None = None,
) -> list[MessageExt]:
    """The messages a record delivers: one, or those of an inner batch (wire.md §5).

    The compressed bit is cleared, and a compressed body is unpacked when it is looked at (`PackedMessage`); the topic
    is the stored one (`%RETRY%…` stays). A batch that cannot be taken apart comes as one message whose body raises.

    Args:
        record: what a broker sent.
        broker_name: the broker that sent it.
        limit_bytes: largest unpacked body that is accepted.
        added: further properties, each by `pair_behind`.
        allowance: what batches may take, when several records share it.
    """
    sys_flag = record.sys_flag & ~COMPRESSED
    message = DeliveredMessage(
        record.topic,
        record.body,
        record.flag,
        decode_properties(record.properties + added),
        broker_name,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp,
        host_text(record.born_host, record.born_port),
        record.store_timestamp,
        host_text(record.store_host, record.store_port),
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.body_crc,
        record.size,
        offset_msg_id(record.store_host, record.store_port, record.physical_offset),
    )
    if sys_flag & INNER_BATCH != INNER_BATCH:
        return [PackedMessage.of(message, record.sys_flag, limit_bytes)] if record.sys_flag & COMPRESSED else [message]
    try:
        entries = _entries(record, allowance or Allowance(limit_bytes))
    except ProtocolError as error:
        return [PackedMessage.of(message, record.sys_flag, limit_bytes, error.with_traceback(None))]
    return [
        replace(
            message,
            flag=flag,
            body=bytes(inner),
            properties=decode_properties(bytes(properties) + added),
            queue_offset=record.queue_offset + n,
        )
        for n, (flag, inner, properties) in enumerate(entries)
    ]


def _entries(record: Record, allowance: Allowance) -> list[tuple[int, memoryview, memoryview]]:
    body = record.body
    if record.sys_flag & COMPRESSED:
        body = decompress(body, record.sys_flag, allowance.size_bytes)
        allowance.size_bytes -= len(body)
    most, allowance.entries = allowance.entries, 0  # one batch too many is enough work for an answer
    entries = decode_batch(body, most)
    allowance.entries = most - len(entries)
    return entries


def decode_messages(
    buffer: Octets,
    broker_name: str,
    limit_bytes: int = MAX_UNPACKED,
    added: bytes = b"",
) -> list[MessageExt]:
    """All messages of a reply body: `decode_records` and `to_message` in one, at half their cost.

    Args:
        buffer: the body of a pull reply; reading stops at the first bad record.
        broker_name: the broker that sent it.
        limit_bytes: largest unpacked body that is accepted, and all batches of the reply together.
        added: further properties of all messages, each by `pair_behind`.
    """
    data = buffer if type(buffer) is bytes else bytes(buffer)
    messages: list[MessageExt] = []
    append = messages.append
    unpack, short, new = _USUAL_V4.unpack_from, _SHORT.unpack_from, DeliveredMessage.__new__
    # What stands between body and properties, the topic and how long the properties are, seldom differs.
    between, properties_size, topic = b"", -1, ""
    allowance: Allowance | None = None
    at, end = 0, len(data)
    while end - at >= OVERHEAD:
        size, magic, queue_offset, sys_flag, body_size = unpack(data, at)
        following = at + size
        body_at = at + HEAD_SIZE
        body_end = body_at + body_size
        if magic == MAGIC_V1 and not sys_flag & _UNUSUAL and body_size >= 0 and body_end < following <= end:
            properties_at = body_end + len(between)
            fits = following - properties_at == properties_size and data[body_end:properties_at] == between
            if not fits:
                topic_end = body_end + 1 + data[body_end]
                properties_at = topic_end + 2
                fits = properties_at <= following and short(data, topic_end)[0] == following - properties_at
                if fits:
                    between, properties_size = data[body_end:properties_at], following - properties_at
                    topic = between[1:-2].decode("utf-8", "replace")
            if fits:
                # Filled here: a call for each message would cost more than all the rest.
                message = new(DeliveredMessage)
                message.topic = topic
                message.body = data[body_at:body_end]
                message.head = data[at:body_at]
                message.raw_properties = data[properties_at:following]
                message.more_properties = added
                message.broker_name = broker_name
                message.queue_offset = queue_offset
                message.sys_flag = sys_flag
                append(message)
                at = following
                continue
        try:
            record = decode_record(data, at)
        except CorruptRecord:
            break
        if allowance is None:
            allowance = Allowance(limit_bytes)
        messages += to_message(record, broker_name, limit_bytes, added, allowance)
        at += record.size
    return messages


def reserve_property_crc(properties: bytes) -> bytes:
    """A property string with room for the record CRC at its end (store.md §3.6).

    An incoming `__CRC32#` is removed, a missing last separator put in. `fill_property_crc` writes the value.
    """
    if _CRC_PREFIX in properties:
        pieces = properties.split(b"\x02")
        properties = b"\x02".join([piece for piece in pieces if not piece.startswith(_CRC_PREFIX)])
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return properties + bytes(CRC_PROPERTY_BYTES)


def fill_property_crc(record: bytearray | memoryview) -> None:
    """Write the record CRC property into the last 20 bytes of a complete record (store.md §3.6)."""
    split = len(record) - CRC_PROPERTY_BYTES
    record[split:] = _crc_property(crc32(memoryview(record)[:split]))


def verify_property_crc(record: Octets) -> bool:
    """Whether a record ends with its own CRC property, and the value is right (store.md §3.6)."""
    view = memoryview(record)
    split = len(view) - CRC_PROPERTY_BYTES
    return split > 0 and view[split:] == _crc_property(crc32(view[:split]))


def _crc_property(crc: int) -> bytes:
    # Ten digits, least significant first, zeros behind them: 123 is "3210000000".
    return _CRC_PREFIX + f"{crc:010d}"[::-1].encode() + b"\x02"
