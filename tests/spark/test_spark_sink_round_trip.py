"""Rows written as messages are read back as the same rows, from batches, streams and INSERT."""

import pytest
from pyspark.sql import functions as f
from quick_start import QUERY_LIMIT_S


@pytest.fixture
def sink(server, topic):
    """A batch or stream writer to the topic."""

    def make(writer, **options):
        return writer.format("tianzhou").options(**{"namesrvAddr": server.address, "topic": topic, **options})

    return make


def test_rows_become_messages_and_rows_again(spark, server, topic, sink, source):
    frame = spark.range(500).select(
        f.concat(f.lit("body-"), f.col("id")).alias("body"),
        f.array(f.concat(f.lit("k"), f.col("id")), f.lit("all")).alias("keys"),
        f.when(f.col("id") % 2 == 0, "even").alias("tags"),
        f.create_map(f.lit("n"), f.col("id").cast("string")).alias("properties"),
    )
    sink(frame.write).mode("append").save()
    got = source(spark.read).schema("body STRING, keys STRING, tags STRING, properties MAP<STRING,STRING>").load()
    rows = {row["body"]: row for row in got.collect()}
    assert len(rows) == 500
    assert rows["body-7"]["keys"] == "k7 all"
    assert rows["body-7"]["tags"] is None
    assert rows["body-8"]["tags"] == "even"
    assert rows["body-8"]["properties"]["n"] == "8"


def test_queue_order_and_topic_columns(spark, server, topic, sink):
    other = server.create(f"{topic}-other")
    frame = spark.createDataFrame(
        [(topic, b"a", 1, None), (None, b"b", 0, None), (other, b"c", None, "s"), (other, b"d", None, "s")],
        "topic STRING, value BINARY, queueId INT, shardingKey STRING",
    ).coalesce(1)
    sink(frame.write).mode("append").save()
    assert [(m.queue_id, m.body) for m in server.messages(topic)] == [(0, b"b"), (1, b"a")]
    assert [m.body for m in server.messages(other)] == [b"c", b"d"]
    assert len({m.queue_id for m in server.messages(other)}) == 1


def test_a_stream_from_topic_to_topic(spark, server, topic, sink, source, tmp_path):
    server.send(topic, range(300), tags="A")
    copy = server.create(f"{topic}-copy")
    query = (
        sink(
            source(spark.readStream, startingOffsets="earliest", maxOffsetsPerTrigger=100)
            .load()
            .select("body", "tags")
            .writeStream,
            topic=copy,
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_LIMIT_S)
    assert sorted(int(m.body) for m in server.messages(copy)) == list(range(300))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_was_read_is_written_to_another_topic(server, topic, sink, source, spark, delivery):
    server.send(topic, ["a", "b"], tags="A", keys=["k1", "k2"], properties={"price": "7"}, sharding_key="s")
    copy = server.create(f"{topic}-copy")
    read = source(spark.read, includeProperties=True).load().select("body", "keys", "tags", "properties")
    more = {"delivery": delivery, "batchKey": copy} if delivery == "exactly-once" else {}
    sink(read.write, topic=copy, **more).mode("append").save()
    before, after = server.messages(topic), server.messages(copy)
    assert sorted(message.body for message in after) == [b"a", b"b"]
    assert {(message.keys, message.tags, message.properties["__SHARDINGKEY"]) for message in after} == {
        ("k1 k2", "A", "s")
    }
    assert all(message.user_properties == {"price": "7"} for message in after)
    assert not {message.msg_id for message in before} & {message.msg_id for message in after}


def test_properties_of_the_system_are_nobodys_to_set(spark, sink):
    frame = spark.range(1).coalesce(1).selectExpr("'x' AS body", "map('RETRY_TOPIC', 'y') AS properties")
    with pytest.raises(Exception, match="row 0 of partition 0: property RETRY_TOPIC belongs to the system"):
        sink(frame.write).mode("append").save()


def test_insert_into(spark, server, topic):
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW target (body STRING) USING tianzhou "
        f"OPTIONS (namesrvAddr '{server.address}', topic '{topic}')"
    )
    spark.sql("INSERT INTO target VALUES ('x'), ('y')")
    assert sorted(m.body for m in server.messages(topic)) == [b"x", b"y"]


@pytest.mark.parametrize(
    ("columns", "mode", "options", "text"),
    [
        (["'x' AS body", "1.5 AS price"], "append", {}, "the sink has no column price"),
        (["'x' AS keyes"], "append", {}, r"no column keyes \(did you mean keys\?\)"),
        (["1 AS body"], "append", {}, "the sink's column body is INT; expected BINARY or STRING"),
        (["'x' AS body"], "overwrite", {}, "a topic only grows"),
        (["'x' AS body"], "append", {"topics": "y"}, r"no option topics=y \(did you mean topic\?\)"),
        (["'x' AS body"], "append", {"topic": "no topic"}, "topic=no topic: expected a topic"),
        (["'x' AS body", "99 AS queueId"], "append", {}, "row 0 of partition 0: queueId 99 of topic .* names no queue"),
        (["'' AS body"], "append", {}, "row 0 of partition 0: body is empty"),
    ],
)
def test_mistakes_are_explained(spark, sink, columns, mode, options, text):
    frame = spark.range(1).coalesce(1).selectExpr(*columns)
    with pytest.raises(Exception, match=text):
        sink(frame.write, **options).mode(mode).save()


@pytest.mark.parametrize("columns", ["rocketmq", "kafka"])
def test_a_topic_is_copied_by_a_stream_that_changes_nothing(spark, server, topic, sink, source, tmp_path, columns):
    server.send(topic, range(100), keys=lambda n: f"k{n}", tags="A", properties=lambda n: {"n": str(n)})
    server.send(topic, range(100, 120), sharding_key=lambda n: f"s{n % 3}", queue=1)
    copy = server.create(f"{topic}-copy")
    properties = {"includeHeaders" if columns == "kafka" else "includeProperties": "true"}
    rows = source(spark.readStream, startingOffsets="earliest", columns=columns, **properties).load()
    if columns == "kafka":
        assert rows.columns == [
            *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
            "headers",
        ]
    query = sink(rows.writeStream, topic=copy, checkpointLocation=str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_LIMIT_S)

    def content(name):
        return [
            (
                m.queue_id,
                m.body,
                m.tags,
                m.properties.get("KEYS"),
                m.properties.get("__SHARDINGKEY"),
                m.properties.get("n"),
            )
            for m in server.messages(name)
        ]

    copied, original = content(copy), content(topic)
    if columns == "kafka":  # there a key is both
        original = [(*row[:3], row[3] or row[4], row[4] or row[3], row[5]) for row in original]
    assert copied == original


def test_a_copy_that_would_lose_properties_is_refused(spark, server, topic, sink, source, tmp_path):
    server.send(topic, ["x"], properties={"price": "7"})
    copy = server.create(f"{topic}-copy")
    with pytest.raises(Exception, match=r"without their properties: .* Read them with includeProperties=true"):
        sink(source(spark.read).load().write, topic=copy).mode("append").save()
    rows = source(spark.readStream, startingOffsets="earliest").load()
    writer = sink(rows.writeStream, topic=copy, checkpointLocation=str(tmp_path)).trigger(availableNow=True)
    with pytest.raises(Exception, match="Read them with includeProperties=true"):
        writer.start().awaitTermination(QUERY_LIMIT_S)
    assert server.messages(copy) == []
