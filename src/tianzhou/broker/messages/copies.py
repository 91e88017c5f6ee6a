"""Copies of stored records for another queue: delayed, retried and committed messages."""

from __future__ import annotations

from collections.abc import Mapping

from tianzhou.model import names
from tianzhou.records.codec import Record
from tianzhou.store.results import NewRecord
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import encode_properties


def copy_of(
    record: Record,
    topic: str,
    queue_id: int,
    properties: Mapping[str, str],
    *,
    text: bytes | None = None,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    half_offset: int = 0,
) -> NewRecord:
    """Return a copy of a record, to be stored.

    Args:
        record: the record.
        topic: topic of the copy.
        queue_id: queue of the copy.
        properties: properties for the index and the tags code; without `text` also the copy's properties.
        text: the copy's encoded properties.
        sys_flag: system flag; by default the record's.
        reconsume_times: number of retries; by default the record's.
        half_offset: log offset of the committed half message, 0 for none.
    """
    return NewRecord(
        topic,
        queue_id,
        record.body,
        encode_properties(properties) if text is None else text,
        record.flag,
        record.sys_flag if sys_flag is None else sys_flag,
        record.born_timestamp,
        record.born_host,
        record.born_port,
        record.reconsume_times if reconsume_times is None else reconsume_times,
        half_offset,
        tags_code(properties.get(names.TAGS)),
        properties.get(names.KEYS, ""),
        properties.get(names.UNIQ_KEY, ""),
    )
