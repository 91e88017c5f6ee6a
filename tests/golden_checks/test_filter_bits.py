"""Filters and their bits as Apache's broker left them: read, written and computed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_stores import settings_of, unpacked

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.broker.messages.message_filter import bitmap_of, by_entry
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.tables.consumer_filters import ConsumerFilters
from tianzhou.filter import BloomFilter
from tianzhou.records.codec import decode_records
from tianzhou.store import MessageStore
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.queues.extension import ExtendedQueue, ExtensionUnit
from tianzhou.wire.json_dialect import loads

TOPIC = "N5Sql"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The store's folder."""
    return unpacked("cqext", tmp_path)


def filters_in(root: Path) -> ConsumerFilters:
    table = ConsumerFilters(BloomFilter(20, 32), 0)
    table.load(loads((root / "config" / "consumerFilter.json").read_bytes()))
    return table


def test_the_file_comes_back_as_it_was(root: Path) -> None:
    table = filters_in(root)
    assert table.to_json() == json.loads((root / "config" / "consumerFilter.json").read_bytes())
    assert all(entry.bloom == table.bloom.data(f"{entry.group}#{TOPIC}") for entry in table.of_topic(TOPIC))


def test_every_record_has_the_bits_we_would_give_it_and_is_selected_by_them(root: Path) -> None:
    table = filters_in(root)
    settings = BrokerSettings(enable_calc_filter_bit_map=True)
    store = MessageStore(settings_of("cqext", root))
    store.open()
    judged = 0
    try:
        for number, queue in enumerate(StoreProbe(store).queues(TOPIC)):
            assert isinstance(queue, ExtendedQueue)
            for offset in range(queue.min_offset, queue.max_offset):
                found = queue.unit(offset)
                assert found is not None
                unit, record = queue.extension.get(found[2]), at_once(store.lookups.record_steps(found[0]))
                assert unit is not None
                assert record is not None
                if not unit.bitmap:
                    continue
                made = bitmap_of(settings, table, TOPIC, record)
                assert made == unit.bitmap, (number, offset)
                judged += 1
            for entry in table.of_topic(TOPIC):
                check_selection(store, number, table, entry.group)
    finally:
        store.close_now()
    assert judged > 20


def check_selection(store: MessageStore, queue_id: int, table: ConsumerFilters, group: str) -> None:
    """Check that reads by filter bits return the same as reads by records."""
    entry = table.find(TOPIC, group)
    assert entry is not None
    _, accept, accept_unit, _ = by_entry(entry, table)
    assert accept is not None
    assert accept_unit is not None
    refused = []

    def watched(unit: ExtensionUnit) -> bool:
        accepted = accept_unit(unit)
        refused.append(not accepted)
        return accepted

    def read(**how: object) -> list[int]:
        offset, offsets = 0, []
        while offset < store.max_offset(TOPIC, queue_id):
            got = read_now(store, TOPIC, queue_id, offset, 32, accept=accept, **how)  # type: ignore[arg-type]
            offsets += [record.queue_offset for record in decode_records(b"".join(got.parts))]
            offset = got.next_offset
        return offsets

    assert read(accept_unit=watched) == read()
    assert any(refused)
