"""The short way through the log at a start: records that are as nearly all are, millions of them (store.md §10.3).

What is unusual in any way is left to the long way, which knows everything; the two give the same queues and index.
"""

from __future__ import annotations

import struct
from typing import Final

from tianzhou.model import names
from tianzhou.store.files.segments import Segment
from tianzhou.store.index.index import Index
from tianzhou.store.log.record_scan import TRANSACTION_BITS, queue_tags_code
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.queues import QueueTable
from tianzhou.wire.hashing import crc32
from tianzhou.wire.properties import get_property
from tianzhou.wire.record import BLANK_SIZE, BORN_HOST_V6, MAGIC_V1, STORE_HOST_V6

# Size, magic, CRC, queue, queue offset, place, system flag, store time, body length (store.md §3.2).
_HEAD: Final = struct.Struct(">iiii4xqqi16xq20xi")
_INNER_AND_BATCH: Final = 0xC0
_UNUSUAL: Final = TRANSACTION_BITS | BORN_HOST_V6 | STORE_HOST_V6 | _INNER_AND_BATCH


class UsualRecords:
    """Checks runs of usual records, and puts into queues and index what these do not have.

    Args:
        queues: of the store; a topic's first record goes the long way, which makes its queue. None when the records
            are in their queues and only the index needs them.
        index: None when there is none.
        delays: ms of each delay level.
        check_crc: compare bodies with their CRCs.

    Attributes:
        index_until: records from this log offset on are not indexed.
        records: how many were passed.
        dispatched: how many of them got a queue unit.
        newest: store time of the newest of them, ms.
    """

    def __init__(
        self, queues: QueueTable | None, index: Index | None, delays: tuple[int, ...], *, check_crc: bool
    ) -> None:
        self._queues = queues
        self._index = index
        self._delays = delays
        self._check_crc = check_crc
        self._places: dict[tuple[bytes, int], tuple[ConsumeQueue | None, str]] = {}
        self.index_until = 1 << 63
        self.records = 0
        self.dispatched = 0
        self.newest = 0

    def _place(self, topic: bytes, queue_id: int) -> tuple[ConsumeQueue | None, str] | None:
        try:
            text = topic.decode()
        except UnicodeDecodeError:
            return None
        queue = None
        if self._queues is not None:
            queue = self._queues.get(text, {}).get(queue_id)
            if queue is None or type(queue) is not ConsumeQueue:
                return None
        place = self._places[topic, queue_id] = (queue, text)
        return place

    def run(self, segment: Segment, position: int, upto: int = 1 << 63, most: int = 1 << 63) -> int:
        """Go on from a position in a segment; gives the position of the first record that is not usual.

        Args:
            segment: where.
            position: of a record in it.
            upto: records that begin at or behind this position are left.
            most: and more than so many.
        """
        view, base, check_crc, places = segment.view, segment.start, self._check_crc, self._places
        last = len(view) - BLANK_SIZE
        stop = min(last - _HEAD.size, upto)
        index, index_until = self._index, self.index_until
        begin = position
        unpack = _HEAD.unpack_from
        records = dispatched = 0
        while position < stop and records < most:
            size, magic, crc, queue_id, offset, place, flags, stored, length = unpack(view, position)
            body_end = position + 88 + length
            end = position + size
            if magic != MAGIC_V1 or place != base + position or flags & _UNUSUAL or length < 0:
                break
            if end > last or body_end + 3 > end:
                break
            topic_length = view[body_end]
            at = body_end + 3 + topic_length
            if at > end or view[at - 2] << 8 | view[at - 1] != end - at:
                break
            if check_crc and length and crc32(view[position + 88 : body_end]) != crc:
                break
            rest = bytes(view[body_end + 1 : end])
            properties = rest[topic_length + 2 :]
            if b"\0" in properties:
                break
            topic = rest[:topic_length]
            known = places.get((topic, queue_id)) or self._place(topic, queue_id)
            if known is None:
                break
            queue, text = known
            if queue is not None and base + end > queue.max_physical:
                if offset != queue.max_offset:
                    break
                tags = 0
                if queue.delayed or b"TAGS\x01" in properties:
                    tags = queue_tags_code(text, properties, stored, self._delays)
                if queue.put(offset, place, size, tags, stored):
                    dispatched += 1
                    queue.dirty = True
            if index is not None and index.end_offset <= place < index_until:
                keys = get_property(properties, names.KEYS) if b"KEYS\x01" in properties else None
                index.put(text, get_property(properties, names.UNIQ_KEY) or "", keys or "", place, stored)
            if stored > self.newest:
                self.newest = stored
            records += 1
            position = end
        self.records += records
        self.dispatched += dispatched
        return position if records else begin
