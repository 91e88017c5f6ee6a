"""Exactly-once writes through Spark: streams and batches, failures in every phase, and refusals."""

import pytest
from pyspark.sql import functions as f
from quick_start import QUERY_LIMIT_S

from broker_probe import BrokerProbe
from tianzhou.wire.codes import RequestCode


@pytest.fixture
def sink(server, topic):
    """Return a function for batch or stream writers to the topic."""

    def make(writer, **options):
        options = {"namesrvAddr": server.address, "topic": topic, "delivery": "exactly-once", **options}
        return writer.format("tianzhou").options(**options)

    return make


class Copy:
    """A stream from one topic to another, run again and again from one checkpoint."""

    def __init__(self, source, sink, target, checkpoint):
        self.source, self.sink, self.target, self.checkpoint = source, sink, target, str(checkpoint)

    def run(self, reader, transform=lambda frame: frame.select("body", "tags"), **options):
        query = (
            self.sink(
                transform(self.source(reader, startingOffsets="earliest", maxOffsetsPerTrigger=100).load()).writeStream,
                topic=self.target,
                **options,
            )
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_LIMIT_S)
        return query


@pytest.fixture
def copy(server, topic, source, sink, tmp_path):
    return Copy(source, sink, server.create(f"{topic}-copy"), tmp_path / "checkpoint")


@pytest.fixture
def refusing(server):
    """Return a function that lets the broker refuse requests of a code: `left = refusing(code, times)`; `left[0]` is
    the number of refusals to come.
    """
    table = BrokerProbe.of(server.broker).handlers
    real = dict(table)

    def refuse(code, times=1, after=False):
        left = [times]

        async def handle(connection, command):
            if left[0] <= 0:
                return await real[int(code)](connection, command)
            left[0] -= 1
            if after:
                await real[int(code)](connection, command)
            return command.reply(1, "the test says no")

        table[int(code)] = handle
        return left

    yield refuse
    table.update(real)


def numbers(server, topic):
    return sorted(int(message.body) for message in server.messages(topic))


def test_a_stream_from_topic_to_topic(spark, server, topic, copy):
    server.send(topic, range(350), tags="A")
    copy.run(spark.readStream)
    found = server.messages(copy.target)
    assert sorted(int(message.body) for message in found) == list(range(350))
    assert {message.tags for message in found} == {"A"}
    assert {message.properties["CLUSTER"] for message in found} == {"DefaultCluster"}
    server.send(topic, range(350, 400))
    copy.run(spark.readStream)
    assert numbers(server, copy.target) == list(range(400))


@pytest.mark.parametrize(
    ("code", "after"),
    [
        (RequestCode.STAGE_MESSAGES, True),
        pytest.param(RequestCode.DECIDE_BATCH, False, marks=pytest.mark.slow),
        (RequestCode.DECIDE_BATCH, True),
        (RequestCode.PUBLISH_BATCH, False),
        pytest.param(RequestCode.PUBLISH_BATCH, True, marks=pytest.mark.slow),
    ],
    ids=["staged, not answered", "not decided", "decided, not answered", "not published", "published, not answered"],
)
def test_a_query_that_fails_goes_on_where_it_was(
    spark, server, topic, copy, refusing, tasks_are_run_again, code, after
):
    server.send(topic, range(150))
    left = refusing(code, after=after)
    if code == RequestCode.STAGE_MESSAGES and tasks_are_run_again:
        copy.run(spark.readStream)  # with the messages that both runs of the task staged
    else:
        with pytest.raises(Exception, match="the test says no"):
            copy.run(spark.readStream)
    assert left == [0]
    copy.run(spark.readStream)
    assert numbers(server, copy.target) == list(range(150))


def test_a_row_that_cannot_be_staged_is_named_and_nothing_of_its_batch_is_seen(spark, server, topic, copy):
    server.send(topic, range(50), queue=0)

    def broken(frame):
        value = f.col("body").cast("string")
        return frame.select(f.when(value == "7", "").otherwise(value).alias("body")).coalesce(1)

    with pytest.raises(Exception, match="row 7 of partition 0: body is empty"):
        copy.run(spark.readStream, broken)
    assert numbers(server, copy.target) == []
    copy.run(spark.readStream)
    assert numbers(server, copy.target) == list(range(50))


def test_a_row_the_broker_refuses_is_named(spark, server, topic, copy):
    server.send(topic, range(50), queue=0)

    def broken(frame):
        value = f.col("body").cast("string")
        late = f.when(value == "7", f.create_map(f.lit("TIMER_DELAY_SEC"), f.lit("5")))
        return frame.select("body", late.alias("properties")).coalesce(1)

    with pytest.raises(Exception, match=r"row 7 of partition 0: .*TIMER_DELAY_SEC: this version delivers no messages"):
        copy.run(spark.readStream, broken)
    assert numbers(server, copy.target) == []


def test_every_column_reaches_the_message(spark, server, topic, copy):
    other = server.create(f"{topic}-other")
    server.send(topic, range(6), queue=0)

    def columns(frame):
        value = f.col("body").cast("string")
        return frame.select(
            f.when(value == "1", other).alias("topic"),
            value.alias("value"),
            f.array(f.concat(f.lit("k"), value), f.lit("all")).alias("keys"),
            f.concat(f.lit("t"), value).alias("tags"),
            f.create_map(f.lit("n"), value).alias("properties"),
            f.when(value == "2", 1).alias("queueId"),
            f.when(value >= "4", "same").alias("shardingKey"),
            f.when(value == "3", 1).cast("int").alias("delayLevel"),
        )

    copy.run(spark.readStream, columns)
    (alone,) = server.messages(other)
    assert (alone.body, alone.keys, alone.tags, alone.properties["n"]) == (b"1", "k1 all", "t1", "1")
    found = {bytes(message.body): message for message in server.messages(copy.target)}
    assert found[b"2"].queue_id == 1
    assert found[b"4"].queue_id == found[b"5"].queue_id
    assert b"3" not in found or found[b"3"].properties["DELAY"] == "1"
    assert len(found.keys() - {b"3"}) == 4


def test_a_batch_write_with_a_key_is_written_once(spark, server, topic, sink):
    frame = spark.range(300).select(f.col("id").cast("string").alias("body"))
    for _ in range(2):
        sink(frame.write, batchKey=f"{topic}-today").mode("append").save()
    assert numbers(server, topic) == list(range(300))
    for number in (0, 1, 1):
        sink(frame.write, batchKey=f"{topic}-numbered", batchNumber=number).mode("append").save()
    assert len(numbers(server, topic)) == 900


def test_a_batch_write_that_fails_leaves_nothing(spark, server, topic, sink):
    frame = spark.range(30).repartition(2).selectExpr("IF(id = 13, '', CAST(id AS STRING)) AS body")
    with pytest.raises(Exception, match="body is empty"):
        sink(frame.write, batchKey=f"{topic}-bad").mode("append").save()
    assert numbers(server, topic) == []
    good = spark.range(30).selectExpr("CAST(id AS STRING) AS body")
    sink(good.write, batchKey=f"{topic}-bad").mode("append").save()
    assert numbers(server, topic) == list(range(30))


def test_a_broker_that_cannot_stage_is_named_before_anything_is_sent(spark, own_server):
    table = BrokerProbe.of(own_server.broker).handlers
    for code in [code for code in table if 31_000 < code < 32_000]:
        del table[code]
    topic = own_server.create("apache")
    frame = spark.range(10).selectExpr("CAST(id AS STRING) AS body")
    options = {"namesrvAddr": own_server.address, "topic": topic, "delivery": "exactly-once", "batchKey": "k"}
    with pytest.raises(
        Exception, match=r"broker broker-a at 127.0.0.1:\d+ cannot write exactly once: it does not know"
    ):
        frame.write.format("tianzhou").options(**options).mode("append").save()
    assert own_server.messages(topic) == []
