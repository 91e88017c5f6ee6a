"""Times outside the years 1 to 9999: compiled and pure code give null in rows and the number in the properties."""

from __future__ import annotations

import datetime as dt
import logging
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from records import QUEUE, record

from spark_probe import has_compiled_rows
from tianzhou.model import MessageQueue
from tianzhou.model.timestamps import MAX_BORN_AHEAD_MS, MAX_TIME_MS, MIN_TIME_MS, is_date, local_date, raw_times
from tianzhou.records.codec import encode_record
from tianzhou.records.walk import read_item
from tianzhou.spark.rows.columns import to_batch
from tianzhou.spark.rows.compiled_columns import CompiledColumns
from tianzhou.spark.rows.rules import DEFAULT_RULES, RowRules
from tianzhou.spark.rows.schema import COLUMNS, arrow_schema, kafka_schema, row_schema
from tianzhou.spark.sink.outgoing import message_of
from tianzhou.spark.store.store_tables import tables
from tianzhou.store.offline.import_export import record_of

SCHEMA = arrow_schema(row_schema(True, True))
NO_DATES = (
    253_402_300_800_000,  # the first millisecond of the year 10000
    1_700_000_000_123_456,  # microseconds: the year 55840
    2**62,
    2**63 - 1,  # multiplied by 1000 it overflows to 1969
    -(2**63),
    -62_135_596_800_001,
    MAX_TIME_MS + 1,
    MIN_TIME_MS - 1,
)
DATES = (0, -1, -62_000_000_000_000, MIN_TIME_MS, MAX_TIME_MS, 1_700_000_000_123)


@pytest.fixture(params=["pure", "compiled"])
def rows_of(request: pytest.FixtureRequest) -> Any:
    """Return a function that converts records to rows by the compiled or the pure code."""
    if request.param == "compiled" and not has_compiled_rows():
        pytest.skip("rows were not compiled here")

    def make(
        *records: Any, schema: Any = SCHEMA, columns: tuple[str, ...] = COLUMNS, rules: RowRules = DEFAULT_RULES
    ) -> list[dict[str, Any]]:
        way = CompiledColumns(schema, columns, rules=rules) if request.param == "compiled" else None
        parts = [memoryview(b"".join(map(encode_record, records)))]
        batch = to_batch(parts, QUEUE, schema, columns, compiled=way, rules=rules)
        batch.validate(full=True)
        return batch.to_pylist(maps_as_pydicts="strict")

    return make


@pytest.mark.parametrize("number", NO_DATES)
def test_a_time_that_is_no_date_is_null_and_its_number_is_kept(rows_of: Any, number: int) -> None:
    odd = record(1, properties=b"TAGS\x01A\x02a\x01b", born_timestamp=number)
    before, row, behind = rows_of(record(0), odd, record(2))
    assert row["bornTimestamp"] is None
    assert row["storeTimestamp"] == before["storeTimestamp"]
    assert row["properties"] == {"TAGS": "A", "a": "b", "BORN_TIMESTAMP_MS": str(number)}
    assert before["properties"] == behind["properties"] == {"TAGS": "A"}
    assert before["bornTimestamp"].year == 2023


@pytest.mark.parametrize("number", NO_DATES)
def test_the_brokers_time_likewise(rows_of: Any, number: int) -> None:
    (row,) = rows_of(record(properties=b"", store_timestamp=number, born_timestamp=number))
    assert (row["bornTimestamp"], row["storeTimestamp"]) == (None, None)
    assert row["properties"] == {"BORN_TIMESTAMP_MS": str(number), "STORE_TIMESTAMP_MS": str(number)}


@pytest.mark.parametrize("number", DATES)
def test_a_time_that_is_a_date_is_one(rows_of: Any, number: int) -> None:
    (row,) = rows_of(record(born_timestamp=number, store_timestamp=max(number, 1_700_000_000_456)))
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert row["bornTimestamp"].astimezone(dt.UTC) == epoch + dt.timedelta(milliseconds=number)
    assert row["properties"] == {"TAGS": "A"}


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Asia/Shanghai", "America/New_York"])
@pytest.mark.parametrize("number", DATES)
def test_a_date_is_one_in_every_time_zone(monkeypatch: pytest.MonkeyPatch, zone: str, number: int) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        # PySpark's TimestampType and our pages convert microseconds to a date in the same way.
        assert dt.datetime.fromtimestamp(number * 1000 // 1_000_000).astimezone() is not None
        found = local_date(number)
        assert found is not None
        assert round(found.timestamp() * 1000) == number
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.integers(-(2**70), 2**70))
def test_there_is_a_date_or_a_number(number: int) -> None:
    found = local_date(number)
    assert (found is None) == (not is_date(number)) == bool(raw_times(number, number))


# --- producers' times ahead of the broker's

STORED_MS = 1_700_000_000_456


@pytest.mark.parametrize("ahead_ms", [0, 1, 3_600_000, MAX_BORN_AHEAD_MS])
def test_a_clock_that_is_a_little_ahead_is_taken(rows_of: Any, ahead_ms: int) -> None:
    (row,) = rows_of(record(born_timestamp=STORED_MS + ahead_ms))
    assert round(row["bornTimestamp"].timestamp() * 1000) == STORED_MS + ahead_ms
    assert row["properties"] == {"TAGS": "A"}


@pytest.mark.parametrize("ahead_ms", [MAX_BORN_AHEAD_MS + 1, 40 * 365 * 86_400_000, MAX_TIME_MS - STORED_MS])
def test_a_time_too_far_ahead_is_null_and_its_number_is_kept(rows_of: Any, ahead_ms: int) -> None:
    before, row = rows_of(record(0), record(1, born_timestamp=STORED_MS + ahead_ms))
    assert row["bornTimestamp"] is None
    assert row["storeTimestamp"] == before["storeTimestamp"]
    assert row["properties"] == {"TAGS": "A", "BORN_TIMESTAMP_MS": str(STORED_MS + ahead_ms)}


def test_the_bound_is_an_option(rows_of: Any) -> None:
    records = [record(n, born_timestamp=STORED_MS + n * 1000) for n in range(4)]
    rows = rows_of(*records, rules=RowRules(max_born_ahead_ms=1000))
    assert [row["bornTimestamp"] is None for row in rows] == [False, False, True, True]
    rows = rows_of(record(born_timestamp=MAX_TIME_MS), rules=RowRules(max_born_ahead_ms=1 << 53))
    assert rows[0]["bornTimestamp"].year == 9999


def test_the_brokers_time_bounds_nothing_when_it_is_no_date(rows_of: Any) -> None:
    (row,) = rows_of(record(born_timestamp=STORED_MS, store_timestamp=-(2**63)))
    assert round(row["bornTimestamp"].timestamp() * 1000) == STORED_MS
    assert row["properties"] == {"TAGS": "A", "STORE_TIMESTAMP_MS": str(-(2**63))}


MOMENTS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([*NO_DATES, *DATES]),
    st.integers(-2 * MAX_BORN_AHEAD_MS, 2 * MAX_BORN_AHEAD_MS).map(lambda ahead_ms: STORED_MS + ahead_ms),
)


@given(
    st.lists(st.tuples(MOMENTS, MOMENTS), min_size=1, max_size=4),
    st.sampled_from([0, 1000, MAX_BORN_AHEAD_MS, 1 << 53]),
)
def test_rows_and_numbers_agree_with_the_rule_for_one_message(times: list[tuple[int, int]], ahead_ms: int) -> None:
    """The compiled and the pure way, and `raw_times`."""
    rules = RowRules(max_born_ahead_ms=ahead_ms)
    records = [record(n, born_timestamp=born, store_timestamp=stored) for n, (born, stored) in enumerate(times)]
    parts = [memoryview(b"".join(map(encode_record, records)))]
    ways = [None, CompiledColumns(SCHEMA, COLUMNS, rules=rules)] if has_compiled_rows() else [None]
    pure, *others = [to_batch(parts, QUEUE, SCHEMA, COLUMNS, compiled=way, rules=rules) for way in ways]
    assert all(pure.equals(other) for other in others)
    for (born, stored), row in zip(times, pure.to_pylist(maps_as_pydicts="strict"), strict=True):
        numbers = raw_times(born, stored, ahead_ms)
        assert row["properties"] == {"TAGS": "A"} | numbers
        assert (row["bornTimestamp"] is None) == ("BORN_TIMESTAMP_MS" in numbers)
        assert (row["storeTimestamp"] is None) == ("STORE_TIMESTAMP_MS" in numbers)


def test_kafkas_headers_have_the_number_too(rows_of: Any) -> None:
    schema = arrow_schema(kafka_schema(True))
    columns = ("key", "body", "topic", "queueId", "queueOffset", "storeTimestamp", "timestampType", "headers")
    (row,) = rows_of(record(store_timestamp=2**62), schema=schema, columns=columns)
    assert row["timestamp"] is None
    assert {"key": "STORE_TIMESTAMP_MS", "value": b"%d" % 2**62} in row["headers"]


def test_columns_without_a_time_stay_with_the_compiled_twin() -> None:
    if not has_compiled_rows():
        pytest.skip("rows were not compiled here")
    body = [encode_record(record(born_timestamp=2**62))]
    lean = pa.schema([SCHEMA.field(name) for name in ("queueOffset", "body", "tags")])
    assert CompiledColumns(lean, tuple(lean.names)).walked(body, QUEUE, 0, None) is not None
    for name in ("bornTimestamp", "storeTimestamp", "properties"):
        one = pa.schema([SCHEMA.field(name)])
        assert CompiledColumns(one, (name,)).walked(body, QUEUE, 0, None) is None


def test_the_first_message_of_a_queue_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    queue = MessageQueue("odd", "broker-b", 7)
    body = b"".join(
        encode_record(record(offset, topic="odd", queue_id=7, born_timestamp=2**62 if offset > 1 else 0))
        for offset in range(5)
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            to_batch(body, queue, SCHEMA, COLUMNS)
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("odd@broker-b:7, offset 2: bornTimestamp=4611686018427387904 and storeTimestamp=17000000")
    assert "as of 3 messages of this batch" in line


def test_an_export_keeps_the_number_for_the_import() -> None:
    raw = encode_record(record(born_timestamp=2**62, store_timestamp=-(2**63)))
    entry = read_item(memoryview(raw + bytes(8)), 0, 1000, check_crc=False).entry
    assert entry is not None
    (table,) = tables([(entry, memoryview(raw))])
    (row,) = table.to_pylist(maps_as_pydicts="strict")
    assert (row["bornTimestamp"], row["storeTimestamp"]) == (None, None)
    made = record_of(row)
    assert made.born_timestamp == 2**62
    assert made.properties == b"TAGS\x01A\x02"


def test_a_copy_of_a_row_is_sent_without_the_numbers() -> None:
    properties = {"UNIQ_KEY": "0A", "BORN_TIMESTAMP_MS": "1", "STORE_TIMESTAMP_MS": "2", "mine": "3"}
    assert message_of("t", b"x", properties=properties).properties == {"mine": "3"}
