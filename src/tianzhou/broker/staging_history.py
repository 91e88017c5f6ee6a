"""Reading back what staging has left in the log: for a start (docs/adr/0006)."""

from __future__ import annotations

import logging

from tianzhou.broker import staging_records as records
from tianzhou.broker.staging import StagedUnit, StagingLedger
from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.model import names
from tianzhou.store.store import MessageStore
from tianzhou.wire.record import decode_record

_log = logging.getLogger(__name__)
_SLICE = 32


def read_history(store: MessageStore) -> records.History:
    """The notes since the last snapshot, and the snapshot."""
    topic, history = names.STAGED_OP_TOPIC, records.History()
    low, offset = max(store.min_offset(topic, records.QUEUE), 0), store.max_offset(topic, records.QUEUE)
    while offset > low:
        offset -= 1
        for view in store.get(topic, records.QUEUE, offset, 1).parts[:1]:
            try:
                record = decode_record(view)
                # Where a power failure has left a gap, the record behind it comes.
                if record.queue_offset == offset and not history.add(record):
                    return history
            except (CorruptRecord, ProtocolError) as error:
                _log.error("%s: the note at offset %d is left out: %s", topic, offset, error)
    return history


def read_units(store: MessageStore, offset: int) -> list[StagedUnit]:
    """The units from an offset of their queue on."""
    topic = names.STAGED_TOPIC
    found: list[StagedUnit] = []
    offset = max(offset, store.min_offset(topic, records.QUEUE), 0)
    end = store.max_offset(topic, records.QUEUE)
    while offset < end:
        got = store.get(topic, records.QUEUE, offset, _SLICE)
        for view in got.parts:
            try:
                record = decode_record(view)
            except CorruptRecord as error:
                _log.error("%s: a unit after offset %d is left out: %s", topic, offset, error)
                continue
            unit = records.unit_of(
                record.properties, record.queue_offset, record.physical_offset, record.store_timestamp
            )
            if unit is not None:
                found.append(unit)
        offset = max(got.next_offset, offset + 1)
    return found


def find_published(store: MessageStore, ledger: StagingLedger, writers: list[str]) -> None:
    """Tell the publications of some writers which of their messages the log has already."""
    known = [writer for name in writers if (writer := ledger.get(name)) is not None]
    publications = [writer.publication for writer in known if writer.publication is not None]
    if not publications:
        return
    places = {unit.place for publication in publications for unit in publication.units}
    begin = max(min(publication.place for publication in publications), store.begin_offset)
    found = set(records.published_keys(map(decode_record, store.records_from(begin)), places))
    for publication in publications:
        publication.found = found
