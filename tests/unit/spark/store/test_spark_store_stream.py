"""A stream over a store's files: broker names, deleted topics, a crashed store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from written_store import TOPIC, Store, copied, offsets_of, schema_of

from tianzhou.spark.option_values import STREAM
from tianzhou.spark.source.offsets import DataLoss
from tianzhou.spark.store import store_source
from tianzhou.spark.store.store_options import parse_store
from tianzhou.spark.store.store_source import StoreStreamReader

pytestmark = pytest.mark.usefixtures("way")


def stream_of(root: Path, **more) -> StoreStreamReader:
    options = {"storePath": str(root), "subscribe": TOPIC, "startingOffsets": "earliest", **more}
    return StoreStreamReader(parse_store(options, STREAM), schema_of("queueOffset LONG"))


def next_batch(stream: StoreStreamReader, start: dict) -> tuple[dict, list[int]]:
    """Return the end of the next micro-batch, and the offsets of its rows."""
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    found = [table for task in stream.partitions(start, end) for table in stream.read(task)]
    return end, sorted(offsets_of(row for table in found for row in table.to_pylist()))


@pytest.mark.parametrize(("before", "after"), [("", "broker-a"), ("broker-a", ""), ("broker-a", "broker-b")])
def test_a_stream_whose_broker_is_named_later_goes_on(store, before, after):
    store.add(10)
    first = stream_of(store.root, brokerName=before)
    end, rows = next_batch(first, first.initialOffset())
    assert rows == list(range(10))
    assert next_batch(stream_of(store.root, brokerName=after), end) == (end, [])
    store.add(4)
    then = stream_of(store.root, brokerName=after)
    end, rows = next_batch(then, end)
    assert rows == list(range(10, 14))
    assert list(end["end"]) == [f"{TOPIC}@{after or 'store'}:0"]


def test_a_batch_written_down_under_the_old_name_is_run_again_whole(store):
    store.add(10)
    first = stream_of(store.root)
    begin = first.initialOffset()
    logged = first.latestOffset(begin, first.getDefaultReadLimit())
    again = stream_of(store.root, brokerName="broker-a")
    found = [table for task in again.partitions(begin, logged) for table in again.read(task)]
    assert sorted(offsets_of(row for table in found for row in table.to_pylist())) == list(range(10))


def test_positions_under_two_names_are_those_of_one_queue(store):
    store.add(14)
    both = {f"{TOPIC}@store:0": 10, f"{TOPIC}@broker-a:0": 14}
    assert next_batch(stream_of(store.root), {"from": both, "end": both})[1] == []


@pytest.fixture
def soon(monkeypatch):
    """Treat missing files as deleted immediately."""
    monkeypatch.setattr(store_source, "GONE_AFTER_S", 0.0)


@pytest.mark.usefixtures("soon")
def test_a_stream_whose_topic_is_deleted_fails_with_the_loss(store):
    store.add(10)
    store.add(3, queue=1)
    store.add(5, topic="other")
    stream = stream_of(store.root, subscribe=f"{TOPIC},other", maxOffsetsPerTrigger="12")
    end, _ = next_batch(stream, stream.initialOffset())
    store.close()
    shutil.rmtree(store.root / "consumequeue" / TOPIC)
    with pytest.raises(
        DataLoss, match=r"of orders@store:0 from offset \d+ .*no such queue any more, as when its topic is del"
    ):
        next_batch(stream, end)
    with pytest.raises(DataLoss, match=r"all messages of orders@store:0 from offset .* on are lost: the store has no"):
        next_batch(stream_of(store.root, subscribe=f"{TOPIC},other"), end)
    with pytest.raises(
        DataLoss, match="2 messages of orders@store:1 from offset 1 to 2 are lost: the store has no such"
    ):
        stream.partitions({}, {"from": {f"{TOPIC}@store:1": 1}, "end": {f"{TOPIC}@store:1": 3}})


@pytest.mark.usefixtures("soon")
def test_a_stream_may_go_on_without_its_topic(store, caplog):
    store.add(10)
    store.add(5, topic="other")
    both = {"subscribe": f"{TOPIC},other", "failOnDataLoss": "false"}
    stream = stream_of(store.root, **both)
    end, _ = next_batch(stream, stream.initialOffset())
    store.close()
    shutil.rmtree(store.root / "consumequeue" / TOPIC)
    end, rows = next_batch(stream, end)
    assert (rows, list(end["end"])) == ([], ["other@store:0"])
    assert caplog.text.count("skipped, for failOnDataLoss=false: orders@store:0 is lost at offset 10") == 1
    assert next_batch(stream, end) == (end, [])
    assert caplog.text.count("skipped") == 1


@pytest.mark.usefixtures("soon")
def test_a_topic_the_stream_does_not_want_any_more_may_go(store):
    store.add(10)
    store.add(5, topic="other")
    first = stream_of(store.root, subscribe=f"{TOPIC},other")
    end, _ = next_batch(first, first.initialOffset())
    store.close()
    shutil.rmtree(store.root / "consumequeue" / TOPIC)
    assert next_batch(stream_of(store.root, subscribe="other"), end) == (end, [])


def test_a_queue_that_is_created_again_is_waited_for(store, monkeypatch):
    store.add(10)
    stream = stream_of(store.root)
    end, _ = next_batch(stream, stream.initialOffset())
    store.close()
    folder = store.root / "consumequeue" / TOPIC
    folder.rename(store.root / "aside")
    monkeypatch.setattr(store_source.time, "sleep", lambda _: (store.root / "aside").rename(folder))
    assert next_batch(stream, end) == (end, [])


def test_a_stream_on_a_crashed_store_goes_on_with_its_broker(store, tmp_path):
    store.add(230)
    copy = copied(store, tmp_path, f"consumequeue/{TOPIC}")
    stream = stream_of(copy)
    end, rows = next_batch(stream, stream.initialOffset())
    assert rows == list(range(230))
    again = Store(copy)
    try:
        assert next_batch(stream, end) == (end, [])
        again.add(70)
        end, rows = next_batch(stream, end)
        assert rows == list(range(230, 300))
        again.add(1)
        assert next_batch(stream, end)[1] == [300]
    finally:
        again.close()


def test_a_topic_made_again_with_more_messages_is_named(new_store):
    first, second = new_store(), new_store()
    first.add(10)
    end, rows = next_batch(stream_of(first.root), stream_of(first.root).initialOffset())
    assert len(rows) == 10
    assert next_batch(stream_of(first.root), end) == (end, [])
    second.add(30)
    with pytest.raises(DataLoss, match="orders@store:0 holds other messages than those that were read up to offset 10"):
        next_batch(stream_of(second.root), end)
    again = stream_of(second.root, failOnDataLoss="false")
    after, rows = next_batch(again, end)
    assert rows == list(range(30))
    assert next_batch(again, after) == (after, [])
    with pytest.raises(DataLoss, match="holds other messages"):
        stream_of(second.root).partitions({}, end)
