"""Copies of stored records for another queue: delivered late, tried again, committed."""

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
    """Copy of a record, to be stored.

    Args:
        record: the record.
        topic: where the copy goes.
        queue_id: the queue.
        properties: those it is found by; also those it has, without `text`.
        text: its encoded properties.
        sys_flag: by default the record's.
        reconsume_times: by default the record's.
        half_offset: log offset of the half message it commits, 0 for none.
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
