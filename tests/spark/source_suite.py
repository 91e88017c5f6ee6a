"""The guarantees of the source, as checks that run against any server with RocketMQ's protocol.

`test_spark_source_contract.py` runs them against our own server and against Apache's 5.3.3. Every check creates its own
topics, so they share a server.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quick_start import QUERY_LIMIT_S

from tianzhou import Message, sync
from tianzhou.model import MessageQueue
from tianzhou.spark import lag

_serial = itertools.count()


class Peer:
    """A server under test, with operations for topics and messages."""

    def __init__(self, address: str, broker: str = "broker-a") -> None:
        self.address, self.broker = address, broker
        self.admin = sync.Admin(address)
        self.admin.start()
        self.producer = sync.Producer("suite", address)
        self.producer.start()
        self.consumer = sync.PullConsumer("suite", address)
        self.consumer.start()

    def close(self) -> None:
        self.consumer.stop()
        self.producer.stop()
        self.admin.stop()

    @staticmethod
    def name(noun: str = "topic") -> str:
        return f"{noun}-{os.getpid()}-{time.time_ns() % 10**9}-{next(_serial)}"

    def create(self, queues: int = 2, name: str | None = None) -> str:
        topic = name or self.name()
        self.admin.topics.create(topic, read_queue_nums=queues, write_queue_nums=queues)
        return topic

    def send(self, topic: str, count: int, *, queue: int = 0, first: int = 0, **attributes: Any) -> None:
        """Send messages with their number as body and as property n, in order into one queue."""
        target = MessageQueue(topic, self.broker, queue)
        for number in range(first, first + count):
            values = {name: value(number) if callable(value) else value for name, value in attributes.items()}
            self.producer.send(Message(topic, b"%d" % number, properties={"n": str(number)}, **values), target)
        # Apache acknowledges messages a little before its queues have them.
        until(lambda: self.consumer.max_offset(target) >= first + count, "the messages can be read")

    def options(self, **given: Any) -> dict[str, Any]:
        return {"namesrvAddr": self.address, "pollTimeoutMs": 20_000, **given}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + QUERY_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {QUERY_LIMIT_S} s: {what}"
        time.sleep(0.02)


def done(query: Any, rows: int) -> bool:
    """Whether a micro-batch of `rows` rows is done, including its commit."""
    assert query.exception() is None
    return any(progress.numInputRows == rows for progress in query.recentProgress)


def rows_of(frame: Any) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in frame.select("queueId", "queueOffset").collect())


def partitions_of(frame: Any) -> int | None:
    """Return the number of reading tasks; None over Spark Connect, which does not report it."""
    return None if remote(frame.sparkSession) else frame.rdd.getNumPartitions()


def remote(spark: Any) -> bool:
    """Whether a Spark Connect server runs the query."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class Stream:
    """A stream into files, run again and again from one checkpoint, also on a Spark Connect server."""

    def __init__(self, spark: Any, folder: Path, source: str = "tianzhou", **options: Any) -> None:
        self.spark, self.folder, self.source, self.options = spark, folder, source, options
        self.broken: Callable[[int], bool] = lambda number: False
        self.after: Callable[[int], None] = lambda number: None
        self.into = folder / f"batches-{next(_serial)}"
        self.into.mkdir()

    @property
    def batches(self) -> list[list[tuple[str, int, int]]]:
        """Return the rows of each micro-batch, in the order of their runs, including repetitions."""
        files = sorted(self.into.glob("*.json"))
        return [[tuple(row) for row in json.loads(file.read_text())] for file in files]

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        return [row for batch in self.batches for row in batch]

    @property
    def sizes(self) -> list[int]:
        """Return the number of rows of each micro-batch; Spark runs a first one even without rows."""
        return [len(batch) for batch in self.batches if batch]

    def start(self, **trigger: Any) -> Any:
        broken, after, into = self.broken, self.after, str(self.into)

        def collect(frame: Any, number: int) -> None:
            import json
            import time
            from pathlib import Path

            if broken(number):
                raise RuntimeError("the sink is broken")
            rows = frame.select("topic", "queueId", "queueOffset").collect()
            file = Path(into, f"{time.time_ns():020}")
            file.write_text(json.dumps([tuple(row) for row in rows]))
            file.rename(file.with_suffix(".json"))
            after(number)

        frame = self.spark.readStream.format(self.source).options(**self.options).load()
        writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def run(self) -> Any:
        """Process all available messages."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(QUERY_LIMIT_S)
        finally:
            query.stop()
        return query


Check = Callable[[Any, Peer, Path], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


# --- batches


@check
def every_message_of_what_is_chosen_comes_once(spark: Any, peer: Peer, folder: Path) -> None:
    family = peer.name("family")
    one, two = peer.create(2, f"{family}-one"), peer.create(1, f"{family}-two")
    for queue in (0, 1):
        peer.send(one, 40, queue=queue)
    peer.send(two, 30)
    one_rows, two_rows = [(queue, n) for queue in (0, 1) for n in range(40)], [(0, n) for n in range(30)]
    read = spark.read.format("tianzhou")
    expected = {
        json.dumps({"subscribe": f"{one},{two}"}): sorted(one_rows + two_rows),
        json.dumps({"subscribePattern": f"{family}-.*"}): sorted(one_rows + two_rows),
        json.dumps({"subscribePattern": f".*{family[6:]}-two"}): two_rows,
        json.dumps({"assign": json.dumps({one: [1], two: {peer.broker: [0]}})}): sorted(one_rows[40:] + two_rows),
        json.dumps({"subscribe": two, "minPartitions": 4}): two_rows,
        json.dumps({"subscribe": two, "maxRecordsPerPartition": 7}): two_rows,
    }
    for options, rows in expected.items():
        assert rows_of(read.options(**peer.options(**json.loads(options))).load()) == rows, options
        read = spark.read.format("tianzhou")


@check
def a_row_says_everything_about_its_message(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(1)
    peer.send(topic, 1, tags="paid", keys=["k1", "k2"])
    everything = peer.options(subscribe=topic, includeProperties="true", includeMetadata="true")
    (row,) = spark.read.format("tianzhou").options(**everything).load().collect()
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (topic, peer.broker, 0, 0)
    assert (row.tags, row["keys"], bytes(row.body)) == ("paid", "k1 k2", b"0")
    assert row.properties["n"] == "0"
    assert row.properties["UNIQ_KEY"] == row.msgId
    (message,) = peer.consumer.pull(MessageQueue(topic, peer.broker, 0), 0).messages
    assert row.storeTimestamp.timestamp() * 1000 == message.store_timestamp
    assert row.bornTimestamp.timestamp() * 1000 == message.born_timestamp
    assert (row.storeHost, row.bornHost) == (message.store_host, message.born_host)
    assert (row.physicalOffset, row.sysFlag, row.reconsumeTimes) == (message.commitlog_offset, message.sys_flag, 0)
    chosen = spark.read.format("tianzhou").schema("body STRING, queueOffset BIGINT")
    assert chosen.options(**peer.options(subscribe=topic)).load().collect() == [("0", 0)]


@check
def batches_begin_and_end_where_they_are_told(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(2)
    for queue in (0, 1):
        peer.send(topic, 20, queue=queue)
    time.sleep(0.01)
    for queue in (0, 1):
        peer.send(topic, 20, queue=queue, first=20)
    times = [
        peer.consumer.pull(MessageQueue(topic, peer.broker, queue), 20, 1).messages[0].store_timestamp
        for queue in (0, 1)
    ]

    def read(**given: Any) -> list[tuple[int, int]]:
        return rows_of(spark.read.format("tianzhou").options(**peer.options(subscribe=topic, **given)).load())

    def each(*values: int) -> str:
        return json.dumps({topic: {peer.broker: {str(queue): value for queue, value in enumerate(values)}}})

    assert read(startingOffsets=each(38, -2), endingOffsets=each(-1, 2)) == [(0, 38), (0, 39), (1, 0), (1, 1)]
    assert read(startingOffsets=json.dumps({topic: 39})) == [(0, 39), (1, 39)]
    later = [(queue, n) for queue in (0, 1) for n in range(20, 40)]
    assert read(startingTimestamp=each(*times)) == later
    assert read(endingTimestamp=each(*times)) == [(queue, n) for queue in (0, 1) for n in range(20)]
    assert read(startingTimestamp=each(times[0], times[1] + 60_000)) == later[:20]


@check
def tags_and_sql_select_at_the_broker(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(1)
    peer.send(topic, 60, tags=lambda number: "ABC"[number % 3])

    def read(**given: Any) -> list[int]:
        frame = spark.read.format("tianzhou").options(**peer.options(subscribe=topic, **given)).load()
        return [n for _, n in rows_of(frame)]

    assert read(tags="A || C") == [n for n in range(60) if n % 3 != 1]
    assert read(sql="n BETWEEN 10 AND 20 AND TAGS <> 'B'") == [n for n in range(10, 21) if n % 3 != 1]
    assert read(sql="n > 50", minPartitions=3) == list(range(51, 60))
    assert read(sql="missing IS NOT NULL") == []


@check
def conditions_of_the_query_narrow_what_is_read(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(2)
    for queue in (0, 1):
        peer.send(topic, 50, queue=queue, tags=lambda number: "AB"[number % 2])
    whole = spark.read.format("tianzhou").options(**peer.options(subscribe=topic)).load()
    middle = whole.where("queueId = 1 AND queueOffset = 25").collect()[0].storeTimestamp
    conditions = {
        "queueId = 1": 50,
        "queueOffset BETWEEN 10 AND 19": 20,
        "queueOffset IN (3, 7)": 4,
        "tags = 'A' AND queueId = 0 AND queueOffset < 10": 5,
        "tags IN ('A', 'B')": 100,
        "tags IS NULL": 0,
        f"topic = '{topic}' AND brokerName = '{peer.broker}'": 100,
        "queueId = 0 OR queueOffset = 7": 51,
        f"storeTimestamp >= timestamp'{middle}'": None,
        f"storeTimestamp < timestamp'{middle}' AND queueId = 1": None,
    }
    options = peer.options(subscribe=topic, filterPushdown=True, minPartitions=2)
    narrowing = spark.read.format("tianzhou").options(**options).load  # Spark reuses a reader's pushed filters
    for condition, count in conditions.items():
        rows = rows_of(narrowing().where(condition))
        assert rows == rows_of(whole.where(condition)), condition
        assert count is None or len(rows) == count, condition
    assert partitions_of(narrowing()) in (2, None)
    assert partitions_of(narrowing().where("queueId = 1 AND queueOffset = 3")) in (1, None)
    enabled = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(enabled, "false")
    try:
        with pytest.raises(Exception, match=enabled):
            spark.read.format("tianzhou").options(**options).load().collect()
    finally:
        spark.conf.set(enabled, "true")


# --- streams


@check
def streams_go_on_where_they_were_and_repeat_what_failed(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(2)
    for queue in (0, 1):
        peer.send(topic, 50, queue=queue)
    options = peer.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    stream = Stream(spark, folder, **options)
    stream.broken = lambda number: number == 1
    with pytest.raises(Exception, match="the sink is broken"):
        stream.run()
    peer.send(topic, 10, first=50)
    stream.broken = lambda number: False
    stream.run()
    assert stream.sizes == [40, 40, 30]
    assert len(set(stream.rows)) == 110
    stream.run()
    assert len(stream.rows) == 110


@check
def a_first_batch_from_the_latest_offset_that_fails_loses_nothing(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(1)
    peer.send(topic, 5)
    stream = Stream(spark, folder, **peer.options(subscribe=topic, startingOffsets="latest"))
    stream.broken = lambda number: True
    query = stream.start()
    try:
        until(lambda: query.lastProgress is not None or not query.isActive, "the stream knows where it begins")
        peer.send(topic, 5, first=5)
        with pytest.raises(Exception, match="the sink is broken"):
            query.awaitTermination(QUERY_LIMIT_S)
    finally:
        query.stop()
    peer.send(topic, 5, first=10)
    stream.broken = lambda number: False
    stream.run()
    assert sorted(row[2] for row in stream.rows) == list(range(5, 15))


@check
def queues_and_topics_that_come_are_read_from_their_beginning(spark: Any, peer: Peer, folder: Path) -> None:
    family = peer.name("growing")
    topic = peer.create(1, f"{family}-one")
    peer.send(topic, 5)
    stream = Stream(spark, folder, **peer.options(subscribePattern=f"{family}.*", startingOffsets="latest"))
    query = stream.start()
    try:
        until(lambda: query.lastProgress is not None, "the stream knows where it begins")
        peer.admin.topics.update(topic, read_queue_nums=3, write_queue_nums=3)
        peer.send(topic, 4, queue=2)
        other = peer.create(1, f"{family}-two")
        peer.send(other, 3)
        peer.send(topic, 1, first=5)
        until(lambda: len(stream.rows) >= 8 or not query.isActive, "all of them were read")
        assert query.exception() is None
    finally:
        query.stop()
    new = [*[(topic, 2, n) for n in range(4)], *[(other, 0, n) for n in range(3)]]
    assert sorted(stream.rows) == sorted([(topic, 0, 5), *new])


@check
def a_deleted_topic_is_reported_and_the_others_go_on(spark: Any, peer: Peer, folder: Path) -> None:
    kept, deleted = peer.create(1), peer.create(1)
    peer.send(kept, 5)
    peer.send(deleted, 5)
    options = peer.options(subscribe=f"{kept},{deleted}", startingOffsets="earliest")
    strict = Stream(spark, folder, **options)
    query = strict.start()
    try:
        until(lambda: len(strict.rows) == 10 or not query.isActive, "everything was read")
        peer.admin.topics.delete(deleted)
        gone = f"{deleted}@{peer.broker}:0 is lost at offset 5.*topic {deleted} is deleted"
        # Brokers are changed before name servers: a query in between finds the queue there, without messages.
        empty = f"5 messages of {deleted}@{peer.broker}:0 from offset 0 to 4 are lost: the queue now ends at 0"
        with pytest.raises(Exception, match=f"{gone}|{empty}"):
            query.awaitTermination(QUERY_LIMIT_S)
    finally:
        query.stop()
    peer.send(kept, 5, first=5)
    lenient = Stream(spark, folder, **options, failOnDataLoss=False)
    lenient.run()
    assert sorted(lenient.rows) == [(kept, 0, n) for n in range(5, 10)]


@check
def fewer_queues_are_a_loss_only_of_what_was_unread(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(3)
    for queue in range(3):
        peer.send(topic, 5, queue=queue)
    options = peer.options(subscribe=topic, startingOffsets="earliest")
    Stream(spark, folder, **options).run()
    peer.send(topic, 2, queue=2, first=5)
    peer.admin.topics.update(topic, read_queue_nums=1, write_queue_nums=1)
    stream = Stream(spark, folder, **options)
    lost = f"2 messages of {topic}@{peer.broker}:2 from offset 5 to 6 are lost: topic {topic} has fewer queues"
    with pytest.raises(Exception, match=lost):
        stream.run()
    peer.send(topic, 1, first=5)
    stream = Stream(spark, folder, **options, failOnDataLoss=False)
    stream.run()
    assert stream.rows == [(topic, 0, 5)]


@check
def progress_tells_the_lag_and_the_group_what_was_done(spark: Any, peer: Peer, folder: Path) -> None:
    topic, group = peer.create(1), peer.name("group")
    peer.send(topic, 10)
    options = peer.options(subscribe=topic, startingOffsets="earliest", consumerGroup=group, maxOffsetsPerTrigger=4)
    query = Stream(spark, folder, **options).run()
    queue = MessageQueue(topic, peer.broker, 0)
    assert [lag(progress)[queue] for progress in query.recentProgress if progress.numInputRows] == [6, 2, 0]
    with sync.PullConsumer(group, peer.address) as consumer:
        assert consumer.committed(queue) == 8  # Spark commits a batch at a source only when the next one begins


@check
def little_is_waited_for_to_become_more(spark: Any, peer: Peer, folder: Path) -> None:
    topic = peer.create(1)
    options = peer.options(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=10)
    stream = Stream(spark, folder, **options, maxTriggerDelay="1h")
    query = stream.start()
    try:
        until(lambda: query.lastProgress is not None or not query.isActive, "the stream runs")
        peer.send(topic, 6)
        time.sleep(0.5)
        assert stream.rows == []
        peer.send(topic, 4, first=6)
        until(lambda: done(query, 10), "enough were read")
    finally:
        query.stop()
    assert stream.sizes == [10]
    peer.send(topic, 2, first=10)
    stream = Stream(spark, folder, **options, maxTriggerDelay="1s")
    query = stream.start()
    try:
        until(lambda: done(query, 2), "the last two were read in the end")
    finally:
        query.stop()
    assert stream.sizes == [2]
