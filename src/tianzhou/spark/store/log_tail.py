"""Units for records at the log's end that no queue has yet, as a broker makes them when it starts after a crash."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tianzhou.model import MessageQueue, names
from tianzhou.records.layout import PREPARED, ROLLBACK, TRANSACTION_BITS
from tianzhou.records.walk import LogEntry
from tianzhou.spark.store.mapped_files import BATCH_UNIT, UNIT
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.queues.multi_dispatch import stored_places
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property

if TYPE_CHECKING:
    from tianzhou.spark.store.store_files import StoreFiles

logger = logging.getLogger(__name__)

Place = tuple[str, int]
_WIDEST: Final = 1 << 20
"""Maximum consecutive units of size 0. They replace records that damage destroyed, so that readers report the loss."""


class _Tail(NamedTuple):
    """The end of a queue's files.

    Attributes:
        slot: slot after the last proved unit.
        offset: queue offset at that slot.
        physical: lowest commit log offset at which the next records can begin.
    """

    slot: int
    offset: int
    physical: int


@dataclass
class _Lacking:
    """Units that a queue's files lack, found by a walk over the log."""

    slot: int
    offset: int
    units: list[bytes]


def undispatched(store: StoreFiles, scan: StoreScan) -> dict[Place, tuple[int, bytes]]:
    """Return the units that queues lack.

    After a power failure one queue may have lost units while another queue still has later ones. So the walk begins at
    the checkpoint, before which all units are on disk, as a broker's does. It is repeated from an earlier offset if a
    queue lacks units before that.

    Returns:
        For every queue that lacks units, the slot of the first one and the units as bytes.
    """
    places = set(store.places(None))
    tails = {place: tail for place in places if (tail := _tail(store, place)) is not None}
    begin = _on_disk(store, tails, scan.checkpoint_time())
    while True:
        found, earlier = _walk(store, scan, tails, begin)
        if earlier >= begin:
            return {place: (lacking.slot, b"".join(lacking.units)) for place, lacking in found.items()}
        begin = earlier


def _tail(store: StoreFiles, place: Place) -> _Tail | None:
    """Return the end of a queue's files; None if the files have no proved unit."""
    files = store.files(*place)
    end = store.proved(MessageQueue(place[0], "store", place[1]), files, files.written())
    last = files.at(end - 1) if end > files.begin else None
    if last is None:
        return None
    there = not last.blank[0] and last.physical[0] >= store.log.begin
    physical = int(last.physical[0] + last.size[0]) if there else store.log.begin
    return _Tail(end, int(last.base[0] + last.count[0]), physical)


def _on_disk(store: StoreFiles, tails: dict[Place, _Tail], time_ms: int) -> int:
    """Return a commit log offset before which every record has its units.

    It is the end of the last record that was stored before a time.
    """
    found = store.log.begin
    for place, tail in tails.items() if time_ms > 0 else ():
        files = store.files(*place)
        begin = store.first(files, files.begin, tail.slot, store.log.begin)
        slot = store.slot_by_time(files, begin, tail.slot, time_ms) - 1
        while slot >= begin and store.time(files, slot) is None:
            slot -= 1
        unit = files.at(slot) if slot >= begin else None
        if unit is not None:
            found = max(found, int(unit.physical[0] + unit.size[0]))
    return found


def _walk(
    store: StoreFiles, scan: StoreScan, tails: dict[Place, _Tail], begin: int
) -> tuple[dict[Place, _Lacking], int]:
    """Return the units that queues lack of the records from a commit log offset on, and the lowest offset of a gap.

    If the second value is less than `begin`, the walk must be repeated from there.
    """
    found: dict[Place, _Lacking] = {}
    earlier = begin
    given_up: set[Place] = set()
    for item in scan.walk(begin):
        if item.entry is None or item.entry.sys_flag & TRANSACTION_BITS in {PREPARED, ROLLBACK}:
            continue
        entry = item.entry
        own = (entry.topic, entry.queue_id, entry.queue_offset)
        for topic, number, offset in [own, *stored_places(entry.topic, entry.queue_id, entry.properties)]:
            place = (topic, number)
            batched = store.is_batched(topic)
            lacking, tail = found.get(place), tails.get(place)
            known = lacking.offset if lacking is not None else tail.offset if tail is not None else 0
            if offset < known or place in given_up:
                continue
            if offset > known and lacking is None:
                earlier = min(earlier, store.log.begin if tail is None else tail.physical)
            slot = tail.slot if tail is not None else 0 if batched else offset
            if offset > known and not batched and (lacking is not None or tail is not None):
                # Damage destroyed records. Units of size 0 report them to readers. In a BatchCQ queue the gap in the
                # offsets does.
                if offset - known > _WIDEST:
                    given_up.add(place)
                    logger.warning(
                        "%s/%d: behind offset %d the log goes on at %d; what follows is not read before a broker has "
                        "been started on the store",
                        *place,
                        known - 1,
                        offset,
                    )
                    continue
                missing = np.array([(entry.offset, 0, 0)] * (offset - known), UNIT).tobytes()
            else:
                missing = b""
            if lacking is None:
                lacking = found[place] = _Lacking(slot, offset, [])
            unit, count = _unit(entry, offset, batched)
            lacking.units.append(missing + unit)
            lacking.offset = offset + count
    return found, earlier


def _unit(entry: LogEntry, offset: int, batched: bool) -> tuple[bytes, int]:
    """Return a record's unit, and its number of messages."""
    code = tags_code(get_property(entry.properties, names.TAGS))
    if not batched:
        return np.array([(entry.offset, entry.size, code)], UNIT).tobytes(), 1
    count = int(get_property(entry.properties, "INNER_NUM") or 1)
    unit = (entry.offset, entry.size, code, entry.store_timestamp, offset, count, -1, b"")
    return np.array([unit], BATCH_UNIT).tobytes(), count
