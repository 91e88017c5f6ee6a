"""`format("tianzhou_store")` beside the live source: the same rows, from the files of the running broker."""

import json
import shutil

import pytest
from quick_start import QUERY_LIMIT_S
from source_suite import Stream, partitions_of

from tianzhou.errors import StoreUnreadable
from tianzhou.spark import description, metrics
from tianzhou.spark.store.store_source import TianzhouStore


@pytest.fixture
def store(spark, server, topic):
    """A batch or stream reader of the topic in the server's own folder."""

    def make(reader, **options):
        options = {"storePath": str(server.folder), "subscribe": topic, **options}
        return reader.format("tianzhou_store").options(**options)

    return make


def rows_of(frame):
    return sorted((row["queueId"], row["queueOffset"]) for row in frame.select("queueId", "queueOffset").collect())


def whole(frame):
    rows = [row.asDict() for row in frame.collect()]
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def test_the_same_rows_as_the_live_source(spark, server, source, store, topic):
    server.send(topic, range(3000), tags=lambda n: "ABC"[n % 3], keys=lambda n: [f"k{n}", "all"])
    server.send(topic, [b"again and again " * 2000, "grüße".encode()], properties={"shop": "Zürich"}, flag=7)
    every = {"includeProperties": True, "includeMetadata": True}
    live = whole(source(spark.read, **every).load())
    assert len(live) == 3002
    assert len(live[0]) == 16
    assert whole(store(spark.read, brokerName="broker-a", verifyCrc=True, **every).load()) == live
    tagged = whole(source(spark.read, tags="A||C").load())
    assert whole(store(spark.read, brokerName="broker-a", tags="A||C").load()) == tagged


def test_a_copied_folder(spark, server, store, topic, tmp_path):
    server.send(topic, range(500))
    copy = tmp_path / "copy"
    shutil.copytree(server.folder / "store", copy)
    frame = store(spark.read, storePath=str(copy)).load()
    assert sorted(int(bytes(row["body"])) for row in frame.select("body").collect()) == list(range(500))
    assert spark.read.format("tianzhou_store").option("subscribe", topic).load(str(copy)).count() == 500


def test_between_offsets_and_times(spark, server, source, store, topic):
    for queue in (0, 1):
        server.send(topic, range(100), queue=queue)
    begin, end = json.dumps({topic: {"0": 10, "1": -2}}), json.dumps({topic: {"broker-a": {"0": 40, "1": -1}}})
    frame = store(spark.read, startingOffsets=begin, endingOffsets=end).load()
    assert rows_of(frame) == [(0, n) for n in range(10, 40)] + [(1, n) for n in range(100)]
    middle = server.messages(topic)[50].store_timestamp
    for side in ("startingTimestamp", "endingTimestamp"):
        assert rows_of(store(spark.read, **{side: middle}).load()) == rows_of(
            source(spark.read, **{side: middle}).load()
        )


def test_the_end_a_stream_reports_is_where_other_reads_begin_and_end(spark, server, source, store, topic, tmp_path):
    for queue, count in ((0, 30), (1, 20)):
        server.send(topic, range(count), queue=queue)
    stream = source(spark.readStream, startingOffsets="earliest").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = query.start()
    assert query.awaitTermination(QUERY_LIMIT_S)
    assert description(query.lastProgress) == f"{topic} (broker-a: 2 queues)"
    assert metrics(query.lastProgress)["maxOffsetsBehindLatest"] == "0"
    reported = query.lastProgress["sources"][0]["endOffset"]
    reported = reported if isinstance(reported, str) else json.dumps(reported)
    server.send(topic, range(30, 35), queue=0)
    for way in (source, store):
        assert rows_of(way(spark.read, startingOffsets=reported).load()) == [(0, n) for n in range(30, 35)]
        assert len(rows_of(way(spark.read, endingOffsets=reported).load())) == 50


def test_some_queues_and_topics(spark, server, store, topic):
    other = server.create(f"{topic}-other", queues=3)
    server.send(topic, range(10), queue=0)
    server.send(topic, range(20), queue=1)
    for queue in range(3):
        server.send(other, range(5), queue=queue)
    assert len(rows_of(store(spark.read, queues="1").load())) == 20
    pattern = {"subscribe": None, "subscribePattern": f"{topic}.*"}
    reader = spark.read.format("tianzhou_store").option("storePath", str(server.folder))
    assert reader.option("subscribePattern", pattern["subscribePattern"]).load().count() == 45
    reader = spark.read.format("tianzhou_store").option("storePath", str(server.folder))
    assert reader.option("assign", json.dumps({topic: [0], other: [0, 2]})).load().count() == 20


def test_by_key(spark, server, store, topic):
    server.send(topic, range(200), keys=lambda n: [f"k{n}", f"mod{n % 10}"])
    rows = store(spark.read, key="k77", includeMetadata=True).load().collect()
    assert [bytes(row["body"]) for row in rows] == [b"77"]
    assert store(spark.read, key="mod3").load().count() == 20
    assert store(spark.read, key="nobody").load().count() == 0
    unique = rows[0]["msgId"]
    assert store(spark.read, key=unique).load().count() == 1


def test_a_subset_of_columns_and_partitions(spark, server, store, topic):
    server.send(topic, range(5000), queue=0)
    frame = store(spark.read, maxRecordsPerPartition=1000).schema("queueOffset LONG").load()
    assert partitions_of(frame) in (5, None)
    assert sorted(row[0] for row in frame.collect()) == list(range(5000))
    assert partitions_of(store(spark.read, minPartitions=3).load()) in (3, None)


def test_a_stream_follows_the_running_broker(spark, server, topic, tmp_path):
    options = {"storePath": str(server.folder), "subscribe": topic, "startingOffsets": "earliest"}
    server.send(topic, range(100), queue=0)
    first = Stream(spark, tmp_path, "tianzhou_store", **options, maxOffsetsPerTrigger=40)
    first.run()
    assert [len(batch) for batch in first.batches] == [40, 40, 20]
    server.send(topic, range(50), queue=1)
    then = Stream(spark, tmp_path, "tianzhou_store", **options)
    then.run()
    rows = sorted(row[1:] for row in first.rows + then.rows)
    assert rows == [(0, n) for n in range(100)] + [(1, n) for n in range(50)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"storePath": "no/such/folder"}, "no/such/folder: no such folder; name a storePathRootDir or a --data folder"),
        ({"storePath": ""}, "the option storePath is missing; expected the folder of a store"),
        ({"subscribe": "nothing-here"}, "has no topic nothing-here; there are "),
        ({"subscribe": ""}, "subscribe=: expected topics joined by commas"),
        ({"queues": "a"}, "queues=a: expected queue numbers joined by commas"),
        ({"startingOffsets": "latest"}, "a batch read that starts at the latest offset reads nothing"),
        ({"startingOffsets": '{"x": {"0": 1}}'}, "startingOffsets: no .* give one for each queue that is read"),
        ({"assign": '{"x": [0]}'}, "subscribe=.* and assign=.* are both given; give one"),
        ({"verifyCrc": "perhaps"}, "verifyCrc=perhaps: expected true or false"),
        ({"verifyCRCs": "true"}, r"no option verifycrcs=true \(did you mean verifyCrc\?\)"),
        ({"key": ""}, "key=: expected a message key or unique key"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger=5: expected a whole number from 1; streams only"),
    ],
)
def test_mistakes_are_explained(spark, server, store, topic, options, text):
    server.send(topic, ["x"])
    with pytest.raises(Exception, match=text):
        store(spark.read, **options).load().collect()


def test_a_node_that_does_not_have_the_folder(server, topic, tmp_path):
    server.send(topic, range(10))
    copy = tmp_path / "copy"
    shutil.copytree(server.folder / "store", copy)
    source = TianzhouStore({"storePath": str(copy), "subscribe": topic})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    shutil.rmtree(copy)
    with pytest.raises(StoreUnreadable, match=rf"node \S+: {copy}: no such folder.*each needs it under the same path"):
        list(reader.read(partition))


def test_a_store_is_not_written(spark, server):
    with pytest.raises(Exception, match="a store is only read here; write to its broker"):
        spark.range(1).write.format("tianzhou_store").mode("append").save(str(server.folder))
