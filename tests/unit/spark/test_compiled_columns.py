"""Compiled code makes the same columns as NumPy and Arrow, or leaves them to these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from records import QUEUE, record

from spark_probe import has_compiled_rows
from tianzhou.records.codec import encode_record
from tianzhou.spark.rows.columns import Records, made_of, to_batch
from tianzhou.spark.rows.compiled_columns import CompiledColumns
from tianzhou.spark.rows.schema import COLUMNS, arrow_schema, row_schema
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.compression import COMPRESSED, ZLIB, compress

compiled = pytest.mark.skipif(not has_compiled_rows(), reason="rows were not compiled here")
SCHEMA = arrow_schema(row_schema(True, True))


def outcome(attempt: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a call: a batch, or the type and text of an error."""
    try:
        return attempt(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - both ways have to fail alike
        return type(error), str(error)


def same(body: bytes, columns: tuple[str, ...] = COLUMNS, **options: Any) -> Any:
    """Check that both ways make the same batch of records, and return it."""
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    compiled_columns = CompiledColumns(schema, columns, options.get("tags", frozenset()))
    expected = outcome(to_batch, body, QUEUE, schema, columns, **options)
    found = outcome(to_batch, body, QUEUE, schema, columns, compiled=compiled_columns, **options)
    # The same records inside a buffer of received bytes.
    view = memoryview(bytearray(b"?" + body + b"?"))[1:-1]
    in_place = [
        outcome(to_batch, [view], QUEUE, schema, columns, compiled=way, **options) for way in (compiled_columns, None)
    ]
    if isinstance(expected, tuple):
        assert [found, *in_place] == [expected] * 3
        return None
    assert all(one.equals(expected) for one in in_place)
    found.validate(full=True)
    assert found.schema.equals(expected.schema)
    assert found.equals(expected)
    return found


# --- equal results

ips = st.binary(min_size=4, max_size=4)
names = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "WAIT", "a", "ä", "UNIQ_KE", "xTAGS", "漢字", "\U0001f600"])
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), max_size=5)
pieces = st.one_of(
    st.tuples(names, values).map(lambda pair: f"{pair[0]}\x01{pair[1]}".encode()),
    st.sampled_from([b"", b"\x01", b"a", b"a\x01", b"\x01b", b"a\x01\x01", b"a\x01\x01b"]),
    st.sampled_from([b"a\x01\xff", b"\xc3\x01a", b"b\x01\xed\xa0\x80", b"TAGS\x01\xc0\x80"]),
)
raw_properties = st.builds(
    lambda parts, last: b"\x02".join(parts) + last, st.lists(pieces, max_size=6), st.sampled_from([b"", b"\x02"])
)
I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
records = st.builds(
    record,
    offset=st.integers(0, 20) | I64,
    body=st.binary(max_size=40),
    properties=raw_properties,
    topic=st.sampled_from(["orders", "t" * 127, "t" * 200, "é" * 60]),
    physical_offset=I64,
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 0x0F00]),
    born_host=ips,
    store_host=ips,
    born_port=I32,
    store_port=st.integers(0, 65535),
    born_timestamp=st.integers(0, 10**13) | I64,
    store_timestamp=st.integers(0, 10**13) | I64,
    reconsume_times=I32,
)


@given(st.lists(records, max_size=9), st.permutations(COLUMNS), st.integers(1, len(COLUMNS)), st.integers(0, 3))
def test_any_records_give_the_same_columns(many, order, count, start):
    same(b"".join(map(encode_record, many)), tuple(order[:count]), start=start, end=2**62)


@given(st.data())
def test_damaged_records_give_the_same_error_or_the_same_rows(data):
    properties = b"KEYS\x01k\x02UNIQ_KEY\x010A0B\x02TAGS\x01A\x02"
    body = bytearray(b"".join(encode_record(record(n, b"hello", properties)) for n in range(3)))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    same(bytes(body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))]))


@compiled
def test_what_is_plain_is_not_left_to_the_other_way():
    many = [record(n, b"%d" % n * (n % 7), b"KEYS\x01%d\x02TAGS\x01A\x02k\x01v" % n) for n in range(3000)]
    batch = CompiledColumns(SCHEMA, COLUMNS).walked(list(map(encode_record, many)), QUEUE, 1000, None)
    assert batch is not None
    assert batch.num_rows == 2000
    assert same(b"".join(map(encode_record, many)), start=1000).equals(batch)


@compiled
def test_only_rows_with_the_tags_are_made_and_others_are_left():
    both = encode_record(record(0, properties=b"TAGS\x01Aa\x02")) + encode_record(
        record(1, properties=b"TAGS\x01BB\x02")
    )
    columns = ("queueOffset",)
    schema = pa.schema([SCHEMA.field("queueOffset")])
    assert CompiledColumns(schema, columns, frozenset({"Aa"})).walked([both], QUEUE, 0, None) is None
    assert CompiledColumns(schema, columns, frozenset({"Aa", "BB"})).walked([both], QUEUE, 0, None).num_rows == 2
    assert same(both, columns, tags=frozenset({"Aa"})).to_pylist() == [{"queueOffset": 0}]


@compiled
def test_what_is_still_held_stays_as_it_is_while_more_is_made():
    columns, held = CompiledColumns(SCHEMA, COLUMNS), {}
    for number in range(60):
        body = b"%d" % number * (number % 5 * 4000 + 1)
        batch = columns.walked([encode_record(record(number, body)) * 3], QUEUE, 0, None)
        if number % 3:
            held[number] = batch.column(7) if number % 2 else batch
        for other, batch_or_column in held.items():
            bodies = batch_or_column if isinstance(batch_or_column, pa.Array) else batch_or_column.column(7)
            assert bodies.to_pylist() == [b"%d" % other * (other % 5 * 4000 + 1)] * 3
        for gone in [other for other in held if other < number - 7]:
            del held[gone]


NOT_PLAIN = {
    "an inner batch": record(0, encode_batch([(0, b"m", b"")]), sys_flag=0xC0),
    "a packed body": record(0, compress(b"x" * 50), sys_flag=COMPRESSED | ZLIB),
    "a producer with an IPv6 address": record(0, born_host=bytes(15) + b"\x01"),
    "a broker with an IPv6 address": record(0, store_host=bytes(15) + b"\x01"),
    "a name twice": record(0, properties=b"k\x01first\x02TAGS\x01A\x02k\x01second\x02"),
    "bytes that are no text": record(0, properties=b"TAGS\x01\xff\x02"),
    "more properties than are looked through": record(0, properties=b"".join(b"%d\x01v\x02" % n for n in range(65))),
}


@compiled
@pytest.mark.parametrize("what", NOT_PLAIN)
def test_what_is_not_plain_is_left_with_all_its_batch(what):
    body = encode_record(record(5)) + encode_record(NOT_PLAIN[what])
    assert CompiledColumns(SCHEMA, COLUMNS).walked([body], QUEUE, 0, None) is None
    assert same(body).num_rows == 2


# --- in a file, beside a queue

PLACES = np.array([7, 300, 700], np.int64)


def in_file(**changes: Any) -> tuple[bytes, Any]:
    """Return three records in a file that begins at 1000, the last of them changed, and their sizes."""
    content, sizes = bytearray(1000), []
    for number, place in enumerate(PLACES.tolist()):
        one = {"physical_offset": 1000 + place, **(changes if number == 2 else {})}
        raw = encode_record(record(**{"offset": 40 + number, **one}))
        content[place : place + len(raw)] = raw
        sizes.append(len(raw))
    return bytes(content), np.array(sizes, np.int64)


def placed(content: bytes, starts: Any, sizes: Any, offsets: Any) -> Any:
    return CompiledColumns(SCHEMA, COLUMNS).placed(pa.py_buffer(content), starts, sizes, offsets, 1000, QUEUE)


OFFSETS = np.array([40, 41, 42], np.int64)


@compiled
def test_records_of_a_file_are_what_their_queue_says():
    content, sizes = in_file()
    found, good = Records.at(pa.py_buffer(content), PLACES, sizes, QUEUE)
    assert good.all()
    assert placed(content, PLACES, sizes, OFFSETS).equals(made_of(found, SCHEMA, COLUMNS))
    for array in (PLACES, sizes, OFFSETS):
        array.flags.writeable = False
    assert placed(content, PLACES, sizes, OFFSETS).num_rows == 3


@compiled
@pytest.mark.parametrize(
    "changes", [{"offset": 43}, {"queue_id": 2}, {"topic": "order"}, {"topic": "orderz"}, {"physical_offset": 1}]
)
def test_a_record_that_is_something_else_is_left(changes):
    content, sizes = in_file(**changes)
    assert placed(content, PLACES, sizes, OFFSETS) is None


@compiled
@pytest.mark.parametrize(
    ("place", "size"),
    [
        *((place, 200) for place in (-1, 999, 1001, 1 << 62, -(1 << 62))),
        *((700, size) for size in (1 << 40, 0, -5, 90)),
    ],
)
def test_nothing_outside_the_file_is_touched(place, size):
    content, sizes = in_file()
    starts = PLACES.copy()
    starts[2], sizes[2] = place, size
    assert placed(content, starts, sizes, OFFSETS) is None
    assert placed(content, starts, sizes[:2], OFFSETS) is None
    assert placed(content, starts, sizes, OFFSETS[:2]) is None
