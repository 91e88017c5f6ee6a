"""Raw records become the requested columns, with the values of the record codec."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, LongType, StringType, StructType
from records import QUEUE, record

from tianzhou.errors import ConfigError, CorruptRecord
from tianzhou.model.timestamps import raw_times
from tianzhou.records.codec import Record, decode_record, encode_record
from tianzhou.spark.rows import columns as columns_module
from tianzhou.spark.rows.columns import to_batch, to_batches
from tianzhou.spark.rows.compiled_columns import CompiledColumns
from tianzhou.spark.rows.schema import COLUMNS, DEFAULT_COLUMNS, arrow_schema, columns_of, kafka_schema, row_schema
from tianzhou.spark.rows.whole_row import WHOLE_ROW
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.compression import COMPRESSED, LZ4, ZLIB, ZSTD, compress
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.properties import decode_properties, encode_properties

SCHEMA = row_schema(True, True)
ARROW = arrow_schema(SCHEMA)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of(records, **options):
    body = b"".join(map(encode_record, records))
    batch = to_batch(body, QUEUE, ARROW, COLUMNS, **options)
    assert batch.schema.equals(ARROW)
    batch.validate(full=True)
    return [{**row, "properties": dict(row["properties"])} for row in batch.to_pylist()]


def expected_row(one: Record):
    properties = decode_properties(one.properties)
    ahead = raw_times(one.born_timestamp, one.store_timestamp)
    return {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": one.queue_offset,
        "msgId": properties.get("UNIQ_KEY") or offset_msg_id(one.store_host, one.store_port, one.physical_offset),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "body": one.body,
        "properties": properties | ahead,
        "bornTimestamp": None if ahead else EPOCH + timedelta(milliseconds=one.born_timestamp),
        "storeTimestamp": EPOCH + timedelta(milliseconds=one.store_timestamp),
        "bornHost": host_text(one.born_host, one.born_port),
        "storeHost": host_text(one.store_host, one.store_port),
        "reconsumeTimes": one.reconsume_times,
        "sysFlag": one.sys_flag,
        "physicalOffset": one.physical_offset,
    }


hosts = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
names = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "a", "ä", "UNIQ_KE", "xTAGS"])
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), max_size=5)
pieces = st.one_of(
    st.tuples(names, values).map(lambda pair: f"{pair[0]}\x01{pair[1]}"),
    st.sampled_from(["", "\x01", "a", "a\x01", "\x01b", "a\x01\x01"]),
)
raw_properties = st.builds(
    lambda parts, last: ("\x02".join(parts) + last).encode(),
    st.lists(pieces, max_size=5),
    st.sampled_from(["", "\x02"]),
)
records = st.builds(
    record,
    offset=st.integers(0, 2**62),
    body=st.binary(max_size=40),
    properties=raw_properties,
    topic=st.sampled_from(["orders", "t" * 127, "t" * 200, "é" * 60]),
    physical_offset=st.integers(0, 2**62),
    born_host=hosts,
    store_host=hosts,
    born_port=st.integers(0, 65535),
    store_port=st.integers(0, 65535),
    born_timestamp=st.integers(0, 10**13),
    store_timestamp=st.integers(0, 10**13),
    reconsume_times=st.integers(0, 100),
)


@given(st.lists(records, max_size=8))
def test_columns_hold_what_the_record_codec_reads(many):
    read_back = [decode_record(encode_record(one)) for one in many]
    assert rows_of(many) == [expected_row(one) for one in read_back]


def test_no_records_make_an_empty_batch():
    assert rows_of([]) == []


@pytest.mark.parametrize("kind", [0, ZLIB, LZ4, ZSTD])
def test_compressed_bodies_are_unpacked(kind):
    text = b"the same words again and again " * 40
    packed = record(1, compress(text, kind), sys_flag=COMPRESSED | kind)
    assert [row["body"] for row in rows_of([record(0), packed, record(2, b"z")])] == [b"x", text, b"z"]


def test_a_body_that_cannot_be_unpacked_is_named_by_queue_and_offset():
    with pytest.raises(CorruptRecord, match=r"orders@broker-a:3, offset 7: ZLIB"):
        rows_of([record(6), record(7, b"no zlib", sys_flag=COMPRESSED)])


@pytest.mark.parametrize("flag", [0xC0, 0x40])
@pytest.mark.parametrize("packed", [False, True])
def test_an_inner_batch_becomes_its_messages(flag, packed):
    body = encode_batch([(0, f"m{n}".encode(), encode_properties({"UNIQ_KEY": f"id{n}"})) for n in range(3)])
    if packed:
        body, flag = compress(body), flag | COMPRESSED
    rows = rows_of([record(4), record(5, body, sys_flag=flag), record(8, b"y")])
    assert [row["queueOffset"] for row in rows] == [4, 5, 6, 7, 8]
    assert [row["body"] for row in rows] == [b"x", b"m0", b"m1", b"m2", b"y"]
    assert [row["msgId"] for row in rows][1:4] == ["id0", "id1", "id2"]


def test_records_outside_the_range_are_dropped():
    rows = rows_of([record(n) for n in range(10)], start=3, end=6)
    assert [row["queueOffset"] for row in rows] == [3, 4, 5]


def test_tags_are_compared_as_text():
    many = [
        record(0, properties=encode_properties({"TAGS": "Aa"})),
        record(1, properties=encode_properties({"TAGS": "BB"})),
        record(2),
    ]
    assert [row["tags"] for row in rows_of(many, tags=frozenset({"Aa"}))] == ["Aa"]


def test_names_that_occur_twice_appear_once_with_the_last_value():
    raw = b"k\x01first\x02TAGS\x01A\x02k\x01second\x02"
    batch = to_batch(encode_record(record(0, properties=raw)), QUEUE, ARROW, COLUMNS)
    assert batch.to_pylist()[0]["properties"] == [("TAGS", "A"), ("k", "second")]


def test_bytes_that_are_no_text_are_replaced():
    row = rows_of([record(0, properties=b"TAGS\x01\xff\x02")])[0]
    assert row["tags"] == "�"
    schema = StructType().add("body", StringType())
    batch = to_batch(encode_record(record(0, b"a\xff")), QUEUE, arrow_schema(schema), ("body",))
    assert batch.to_pylist() == [{"body": "a�"}]


@pytest.mark.parametrize("cut", [1, 3, 4, 40, 92, -1])
def test_a_torn_buffer_is_an_error_that_names_the_queue(cut):
    body = encode_record(record(0, b"hello")) + encode_record(record(1, b"world"))
    with pytest.raises(CorruptRecord, match="orders@broker-a:3"):
        to_batch(body[:cut], QUEUE, ARROW, COLUMNS)


@given(st.data())
def test_damaged_bytes_never_do_worse_than_an_error(data):
    body = bytearray(b"".join(encode_record(record(n, b"hello", b"TAGS\x01A\x02")) for n in range(3)))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        batch = to_batch(bytes(body), QUEUE, ARROW, COLUMNS)
    except CorruptRecord:
        return
    batch.validate(full=True)


# --- the schema


def test_any_subset_in_any_order_and_case_is_honoured():
    schema = StructType().add("QUEUEOFFSET", LongType()).add("tags", StringType())
    assert columns_of(schema) == ("queueOffset", "tags")
    batch = to_batch(
        encode_record(record(9, properties=encode_properties({"TAGS": "A"}))),
        QUEUE,
        arrow_schema(schema),
        columns_of(schema),
    )
    assert batch.to_pylist() == [{"QUEUEOFFSET": 9, "tags": "A"}]


def test_a_not_null_column_is_honoured():
    schema = StructType().add("queueOffset", LongType(), nullable=False)
    arrow = arrow_schema(schema)
    assert to_batch(encode_record(record(9)), QUEUE, arrow, ("queueOffset",)).schema.equals(arrow)


def test_an_unknown_column_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no column queueOfset \(did you mean queueOffset\?\)"):
        columns_of(StructType().add("queueOfset", LongType()))


def test_a_wrong_type_is_named_with_the_right_one():
    with pytest.raises(ConfigError, match="column queueOffset is STRING; expected BIGINT"):
        columns_of(StructType().add("queueOffset", StringType()))
    with pytest.raises(ConfigError, match="column body is INT; expected BINARY or STRING"):
        columns_of(StructType().add("body", IntegerType()))


def test_properties_and_metadata_are_there_when_they_are_asked_for():
    assert "properties" not in row_schema(False, True).fieldNames()
    assert "msgId" not in row_schema(True, False).fieldNames()
    assert row_schema().fieldNames() == list(DEFAULT_COLUMNS)
    assert row_schema(True, True).fieldNames() == list(COLUMNS)


def test_kafkas_columns_are_those_of_the_message_under_their_own_names():
    made = record(7, b"x", encode_properties({"KEYS": "k", "a": "b"}))
    sharded = record(8, b"y", encode_properties({"KEYS": "k", "__SHARDINGKEY": "s"}))
    neither = record(9, b"z", encode_properties({}))
    schema = kafka_schema(include_headers=True)
    body = b"".join(map(encode_record, (made, sharded, neither)))
    batch = to_batch(body, QUEUE, arrow_schema(schema), columns_of(schema))
    rows = batch.to_pylist()
    assert [(row["key"], row["value"], row["partition"], row["offset"]) for row in rows] == [
        (b"k", b"x", QUEUE.queue_id, 7),
        (b"s", b"y", QUEUE.queue_id, 8),
        (None, b"z", QUEUE.queue_id, 9),
    ]
    assert rows[0]["headers"] == [{"key": "KEYS", "value": b"k"}, {"key": "a", "value": b"b"}]
    assert rows[2]["headers"] == []
    assert {row["timestampType"] for row in rows} == {1}
    assert rows[0]["timestamp"] == EPOCH + timedelta(milliseconds=made.store_timestamp)
    assert {row["topic"] for row in rows} == {QUEUE.topic}


def test_kafkas_names_and_the_messages_own_go_together_in_a_schema():
    schema = StructType().add("value", StringType()).add("KEY", StringType()).add("body", StringType())
    batch = to_batch(
        encode_record(record(7, b"x", encode_properties({"KEYS": "k"}))),
        QUEUE,
        arrow_schema(schema),
        columns_of(schema),
        compiled=CompiledColumns(arrow_schema(schema), columns_of(schema)),
    )
    assert batch.to_pylist() == [{"value": "x", "KEY": "k", "body": "x"}]


def test_the_whole_row_needs_no_pyspark():
    assert WHOLE_ROW.equals(arrow_schema(row_schema(include_properties=True, include_metadata=True)))


@pytest.mark.parametrize("tags", [frozenset(), frozenset({"even"})])
def test_bodies_that_unpack_to_more_than_a_batch_may_hold_come_in_several(monkeypatch, tags):
    monkeypatch.setattr(columns_module, "BODIES_LIMIT", 2_500)
    bodies = [bytes([n]) * 1_000 for n in range(7)] + [bytes(4_000)]
    found = [
        record(
            n, compress(body, ZLIB), sys_flag=COMPRESSED, properties=encode_properties({"TAGS": ("even", "odd")[n % 2]})
        )
        for n, body in enumerate(bodies)
    ]
    buffer = [b"".join(map(encode_record, found))]
    compiled = CompiledColumns(ARROW, COLUMNS, tags)
    batches = to_batches(buffer, QUEUE, ARROW, COLUMNS, start=0, tags=tags, compiled=compiled)
    buffer.clear()
    rows = [batch.to_pylist() for batch in batches]
    wanted = [n for n in range(8) if not tags or n % 2 == 0]
    assert [row["queueOffset"] for batch in rows for row in batch] == wanted
    assert [row["body"] for batch in rows for row in batch] == [bodies[n] for n in wanted]
    assert len(rows) > 1
    assert all(len(batch) == 1 or sum(len(row["body"]) for row in batch) <= 2_500 for batch in rows)
