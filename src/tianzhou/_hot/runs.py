"""Runs of ordinary records out of a segment: the pure twin of the compiled function (store.md §3.5)."""

from __future__ import annotations

from typing import Final

from tianzhou.records.checksum import full_crc32
from tianzhou.records.layout import BLANK_SIZE, HEAD_SIZE, HOST_BITS, MAGIC_V1, OVERHEAD, fields_at

Row = tuple[int, int, str, int, int, int, int, bytes]
"""A record: its offset in the log, size, topic, queue, queue offset, system flags, store time in ms and properties."""

_HEAD: Final = fields_at(
    "size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp",
    "body_size",
)  # fmt: skip


def next_run(
    view: memoryview, position: int, base: int, stop: int, most: int, check_crc: bool
) -> tuple[list[Row], int, int]:
    """The ordinary records from a place on, up to the first that is not.

    Ordinary is an intact record of version 1 with IPv4 hosts and without zeros in topic and properties.

    Args:
        view: the segment.
        position: where in it a record may begin.
        base: the segment's start offset.
        stop: records that begin at or behind this position are left.
        most: and more than so many.
        check_crc: compare bodies with their CRCs.

    Returns:
        The records, the position behind them, and the newest store time of them, ms.
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
