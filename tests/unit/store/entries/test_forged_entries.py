"""Messages of clients that would pass for entries of the group itself: openings of terms, changes of tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from group_of_one import all_entries, commit, group_store, lead
from small_store import opened

from tianzhou.records.change import CHANGE_PROPERTIES, CHANGE_QUEUE, CHANGE_TOPIC, is_change
from tianzhou.records.codec import decode_record
from tianzhou.records.entry import HEADER_SIZE
from tianzhou.records.layout import PREPARED
from tianzhou.store import MessageStore, NewRecord, PutResult, PutStatus, RecordBatch
from tianzhou.wire.batch import encode_batch

BODY = b'{"deleted": {"topic": ["orders"]}}'
FORGED = NewRecord(CHANGE_TOPIC, CHANGE_QUEUE, BODY, CHANGE_PROPERTIES, sys_flag=PREPARED)


def batch(store: MessageStore) -> PutResult:
    return store.append(RecordBatch(FORGED, [(0, BODY, CHANGE_PROPERTIES)]))


def encoded_batch(store: MessageStore) -> PutResult:
    return store.append(RecordBatch(FORGED, encode_batch([(0, BODY, CHANGE_PROPERTIES)])))


def in_a_further_queue(store: MessageStore) -> PutResult:
    properties = CHANGE_PROPERTIES + b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    return store.append(NewRecord(CHANGE_TOPIC, CHANGE_QUEUE, BODY, properties, sys_flag=PREPARED))


@pytest.mark.parametrize("send", [lambda store: store.append(FORGED), batch, encoded_batch, in_a_further_queue])
@pytest.mark.parametrize("changes", [{}, {"enable_multi_dispatch": True, "enable_lmq": True}])
@pytest.mark.parametrize("known", [True, False])
def test_no_client_can_write_an_entry_that_changes_tables(
    tmp_path: Path, send: Callable[[MessageStore], PutResult], changes: dict[str, Any], known: bool
) -> None:
    with opened(group_store(tmp_path, **changes)) as store:
        lead(store, 1)
        if known:
            assert store.append(NewRecord(CHANGE_TOPIC, CHANGE_QUEUE, b"x", b"")).status is PutStatus.PUT_OK
        result = send(store)
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        assert "message for topic 'TBW102' refused" in str(result.remark)
        commit(store)
        records = [decode_record(entry, HEADER_SIZE) for entry in all_entries(store)[1:]]
        assert not any(is_change(one.topic, one.queue_id, one.sys_flag) for one in records)
