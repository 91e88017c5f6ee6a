"""The check whether an entry of a DLedger log is undamaged, before it is copied to others (docs/adr/0016)."""

from __future__ import annotations

import logging
from enum import Enum, auto

from tianzhou.records.entry import HEADER, HEADER_SIZE, MAGIC, EntryHeader
from tianzhou.records.framed import entry_at
from tianzhou.records.layout import MAGICS, PLACE
from tianzhou.records.walk import is_whole
from tianzhou.store.entries.framed_log import FramedLog

logger = logging.getLogger(__name__)


class Verdict(Enum):
    """The result of the check of an entry."""

    WHOLE = auto()
    RECORD_BROKEN = auto()
    HEADER_BROKEN = auto()


def judge_entry(log: FramedLog, unit: EntryHeader, *, unit_fits: bool) -> Verdict:
    """Check an entry by its unit and its record; a body that is no record counts as whole.

    A broken header of a whole record is rebuilt from the unit, when that fits.

    Args:
        log: the log.
        unit: the entry's unit in the index.
        unit_fits: whether the unit's term is between those of its neighbours.
    """
    segment, body = log.files.find(unit.pos), unit.pos + HEADER_SIZE
    if segment is None or unit.end > segment.end:
        return Verdict.HEADER_BROKEN
    at = unit.pos - segment.start
    is_checked = body in log.checked
    if not is_checked and unit.body_size >= PLACE.size:
        size, magic, place = PLACE.unpack_from(segment.view, at + HEADER_SIZE)
        if size == unit.body_size or magic in MAGICS or place == body:
            if size != unit.body_size or not is_whole(segment.view, at + HEADER_SIZE, segment.start):
                return Verdict.RECORD_BROKEN
            is_checked = True
            log.checked.add(body)
    header = entry_at(segment.view, at, segment.start)
    if not isinstance(header, str) and (header.index, header.term, header.size) == (unit.index, unit.term, unit.size):
        return Verdict.WHOLE
    if not is_checked or not unit_fits:
        return Verdict.HEADER_BROKEN
    logger.error("the header of entry %d at %d of the log was broken; it is made again", unit.index, unit.pos)
    HEADER.pack_into(segment.map, at, MAGIC, unit.size, unit.index, unit.term, unit.pos, 0, 0, 0, unit.body_size)
    return Verdict.WHOLE
