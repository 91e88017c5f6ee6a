"""A streaming query reads each message once, over restarts, failed batches and new queues."""

import time

import pytest
from quick_start import QUERY_LIMIT_S

from tianzhou.model import MessageQueue


class Runs:
    """Runs a stream into a list, again and again from one checkpoint."""

    def __init__(self, source, checkpoint):
        self.source, self.checkpoint = source, str(checkpoint)
        self.batches = []

    def run(self, reader, fail=lambda batch: False, **options):
        """Run once over the available messages; return the rows."""
        first = len(self.batches)

        def collect(frame, number):
            if fail(number):
                raise RuntimeError("the sink is broken")
            rows = frame.selectExpr("queueId", "queueOffset").collect()
            self.batches.append([(row[0], row[1]) for row in rows])

        query = (
            self.source(reader, **options)
            .load()
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(QUERY_LIMIT_S)
        assert not query.isActive
        self.query = query
        return [row for batch in self.batches[first:] for row in batch]


@pytest.fixture
def runs(source, tmp_path):
    return Runs(source, tmp_path / "checkpoint")


def test_batches_are_bounded_and_everything_comes_once(spark, server, topic, runs):
    server.send(topic, range(1000))
    rows = runs.run(spark.readStream, startingOffsets="earliest", maxOffsetsPerTrigger=300)
    assert [len(batch) for batch in runs.batches] == [300, 300, 300, 100]
    assert len(rows) == len(set(rows)) == 1000


def test_a_restart_goes_on_where_the_last_run_ended(spark, server, topic, runs):
    server.send(topic, range(100))
    assert len(runs.run(spark.readStream, startingOffsets="earliest")) == 100
    assert runs.run(spark.readStream, startingOffsets="earliest") == []
    server.send(topic, range(50), queue=1)
    rows = runs.run(spark.readStream, startingOffsets="earliest")
    assert len(rows) == 50
    everything = [row for batch in runs.batches for row in batch]
    assert len(everything) == len(set(everything)) == 150


def test_a_checkpoint_of_a_query_with_all_columns_goes_on_with_the_lean_row(spark, server, topic, source, tmp_path):
    def run(**options):
        rows = source(spark.readStream, startingOffsets="earliest", **options).load()
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"))
        assert query.awaitTermination(QUERY_LIMIT_S)

    server.send(topic, range(50), queue=0, properties={"n": "1"})
    run(includeProperties=True, includeMetadata=True)
    server.send(topic, range(50, 80), queue=0, properties={"n": "1"})
    run()
    found = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "rows"))
    rows = found.selectExpr("cast(cast(body AS STRING) AS INT) AS n", "msgId IS NULL AND properties IS NULL AS lean")
    assert sorted(map(tuple, rows.collect())) == [(n, n >= 50) for n in range(80)]


def test_a_first_batch_that_fails_loses_nothing(spark, server, topic, source, tmp_path):
    server.send(topic, range(10))  # before the query: not wanted
    got = []
    broken = [True]

    def collect(frame, number):
        rows = frame.selectExpr("cast(body AS STRING)").collect()
        if rows and broken[0]:
            raise RuntimeError("the sink is broken")
        got.extend(row[0] for row in rows)

    def start():
        return (
            source(spark.readStream, startingOffsets="latest")
            .load()
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

    query = start()
    deadline = time.monotonic() + QUERY_LIMIT_S
    while not query.recentProgress and query.lastProgress is None and time.monotonic() < deadline:
        query.awaitTermination(0.1)
    server.send(topic, [f"first-{n}" for n in range(5)])
    with pytest.raises(Exception, match="the sink is broken"):
        query.awaitTermination(QUERY_LIMIT_S)
    server.send(topic, [f"second-{n}" for n in range(5)])
    broken[0] = False
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(got) == sorted([f"first-{n}" for n in range(5)] + [f"second-{n}" for n in range(5)])


def test_a_failed_batch_is_run_again_with_the_same_messages(spark, server, topic, runs):
    server.send(topic, range(200))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 80}
    with pytest.raises(Exception, match="the sink is broken"):
        runs.run(spark.readStream, fail=lambda number: number == 1, **options)
    server.send(topic, range(40))
    runs.run(spark.readStream, **options)
    rows = [row for batch in runs.batches for row in batch]
    assert len(rows) == len(set(rows)) == 240
    assert [len(batch) for batch in runs.batches] == [80, 80, 80]


def test_queues_added_later_are_read_from_their_start(spark, server, topic, runs):
    server.send(topic, range(10))
    runs.run(spark.readStream, startingOffsets="earliest")
    server.run(server.admin.topics.update(topic, read_queue_nums=4, write_queue_nums=4))
    server.send(topic, range(6), queue=3)
    assert runs.run(spark.readStream, startingOffsets="earliest") == [(3, n) for n in range(6)]


def test_tags_and_small_ranges(spark, server, topic, runs):
    server.send(topic, range(90), tags=lambda index: "AB"[index % 2])
    rows = runs.run(spark.readStream, startingOffsets="earliest", tags="A", maxOffsetsPerTrigger=20)
    assert len(rows) == 45


@pytest.mark.parametrize("count", [30, 150], ids=["fewer", "more"])
def test_a_topic_made_again_stops_the_query_and_is_named(spark, server, topic, runs, count):
    server.send(topic, range(100), queue=0)
    runs.run(spark.readStream, startingOffsets="earliest")
    server.delete(topic)
    server.create(topic)
    server.send(topic, range(count), queue=0)
    with pytest.raises(Exception, match=f"{topic}@broker-a:0 holds other messages .* up to offset 100"):
        runs.run(spark.readStream, startingOffsets="earliest")
    rows = runs.run(spark.readStream, startingOffsets="earliest", failOnDataLoss=False)
    assert rows == [(0, n) for n in range(count)]
    server.send(topic, range(5), queue=0)
    rows = runs.run(spark.readStream, startingOffsets="earliest")
    assert rows == [(0, n) for n in range(count, count + 5)]


def test_progress_says_how_far_behind_the_query_is(spark, server, topic, runs):
    server.send(topic, range(10), queue=0)
    runs.run(spark.readStream, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    [source] = runs.query.recentProgress[0]["sources"]
    assert source["endOffset"] is not None
    assert f'"{topic}@broker-a:0": 10' in source["latestOffset"]


def test_a_named_group_shows_the_progress(spark, server, topic, runs):
    server.send(topic, range(10), queue=0)
    runs.run(spark.readStream, startingOffsets="earliest", consumerGroup="audit", maxOffsetsPerTrigger=5)
    queue = MessageQueue(topic, "broker-a", 0)

    async def committed():
        from tianzhou.client.consumer.pull.pull_consumer import PullConsumer

        async with PullConsumer("audit", server.address, auto_commit=False) as consumer:
            return await consumer.committed(queue)

    assert server.run(committed()) == 5  # Spark commits a batch at a source only when the next one begins


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets=latest: a stream has no end"),
        ({"maxOffsetsPerTrigger": "none"}, "maxOffsetsPerTrigger=none: expected a whole number from 1"),
        ({"subscribe": "no-such-topic"}, "topic no-such-topic does not exist"),
    ],
)
def test_mistakes_are_explained(spark, runs, options, text):
    with pytest.raises(Exception, match=text):
        runs.run(spark.readStream, **options)


def test_a_query_outlives_a_restart_of_the_broker(spark, own_server, tmp_path):
    own_server.create("orders")
    own_server.send("orders", range(50))
    got = []

    def collect(frame, number):
        got.extend(row[0] for row in frame.selectExpr("cast(cast(body AS STRING) AS INT)").collect())

    query = (
        spark.readStream.format("tianzhou")
        .options(namesrvAddr=own_server.address, subscribe="orders", startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        own_server.restart()
        own_server.send("orders", range(50, 100))
        deadline = time.monotonic() + QUERY_LIMIT_S
        while len(got) < 100 and time.monotonic() < deadline:  # the topic may still be missing at first
            query.processAllAvailable()
            query.awaitTermination(0.1)
    finally:
        query.stop()
    assert sorted(got) == list(range(100))
