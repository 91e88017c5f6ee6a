"""Rows of a store's files: selection of rows while a broker writes."""

from __future__ import annotations

from datetime import datetime

import pytest

pytest.importorskip("pyspark")

from written_store import TOPIC, offsets_of, rows_of

from tianzhou.errors import StoreUnreadable
from tianzhou.spark.store.store_files import StoreFiles, root_of
from tianzhou.wire.compression import COMPRESSED, LZ4, ZLIB, ZSTD, compress

pytestmark = pytest.mark.usefixtures("way")


def test_a_running_broker_is_followed(store):
    store.add(150)
    files = StoreFiles(store.root)
    assert offsets_of(rows_of(files, columns="queueOffset LONG")) == list(range(150))
    store.add(250)
    files.look()
    assert offsets_of(rows_of(files, columns="queueOffset LONG")) == list(range(400))
    [row, *_] = rows_of(files)
    assert (row["topic"], row["queueId"], row["brokerName"], row["body"]) == (TOPIC, 0, None, b"body 0")
    assert isinstance(row["storeTimestamp"], datetime)


def test_any_subset_of_columns_in_any_order(store):
    store.add(3, tag="A")
    files = StoreFiles(store.root, broker_name="broker-a")
    assert rows_of(files, columns="body STRING, tags STRING, queueOffset LONG, brokerName STRING")[1] == {
        "body": "body 1",
        "tags": "A",
        "queueOffset": 1,
        "brokerName": "broker-a",
    }


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_compressed_bodies_are_unpacked(store, kind):
    body = b"again and again " * 500
    store.add(5, body=compress(body, kind), sys_flag=COMPRESSED | kind)
    assert {row["body"] for row in rows_of(StoreFiles(store.root), verify_crc=True)} == {body}


def test_tags_select(store):
    for tag in ("A", "B", "C", ""):
        store.add(10, tag=tag)
    files = StoreFiles(store.root)
    assert {row["tags"] for row in rows_of(files, tags="A || C")} == {"A", "C"}
    assert len(rows_of(files, tags="A || C")) == 20
    assert rows_of(files, tags="other") == []


def test_a_key_is_found_by_the_index_and_behind_it(store):
    store.add(120, key="k1 k2")
    store.add(1, key="wanted k1")
    store.add(120, key="k3", queue=1)
    store.add(1, key="wanted", queue=1)
    files = StoreFiles(store.root)
    rows = rows_of(files, key="wanted")
    assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == [(0, 120), (1, 120)]
    hits, indexed = files.lookup(TOPIC, "wanted")
    found = {}
    for queue in files.queues([TOPIC]):
        slots = {slot for low, high in files.find(queue, hits, indexed) for slot in range(low, high)}
        assert 120 in slots
        found[queue.queue_id] = len(slots)
    store.close()
    files = StoreFiles(store.root)
    hits, indexed = files.lookup(TOPIC, "wanted")
    assert [files.find(queue, hits, indexed) for queue in files.queues([TOPIC])] == [[(120, 121)], [(120, 121)]]


def test_a_key_is_found_where_the_index_has_nothing(store):
    """For messages older than the first index file, and for an index with a missing file."""
    for number in range(900):
        store.add(1, key=f"k{number % 100}", body=b"%d" % number)
    store.close()
    paths = sorted(store.root.joinpath("index").iterdir())
    assert len(paths) > 3
    wanted = [number for number in range(900) if number % 100 == 7]
    for gone in (paths[0], paths[2]):
        gone.unlink()
        files = StoreFiles(store.root)
        hits, indexed = files.lookup(TOPIC, "k7")
        [queue] = files.queues([TOPIC])
        ranges = files.find(queue, hits, indexed)
        assert ranges == sorted(ranges)
        slots = [slot for low, high in ranges for slot in range(low, high)]
        assert len(slots) == len(set(slots)) < 900
        assert set(wanted) <= set(slots)


def test_what_is_no_store_is_named(tmp_path):
    with pytest.raises(StoreUnreadable, match="no such folder"):
        root_of(tmp_path / "missing")
    with pytest.raises(StoreUnreadable, match="is no store, it has neither commitlog/ nor checkpoint"):
        root_of(tmp_path)
