"""Rows are sent as messages in order, and the error for an unsendable row names it."""

import asyncio
import pickle
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, IntegerType, MapType, NullType, StringType, StructType

from spark_probe import writer_options
from tianzhou.client.staging import Origin
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model import Message, MessageQueue
from tianzhou.spark.option_values import rules_of
from tianzhou.spark.rows.schema import arrow_schema, kafka_schema, row_schema
from tianzhou.spark.sink.key_queues import KeyQueues, QueueAway
from tianzhou.spark.sink.options import WriteOptions
from tianzhou.spark.sink.outgoing import OutgoingMessage, RowNotSent
from tianzhou.spark.sink.sink import Sender, SinkWriter, StreamWriter, check_columns, held_back

OPTIONS = {"namesrvAddr": "a:1", "topic": "orders"}
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


class FakeProcess:
    def run(self, work):
        return asyncio.run(work)


class FakeProducer:
    def __init__(self, refuse=None):
        self.sent = []
        self.refuse = refuse or (lambda message: False)

    async def queues(self, topic):
        return QUEUES

    async def send(self, message, queue=None):
        if self.refuse(message):
            raise BrokerError(13, "the message is illegal")
        self.sent.append((message, queue))


def schema_of(**columns):
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def send(schema, rows, options=OPTIONS, producer=None):
    producer = producer or FakeProducer()
    sender = Sender(options, schema, overwrite=False, connect=lambda _: (FakeProcess(), producer))
    batches = [pa.RecordBatch.from_pylist(part, schema=arrow_schema(schema)) for part in rows]
    report = sender.send(iter(batches), partition=3)
    return report, producer.sent


def test_every_column_reaches_the_message():
    schema = schema_of(
        topic=StringType(),
        body=BinaryType(),
        keys=ArrayType(StringType()),
        tags=StringType(),
        properties=MapType(StringType(), StringType()),
        delayLevel=IntegerType(),
        queueId=IntegerType(),
        shardingKey=StringType(),
    )
    row = {
        "topic": "other",
        "body": b"\x00x",
        "keys": ["a", None, "b"],
        "tags": "A",
        "properties": [("p", "1"), ("none", None)],
        "delayLevel": 3,
        "queueId": 2,
        "shardingKey": "s",
    }
    report, [(message, queue)] = send(schema, [[row]])
    assert report.rows == 1
    assert (message.topic, message.body, message.key_text(), message.tags) == ("other", b"\x00x", "a b", "A")
    assert (message.properties, message.delay_level, message.sharding_key) == ({"p": "1"}, 3, "s")
    assert queue == QUEUES[2]


def test_nulls_mean_nothing_and_the_topic_falls_back_to_the_option():
    schema = schema_of(topic=StringType(), VALUE=StringType(), keys=StringType(), tags=NullType())
    _, [(message, queue)] = send(schema, [[{"topic": None, "VALUE": "ä", "keys": None, "tags": None}]])
    assert (message.topic, message.body, message.key_text(), message.tags, queue) == (
        "orders", "ä".encode(), "", None, None,
    )  # fmt: skip


def test_rows_are_sent_in_order_over_batches():
    rows = [[{"body": str(n)} for n in range(start, start + 700)] for start in (0, 700, 1400)]
    report, sent = send(schema_of(body=StringType()), rows)
    assert report.rows == 2100
    assert [int(message.body) for message, _ in sent] == list(range(2100))


class SlowProducer(FakeProducer):
    """Records the send time of each message, and the number of parallel sends."""

    def __init__(self, refuse=None):
        super().__init__(refuse)
        self.times = []
        self.flying = self.most = 0

    async def send(self, message, queue=None):
        self.times.append(time.monotonic())
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0.01)
        self.flying -= 1
        await super().send(message, queue)


def test_rows_are_sent_in_slices_no_faster_than_the_rate():
    producer = SlowProducer()
    rows = [[{"body": str(n)} for n in range(start, start + 11)] for start in (0, 11)]
    began = time.monotonic()
    report, sent = send(
        schema_of(body=StringType()), rows, options={**OPTIONS, "maxMessagesPerSecond": "50"}, producer=producer
    )
    # The task ends at the time of the next slice.
    assert time.monotonic() - began >= 22 / 50
    assert [int(message.body) for message, _ in sent] == list(range(22))
    assert (report.rows, producer.most) == (22, 5)
    # Measured from the beginning: on a busy machine one slice may be late without delaying the next one.
    assert all(at >= began + number // 5 * 0.1 - 0.0001 for number, at in enumerate(producer.times))


def test_a_task_that_fails_waits_as_well():
    """Its next attempt may follow immediately."""
    producer = SlowProducer(refuse=lambda message: message.body == b"3")
    began = time.monotonic()
    with pytest.raises(RowNotSent, match=r"row 3 of partition 3: code 13"):
        send(
            schema_of(body=StringType()),
            [[{"body": str(n)} for n in range(20)]],
            options={**OPTIONS, "maxMessagesPerSecond": "10"},
            producer=producer,
        )
    assert len(producer.times) == 4
    assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (schema_of(body=StringType(), price=DoubleType()), "the sink has no column price; select some of topic"),
        (schema_of(body=StringType(), tag=StringType()), r"no column tag \(did you mean tags\?\)"),
        (schema_of(body=DoubleType()), "column body is DOUBLE; expected BINARY or STRING"),
        (schema_of(body=StringType(), keys=IntegerType()), "column keys is INT; expected STRING or ARRAY<STRING>"),
        (schema_of(keys=StringType()), "neither body nor value"),
        (schema_of(body=StringType(), value=StringType()), "the rows have body and value"),
    ],
)
def test_columns_that_do_not_fit_are_named(schema, text):
    with pytest.raises(ConfigError, match=text):
        check_columns(schema)


@pytest.mark.parametrize("kind", [SinkWriter, StreamWriter])
def test_a_topic_cannot_be_overwritten(kind):
    with pytest.raises(ConfigError, match="a topic only grows"):
        kind(OPTIONS, schema_of(body=StringType()), True)


def test_options_are_checked_when_the_query_is_planned():
    with pytest.raises(ConfigError, match="the option topic is missing"):
        SinkWriter({"namesrvAddr": "a:1"}, schema_of(body=StringType()), False)
    SinkWriter({"namesrvAddr": "a:1"}, schema_of(body=StringType(), topic=StringType()), False)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"body": None}, "row 701 of partition 3: body is null"),
        ({"body": ""}, "row 701 of partition 3: body is empty"),
        ({"body": "refused"}, r"row 701 of partition 3: code 13.*the message is illegal"),
        ({"body": "x", "queueId": 9}, r"row 701 of partition 3: queueId 9 of topic orders names no queue; there are"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(row, text):
    schema = schema_of(body=StringType(), queueId=IntegerType())
    rows = [[{"body": "x", "queueId": None}] * 701 + [{"queueId": None, **row}]]
    producer = FakeProducer(refuse=lambda message: message.body == b"refused")
    with pytest.raises(RowNotSent, match=text):
        send(schema, rows, producer=producer)


def test_a_row_without_topic_is_named_when_there_is_no_option():
    schema = schema_of(body=StringType(), topic=StringType())
    with pytest.raises(RowNotSent, match="row 0 of partition 3: topic is null"):
        send(schema, [[{"body": "x", "topic": None}]], options={"namesrvAddr": "a:1"})


READ = {
    "KEYS": "k1 k2",
    "TAGS": "paid",
    "__SHARDINGKEY": "s",
    "UNIQ_KEY": "7F00",
    "MSG_REGION": "DefaultRegion",
    "CLUSTER": "DefaultCluster",
    "TRACE_ON": "true",
    "WAIT": "true",
    "DELAY": "3",
    "TRAN_MSG": "true",
    "REPLY_TO_CLIENT": "somebody",
    "RETRY_TOPIC": "other",
    "price": "7",
}
"""The properties of a message in the source's format."""


@pytest.mark.parametrize(
    "columns",
    [
        {"keys": "k1 k2", "tags": "paid"},
        {"keys": ["k1", "k2"], "tags": "paid", "shardingKey": "s"},
        {},
        {"keys": None, "tags": None},
    ],
)
def test_what_was_read_is_written_back(columns):
    kinds = {"keys": ArrayType(StringType()) if isinstance(columns.get("keys"), list) else StringType()}
    schema = schema_of(
        body=StringType(),
        properties=MapType(StringType(), StringType()),
        **{name: kinds.get(name, StringType()) for name in columns},
    )
    _, [(message, _)] = send(schema, [[{"body": "x", "properties": list(READ.items()), **columns}]])
    assert (message.key_text(), message.tags, message.sharding_key) == ("k1 k2", "paid", "s")
    assert (message.properties, message.delay_level) == ({"price": "7"}, 0)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"keys": "k3"}, "row 0 of partition 3: property KEYS='k1 k2' and the column keys='k3' contradict each other"),
        ({"tags": "A"}, "property TAGS='paid' and the column tags='A' contradict each other; leave TAGS out of"),
        ({"shardingKey": "t"}, "property __SHARDINGKEY='s' and the column shardingKey='t' contradict"),
    ],
)
def test_a_property_that_contradicts_its_column_is_named(columns, text):
    schema = schema_of(
        body=StringType(), properties=MapType(StringType(), StringType()), **dict.fromkeys(columns, StringType())
    )
    with pytest.raises(RowNotSent, match=re.escape(text)):
        send(schema, [[{"body": "x", "properties": list(READ.items()), **columns}]])


def test_properties_that_no_message_had_stay_as_they_are():
    """The producer decides which properties belong to the system."""
    schema = schema_of(body=StringType(), properties=MapType(StringType(), StringType()))
    own = {"RETRY_TOPIC": "x", "TTL": "3000", "a": "b"}
    _, [(message, _)] = send(schema, [[{"body": "x", "properties": list(own.items())}]])
    assert message.properties == own


def test_writers_travel_to_tasks():
    writer = pickle.loads(cloudpickle.dumps(SinkWriter(OPTIONS, schema_of(body=StringType()), False)))
    assert writer_options(writer).topic == "orders"


def test_the_page_has_every_option():
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "spark-sink.md"
    section = page.read_text(encoding="utf-8").partition("\n## Options\n")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert named == rules_of(WriteOptions).keys()


HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
COPIES = {
    "rocketmq": (
        row_schema(True, True),
        {
            "topic": "orders-of-old",
            "brokerName": "broker-a",
            "queueId": 3,
            "queueOffset": 9,
            "msgId": "7F00",
            "body": b"x",
            "keys": "k1 k2",
            "tags": "paid",
            "properties": list(READ.items()),
        },
    ),
    "kafka": (
        kafka_schema(include_headers=True),
        {
            "topic": "orders-of-old",
            "partition": 3,
            "offset": 9,
            "key": b"s",
            "value": b"x",
            "timestampType": 1,
            "headers": [{"key": name, "value": value.encode()} for name, value in READ.items()],
        },
    ),
}


@pytest.mark.parametrize("names", COPIES)
def test_rows_as_they_were_read_are_copied_to_the_topic_of_the_option(names):
    schema, row = COPIES[names]
    _, [(message, queue)] = send(schema, [[row]])
    assert (message.topic, message.body, queue) == ("orders", b"x", QUEUES[3])
    assert (message.key_text(), message.tags, message.sharding_key) == ("k1 k2", "paid", "s")
    assert (message.properties, message.delay_level) == ({"price": "7"}, 0)


def test_rows_as_they_were_read_whose_properties_a_copy_would_lose_are_refused():
    with pytest.raises(
        ConfigError, match=r"without their properties: .* includeProperties=true; or, .* leave out born"
    ):
        check_columns(row_schema())
    with pytest.raises(ConfigError, match="without their properties"):
        StreamWriter(OPTIONS, row_schema(include_metadata=True), False)
    check_columns(row_schema(include_properties=True))


def test_columns_that_were_chosen_need_no_properties():
    chosen = [field for field in row_schema() if field.name not in ("bornTimestamp", "storeTimestamp")]
    _, [(message, queue)] = send(StructType(chosen), [[{"queueId": 3, "queueOffset": 9, "body": b"x", "keys": "k"}]])
    assert (message.body, message.key_text(), message.properties, queue) == (b"x", "k", {}, QUEUES[3])


def test_kafkas_columns_leave_headers_behind_as_kafkas_sink_does():
    check_columns(kafka_schema())


def test_without_the_option_rows_that_were_read_go_to_the_topic_of_their_name():
    schema, row = COPIES["kafka"]
    _, [(message, _)] = send(schema, [[row]], options={"namesrvAddr": "a:1"})
    assert message.topic == "orders-of-old"


def test_rows_of_kafkas_columns_become_messages():
    schema = schema_of(key=BinaryType(), value=BinaryType(), partition=IntegerType(), headers=HEADERS)
    rows = [
        {"key": b"order-7", "value": b"x", "partition": 2, "headers": [{"key": "a", "value": b"b"}]},
        {"key": None, "value": b"y", "partition": None, "headers": None},
    ]
    _, [(first, queue), (second, anywhere)] = send(schema, [rows])
    assert (first.sharding_key, first.key_text(), first.properties, queue) == (
        *("order-7", "order-7"),
        *({"a": "b"}, QUEUES[2]),
    )
    assert (second.sharding_key, second.key_text(), second.properties, anywhere) == (None, "", {}, None)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"key": b"\xff"}, "row 0 of partition 3: key is no UTF-8 text"),
        ({"headers": [{"key": "trace", "value": b"\xff"}]}, "header trace is no UTF-8 text"),
        ({"partition": 9}, "queueId 9 of topic orders names no queue"),
    ],
)
def test_a_row_of_kafkas_columns_that_cannot_be_a_message_is_named(row, says):
    schema = schema_of(value=BinaryType(), key=BinaryType(), partition=IntegerType(), headers=HEADERS)
    with pytest.raises(RowNotSent, match=says):
        send(schema, [[{"value": b"x", **row}]])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"partition": IntegerType(), "queueId": IntegerType()}, "the rows have queueId and partition, which is Kafka"),
        ({"headers": HEADERS, "properties": MapType(StringType(), StringType())}, "the rows have properties and head"),
        ({"headers": StringType()}, "the sink's column headers is STRING; expected ARRAY<STRUCT<KEY:STRING,VALUE"),
    ],
)
def test_kafkas_columns_that_cannot_be(columns, says):
    with pytest.raises(ConfigError, match=says):
        check_columns(schema_of(value=BinaryType(), **columns))


def test_messages_of_one_queue_are_copied_to_one_queue():
    more = [MessageQueue("copy", broker, number) for broker in ("broker-a", "broker-b") for number in range(2)]
    assert Origin("broker-b", 1).counterpart(more) == more[3]
    assert Origin(None, 1).counterpart(QUEUES) == QUEUES[1]
    for origin in (Origin(None, 1), Origin("broker-a", 5), Origin("broker-c", 0)):
        assert len({origin.counterpart(order) for order in (more, more[::-1])}) == 1


ROW = OutgoingMessage(Message("orders", b"x"), None)
KEYED, OTHER = (OutgoingMessage(Message("orders", b"x", sharding_key=key), None) for key in "ab")
AWAY, REFUSED = QueueAway("away"), BrokerError(13, "illegal")


@pytest.mark.parametrize(
    ("rows", "results", "held"),
    [
        ([KEYED, OTHER, ROW], [None, None, None], []),
        ([KEYED, OTHER, KEYED], [AWAY, None, None], [0, 2]),
        ([KEYED, KEYED, OTHER], [None, AWAY, AWAY], [1, 2]),
        ([KEYED, ROW], [AWAY, AWAY], []),
        ([KEYED, OTHER], [AWAY, REFUSED], []),
    ],
)
def test_rows_of_a_key_are_sent_again_from_the_first_that_found_nobody(rows, results, held):
    assert held_back(rows, results) == held


def keyed(key):
    return Message("orders", b"x", sharding_key=key)


def test_a_key_belongs_to_its_queue_while_the_broker_is_away():
    everywhere = [MessageQueue("orders", broker, number) for broker in ("broker-a", "broker-b") for number in range(2)]
    keys = [keyed(f"k{number}") for number in range(40)]
    queues = KeyQueues()
    at_first = [queues.choose(message, everywhere) for message in keys]
    assert set(at_first) == set(everywhere)
    for there in (everywhere[:2], []):
        for message, queue in zip(keys, at_first, strict=True):
            if queue in there:
                assert queues.choose(message, there) == queue
            else:
                with pytest.raises(QueueAway, match=f"broker {queue.broker_name} is away: start it"):
                    queues.choose(message, there)
    assert [queues.choose(message, everywhere) for message in keys] == at_first


def test_a_queue_that_was_taken_from_a_broker_is_not_waited_for():
    queues = KeyQueues()
    for message in (messages := [keyed(f"k{number}") for number in range(20)]):
        queues.choose(message, QUEUES)
    assert {queues.choose(message, QUEUES[:2]) for message in messages} == set(QUEUES[:2])
