"""A batch query reads each message of its subscription once, and reports the messages it could not read."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from quick_start import QUERY_LIMIT_S
from source_suite import partitions_of


def rows_of(frame):
    return sorted((row["queueId"], row["queueOffset"]) for row in frame.select("queueId", "queueOffset").collect())


def offsets(topic, *positions):
    return json.dumps({topic: {"broker-a": {str(queue): at for queue, at in enumerate(positions)}}})


def test_every_column_of_a_message(spark, server, source, topic):
    before = datetime.now(UTC) - timedelta(seconds=1)
    server.send(topic, ["grüße"], queue=1, tags="A", keys=["k1", "k2"], properties={"shop": "Zürich"}, flag=7)
    [row] = source(spark.read, includeProperties=True, includeMetadata=True).load().collect()
    [message] = server.messages(topic)
    assert row["topic"] == topic
    assert (row["brokerName"], row["queueId"], row["queueOffset"]) == ("broker-a", 1, 0)
    assert row["msgId"] == message.msg_id
    assert (row["tags"], row["keys"]) == ("A", "k1 k2")
    assert bytes(row["body"]).decode() == "grüße"
    pulled_with = {"MIN_OFFSET": "0", "MAX_OFFSET": "1"}  # the client adds these for consumers
    assert row["properties"] | pulled_with == message.properties
    assert row["properties"]["shop"] == "Zürich"
    assert (row["bornHost"], row["storeHost"]) == (message.born_host, message.store_host)
    assert (row["reconsumeTimes"], row["sysFlag"]) == (0, message.sys_flag)
    assert row["physicalOffset"] == message.commitlog_offset
    stored = row["storeTimestamp"].replace(tzinfo=UTC)
    assert before < stored < before + timedelta(seconds=60)
    assert int(stored.timestamp() * 1000) == message.store_timestamp


def test_all_messages_of_several_queues_and_topics_each_once(spark, server, source, topic):
    other = server.create(f"{topic}-other", queues=5)
    server.send(topic, range(3000))
    server.send(other, range(500))
    frame = source(spark.read, subscribe=f"{topic},{other}").load()
    got = frame.selectExpr("topic", "cast(cast(body AS STRING) AS INT) AS n").collect()
    assert sorted((row["topic"], row["n"]) for row in got) == sorted(
        [(topic, n) for n in range(3000)] + [(other, n) for n in range(500)]
    )
    assert frame.select("topic", "queueId").distinct().count() == 7


@pytest.mark.parametrize("kind", ["tianzhou", "tianzhou_store"])
def test_tasks_of_so_many_records_at_most(spark, server, source, topic, kind, tmp_path):
    server.send(topic, range(200), queue=0)
    options = {"maxRecordsPerPartition": 100, "storePath": str(server.folder), "startingOffsets": "earliest"}
    if kind == "tianzhou":
        del options["storePath"]
        options |= {"namesrvAddr": server.address}
    options["subscribe"] = topic
    frame = spark.read.format(kind).options(**options).load()
    assert partitions_of(frame) in (2, None)
    assert frame.count() == 200
    query = (
        spark.readStream.format(kind)
        .options(**options)
        .load()
        .selectExpr("queueOffset", "spark_partition_id() AS task")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert query.awaitTermination(QUERY_LIMIT_S)
    tasks = spark.read.parquet(str(tmp_path / "rows")).groupBy("task").count().collect()
    assert sorted(row["count"] for row in tasks) == [100, 100]


def test_between_offsets(spark, server, source, topic):
    for queue in (0, 1):
        server.send(topic, range(100), queue=queue)
    frame = source(spark.read, startingOffsets=offsets(topic, 10, -2), endingOffsets=offsets(topic, 40, -1)).load()
    assert rows_of(frame) == [(0, n) for n in range(10, 40)] + [(1, n) for n in range(100)]


def test_between_times(spark, server, source, topic):
    server.send(topic, range(20), queue=0)
    stamps = [message.store_timestamp for message in server.messages(topic)]
    while int(datetime.now(UTC).timestamp() * 1000) <= stamps[-1] + 1:
        pass
    server.send(topic, range(20), queue=0)
    middle = server.messages(topic)[20].store_timestamp
    assert rows_of(source(spark.read, startingTimestamp=middle).load()) == [(0, n) for n in range(20, 40)]
    assert rows_of(source(spark.read, endingTimestamp=middle).load()) == [(0, n) for n in range(20)]


def test_tags_select(spark, server, source, topic):
    server.send(topic, range(300), tags=lambda index: "ABC"[index % 3])
    frame = source(spark.read, tags="A || C").load()
    assert {row["tags"]: row["count"] for row in frame.groupBy("tags").count().collect()} == {"A": 100, "C": 100}


def test_a_subset_of_columns(spark, server, source, topic):
    server.send(topic, ["x"])
    frame = source(spark.read).schema("body STRING, queueOffset BIGINT").load()
    assert frame.collect() == [("x", 0)]
    with pytest.raises(Exception, match=r"no column queueofset \(did you mean queueOffset\?\)"):
        source(spark.read).schema("queueofset BIGINT").load().collect()


def test_what_costs_is_there_when_it_is_asked_for(spark, server, source, topic):
    server.send(topic, ["x"], tags="A", properties={"n": "1"})
    lean = source(spark.read).load()
    assert lean.columns == [
        *("topic", "brokerName", "queueId", "queueOffset", "tags", "keys", "body", "bornTimestamp", "storeTimestamp")
    ]
    [whole] = source(spark.read, includeProperties=True, includeMetadata=True).load().collect()
    assert lean.collect() == [tuple(whole[name] for name in lean.columns)]
    [named] = source(spark.read).schema("msgId STRING, properties MAP<STRING, STRING>").load().collect()
    assert (named.msgId, named.properties["n"]) == (whole.msgId, "1")


def test_an_empty_topic_has_no_rows(spark, source):
    assert source(spark.read).load().count() == 0


def test_compressed_bodies_arrive_as_they_were(spark, server, source, topic):
    body = b"again and again " * 2000
    server.send(topic, [body])
    assert bytes(source(spark.read).load().collect()[0]["body"]) == body


def test_more_partitions_on_demand(spark, server, source, topic):
    server.send(topic, range(5000), queue=0)
    assert partitions_of(source(spark.read).load()) in (1, None)
    frame = source(spark.read, minPartitions=4).load()
    assert partitions_of(frame) in (4, None)
    assert len(set(rows_of(frame))) == 5000


def test_sql(spark, server, topic):
    server.send(topic, ["x", "y"], tags="A")
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW messages USING tianzhou "
        f"OPTIONS (namesrvAddr '{server.address}', subscribe '{topic}')"
    )
    got = spark.sql("SELECT cast(body AS STRING) AS body FROM messages WHERE tags = 'A' ORDER BY body")
    assert [row["body"] for row in got.collect()] == ["x", "y"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "no-such-topic"}, "topic no-such-topic does not exist"),
        ({"startingOfset": "earliest"}, r"no option startingofset=earliest \(did you mean startingOffsets\?\)"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss=maybe: expected true or false"),
        ({"startingOffsets": "latest"}, "a batch read that starts at the latest offset reads nothing"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger=5: expected a whole number from 1; streams only"),
        (
            {"namesrvAddr": "nowhere"},
            "namesrvAddr=nowhere: 'nowhere' is no address: it has no port; expected name servers as host:port",
        ),
        ({"startingOffsets": '{"x": {"b": {"0": 1}}}'}, "there is no queue x@b:0; give one for each queue"),
    ],
)
def test_mistakes_are_explained(spark, source, options, text):
    with pytest.raises(Exception, match=text):
        source(spark.read, **options).load().collect()


def test_lost_messages_are_named(spark, server, source, topic):
    server.send(topic, range(30), queue=0)
    with pytest.raises(Exception, match=r"startingOffsets: offset 31 of .*:0 lies behind its end; expected at most 30"):
        source(spark.read, startingOffsets=offsets(topic, 31, 0)).load().collect()
