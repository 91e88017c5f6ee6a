"""Runs of ordinary records read from a segment, and their queue units: the pure twins (store.md §3.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tianzhou._hot.cursors import Pending
from tianzhou.records.checksum import full_crc32
from tianzhou.records.layout import (
    BLANK_SIZE,
    END_OFFSET,
    HEAD_SIZE,
    HOST_BITS,
    INNER_BATCH_BITS,
    MAGIC_V1,
    OVERHEAD,
    TRANSACTION_BITS,
    fields_at,
)

Row = tuple[int, int, str, int, int, int, int, bytes]
"""A record: its offset in the log, size, topic, queue, queue offset, system flags, store time in ms and properties."""

_LOOKED_FOR: Final = (b"UNIQ_KEY", b"KEYS", b"TAGS", b"WAIT")
_HEAD: Final = fields_at(
    "size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp",
    "body_size",
)  # fmt: skip


def next_run(
    view: memoryview, position: int, base: int, stop: int, most: int, check_crc: bool
) -> tuple[list[Row], int, int]:
    """Return the ordinary records from a position on, up to the first that is not ordinary.

    An ordinary record is an intact record of version 1 with IPv4 hosts and without zeros in topic and properties.

    Args:
        view: the segment.
        position: start of the first record in it.
        base: the segment's start offset.
        stop: position; records that begin at or after it are left.
        most: maximum number of records.
        check_crc: whether to compare bodies with their CRCs.

    Returns:
        The records, the position after them, and the newest store time of them, ms.
    """
    rows: list[Row] = []
    add, unpack = rows.append, _HEAD.unpack_from
    last = len(view) - BLANK_SIZE
    stop = min(last - OVERHEAD + 1, stop)
    newest, name, topic = 0, b"", ""
    while position < stop and len(rows) < most:
        size, magic, crc, queue_id, queue_offset, place, flags, stored, body_size = unpack(view, position)
        body_end = position + HEAD_SIZE + body_size
        end = position + size
        if magic != MAGIC_V1 or place != base + position or flags & HOST_BITS or body_size < 0 or end > last:
            break
        rest = bytes(view[body_end:end])
        if len(rest) < 3:
            break
        at = rest[0] + 3
        if at > len(rest) or rest[at - 2] << 8 | rest[at - 1] != len(rest) - at:
            break
        properties = rest[at:]
        if 0 in properties:
            break
        if check_crc and body_size and full_crc32(view[position + HEAD_SIZE : body_end]) & 0x7FFFFFFF != crc:
            break
        if rest[1 : at - 2] != name:
            name = rest[1 : at - 2]
            if 0 in name:
                break
            try:
                topic = name.decode()
            except UnicodeDecodeError:
                break
        add((place, size, topic, queue_id, queue_offset, flags, stored, properties))
        if stored > newest:
            newest = stored
        position = end
    return rows, position, newest


def take_rows(
    rows: list[Row], at: int, table: dict[str, dict[int, Any]], pending: deque[Pending], tags_code: Callable[[str], int]
) -> int:
    """Add a copied log's records to their queues, up to the first record that is not plain.

    A record is plain when its queue exists and is an ordinary one, its queue offset is valid, it belongs neither to a
    transaction nor to an inner batch, and no property occurs twice.

    Args:
        rows: the records.
        at: index of the first record in `rows`.
        table: queues by topic and number.
        pending: receives the items to dispatch.
        tags_code: returns the code of a tag.

    Returns:
        The index of the first record left.
    """
    while at < len(rows):
        offset, size, topic, queue_id, queue_offset, flags, stored, properties = rows[at]
        queue = table.get(topic, {}).get(queue_id)
        if queue is None or not queue.plain or queue.delayed or flags & (TRANSACTION_BITS | INNER_BATCH_BITS):
            break
        if not 0 <= queue_offset < END_OFFSET:
            break
        found = dict.fromkeys(_LOOKED_FOR, b"")
        seen: set[bytes] = set()
        for pair in properties.split(b"\x02"):
            name, mark, value = pair.partition(b"\x01")
            if pair and (not mark or name in seen):
                return at
            if name in found:
                seen.add(name)
                found[name] = value
        unique, keys, tag, _ = found.values()
        if not tag.isascii():
            break
        queue.next_offset = queue_offset + 1
        texts = unique.decode("utf-8", "replace"), keys.decode("utf-8", "replace")
        pending.append((queue, queue_offset, offset, size, tags_code(tag.decode()), stored, 0, *texts))
        at += 1
    return at
