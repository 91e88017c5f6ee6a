"""Recovery of staging from the log at a start (docs/adr/0006)."""

from __future__ import annotations

import logging
from dataclasses import replace
from struct import error as struct_error
from typing import Final

from tianzhou.broker.staging import staging_records as records
from tianzhou.broker.staging.log_entries import OpenAttempt, StagingSnapshot
from tianzhou.broker.staging.staging import StagedUnit, StagingLedger
from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.model import names
from tianzhou.records.codec import decode_record, properties_of, store_time
from tianzhou.records.layout import fields_at
from tianzhou.store.results import ReadRequest
from tianzhou.store.store import MessageStore

_log = logging.getLogger(__name__)
_SLICE = 32
_PLACES: Final = fields_at("queue_offset", "physical_offset")


def read_history(store: MessageStore) -> records.StagingHistory:
    """Return the last snapshot and the notes after it."""
    topic, history = names.STAGED_OP_TOPIC, records.StagingHistory()
    low, offset = max(store.min_offset(topic, records.QUEUE), 0), store.max_offset(topic, records.QUEUE)
    while offset > low:
        offset -= 1
        for view in store.read(ReadRequest(topic, records.QUEUE, offset, 1), blocks=True).parts[:1]:
            try:
                record = decode_record(view)
                # After a power failure the queue may have a gap, and the read returns the record after it.
                if record.queue_offset == offset and not history.add(record):
                    return history
            except (CorruptRecord, ProtocolError) as error:
                _log.error("%s: the note at offset %d is left out: %s", topic, offset, error)
    return history


def read_units(store: MessageStore, offset: int) -> list[StagedUnit]:
    """Return the units from an offset of their queue on, without decoding their messages."""
    topic = names.STAGED_TOPIC
    found: list[StagedUnit] = []
    offset = max(offset, store.min_offset(topic, records.QUEUE), 0)
    end = store.max_offset(topic, records.QUEUE)
    while offset < end:
        got = store.read(ReadRequest(topic, records.QUEUE, offset, _SLICE), blocks=True)
        for view in got.parts:
            try:
                queue_offset, place = _PLACES.unpack_from(view)
                unit = records.unit_of(properties_of(view), queue_offset, place, store_time(view))
            except (struct_error, IndexError):
                _log.error("%s: a unit after offset %d is left out: it is no record", topic, offset)
                continue
            if unit is not None:
                found.append(unit)
        offset = max(got.next_offset, offset + 1)
    return found


def still_there(store: MessageStore, snapshot: StagingSnapshot) -> StagingSnapshot:
    """Return a snapshot without the units that the log lost, for example in a power failure."""
    states = [replace(state, open=[_present(store, attempt) for attempt in state.open]) for state in snapshot.writers]
    return replace(snapshot, writers=states)


def _present(store: MessageStore, attempt: OpenAttempt) -> OpenAttempt:
    units = []
    for number, offset, place in zip(*(iter(attempt.units),) * 3, strict=True):
        parts = store.read(ReadRequest(names.STAGED_TOPIC, records.QUEUE, offset, 1), blocks=True).parts[:1]
        if any(_PLACES.unpack_from(view) == (offset, place) for view in parts):
            units += [number, offset, place]
        else:
            _log.error("%s: unit %d of attempt %s is lost", names.STAGED_TOPIC, number, attempt.name)
    return replace(attempt, units=units)


def find_published(store: MessageStore, ledger: StagingLedger, writers: list[str]) -> None:
    """Set the unique keys of already published messages in the publications of some writers."""
    known = [writer for name in writers if (writer := ledger.get(name)) is not None]
    publications = [writer.publication for writer in known if writer.publication is not None]
    if not publications:
        return
    places = {unit.place for publication in publications for unit in publication.units}
    begin = max(min(publication.place for publication in publications), store.begin_offset)
    found = set(records.published_keys(map(decode_record, store.lookups.records_from(begin)), places))
    for publication in publications:
        publication.found = found
