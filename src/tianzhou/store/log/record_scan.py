"""Reading commit-log bytes one record after the other, as far as recovery and dispatch need them (store.md §3.5)."""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import Final

import msgspec

from tianzhou.model import names
from tianzhou.wire.hashing import crc32, tags_code
from tianzhou.wire.properties import get_property
from tianzhou.wire.record import (
    BLANK_SIZE,
    BORN_HOST_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD,
    STORE_HOST_V6,
    verify_property_crc,
)

TRANSACTION_BITS: Final = 0xC
PREPARED: Final = 0x4
ROLLBACK: Final = 0xC
RECORD_HEAD: Final = 76
"""Bytes of a record up to its store timestamp, at most."""

_HEAD: Final = struct.Struct(">iiiiiqqiq")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_SIZE_MAGIC: Final = struct.Struct(">ii")


class Finding(Enum):
    """What stands at a position of the log."""

    RECORD = auto()
    BLANK = auto()
    NOTHING = auto()
    DAMAGED = auto()


class LogEntry(msgspec.Struct):
    """What a record says about itself beside its body.

    Attributes:
        offset: where it begins.
        size: its length.
        topic: topic.
        queue_id: queue.
        queue_offset: number in the queue.
        sys_flag: store.md §0.4.
        store_timestamp: ms.
        properties: the property string.
    """

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


class LogItem(msgspec.Struct):
    """One step of a walk over the log.

    Attributes:
        finding: what stands here.
        offset: where, absolutely.
        size: bytes to the next thing; 0 when that is unknown.
        entry: the record, when it is one.
        reason: why it counts as damaged.
    """

    finding: Finding
    offset: int
    size: int = 0
    entry: LogEntry | None = None
    reason: str = ""


def read_item(  # noqa: C901 - one field after the other, each with its own refusal
    view: memoryview, position: int, base: int, *, check_crc: bool = True, force_record_crc: bool = False
) -> LogItem:
    """What stands at `position` of a segment.

    Args:
        view: the segment.
        position: index into it.
        base: the segment's start offset.
        check_crc: compare the body with its CRC.
        force_record_crc: compare the whole record with its CRC property instead, which then must be there.
    """
    offset = base + position
    room = len(view) - position
    if room < 8:
        return LogItem(Finding.BLANK if room == 0 else Finding.NOTHING, offset, room)
    size, magic = _SIZE_MAGIC.unpack_from(view, position)
    if magic == MAGIC_BLANK:
        return LogItem(Finding.BLANK, offset, room)
    if size == 0 and magic == 0:
        return LogItem(Finding.NOTHING, offset)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return LogItem(Finding.DAMAGED, offset, reason=f"magic number {magic & 0xFFFFFFFF:#010x} is none of a record")
    if size < OVERHEAD or size > room - BLANK_SIZE:
        return LogItem(Finding.DAMAGED, offset, reason=f"size {size} does not fit the {room} bytes left")
    _, _, crc, queue_id, _, queue_offset, physical, sys_flag, _ = _HEAD.unpack_from(view, position)
    if physical != offset:
        return LogItem(Finding.DAMAGED, offset, reason=f"the record says that it is at {physical}")
    at = position + (68 if sys_flag & BORN_HOST_V6 else 56)
    (store_timestamp,) = _I64.unpack_from(view, at)
    at += (28 if sys_flag & STORE_HOST_V6 else 16) + 12
    end = position + size
    if at + 4 > end:
        return LogItem(Finding.DAMAGED, offset, reason="too short for its host addresses")
    (body_length,) = _I32.unpack_from(view, at)
    body_at = at + 4
    at = body_at + body_length
    if body_length < 0 or at + 1 > end:
        return LogItem(Finding.DAMAGED, offset, reason=f"body length {body_length} does not fit size {size}")
    if magic == MAGIC_V1:
        topic_length = view[at]
        at += 1
    else:
        topic_length = view[at] << 8 | view[at + 1] if at + 2 <= end else size
        at += 2
    properties_at = at + topic_length + 2
    if properties_at > end:
        return LogItem(Finding.DAMAGED, offset, reason=f"topic length {topic_length} does not fit size {size}")
    properties_length = view[properties_at - 2] << 8 | view[properties_at - 1]
    if properties_at + properties_length != end:
        reason = f"its fields add up to {properties_at + properties_length - position}, it says size {size}"
        return LogItem(Finding.DAMAGED, offset, size, reason=reason)
    if force_record_crc:
        if not verify_property_crc(view[position:end]):
            return LogItem(Finding.DAMAGED, offset, size, reason="the CRC of the record is wrong or missing")
    elif check_crc and body_length and crc32(view[body_at : body_at + body_length]) != crc:
        return LogItem(Finding.DAMAGED, offset, size, reason="the CRC of the body is wrong")
    try:
        topic = str(view[at : at + topic_length], "utf-8")
    except UnicodeDecodeError:
        return LogItem(Finding.DAMAGED, offset, size, reason="the topic is no UTF-8 text")
    entry = LogEntry(
        offset,
        size,
        topic,
        queue_id,
        queue_offset,
        sys_flag,
        store_timestamp,
        bytes(view[properties_at:end]),
    )
    return LogItem(Finding.RECORD, offset, size, entry)


def properties_of(record: memoryview) -> bytes:
    """The property string of a whole record."""
    (sys_flag,) = _I32.unpack_from(record, 36)
    at = 84
    if sys_flag & BORN_HOST_V6:
        at += 12
    if sys_flag & STORE_HOST_V6:
        at += 12
    (body_length,) = _I32.unpack_from(record, at)
    at += 4 + body_length
    (magic,) = _I32.unpack_from(record, 4)
    at += 1 + record[at] if magic == MAGIC_V1 else 2 + (record[at] << 8 | record[at + 1])
    return bytes(record[at + 2 : at + 2 + (record[at] << 8 | record[at + 1])])


def store_time(view: memoryview) -> int:
    """The store timestamp of a record given as its bytes, of which the first `RECORD_HEAD` will do, ms."""
    (sys_flag,) = _I32.unpack_from(view, 36)
    timestamp: int = _I64.unpack_from(view, 68 if sys_flag & BORN_HOST_V6 else 56)[0]
    return timestamp


def queue_tags_code(topic: str, properties: bytes, store_timestamp: int, delays: tuple[int, ...]) -> int:
    """The tags code of a record's queue unit (store.md §5.3).

    Args:
        topic: as stored.
        properties: the property string.
        store_timestamp: ms.
        delays: ms of each delay level, level 1 first.
    """
    if topic == names.SCHEDULE_TOPIC:
        when = deliver_time(properties, store_timestamp, delays)
        if when is not None:
            return when
    return tags_code(get_property(properties, names.TAGS))


def deliver_time(properties: bytes, store_timestamp: int, delays: tuple[int, ...]) -> int | None:
    """When a message of the schedule topic is due, ms; None without a delay level."""
    text = get_property(properties, names.DELAY)
    if text is None or not text.isascii() or not text.isdigit():
        return None
    level = min(int(text), len(delays))
    if level <= 0:
        return None
    return store_timestamp + delays[level - 1]
