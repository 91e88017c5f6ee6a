"""Compressed bodies that cannot be unpacked: an error, null or a row less, by both ways to rows."""

from __future__ import annotations

import logging
import zlib
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from records import QUEUE, record

from spark_probe import has_compiled_rows
from tianzhou.errors import ConfigError, CorruptRecord
from tianzhou.records.codec import encode_record
from tianzhou.records.layout import INNER_BATCH_BITS
from tianzhou.spark.option_values import BATCH
from tianzhou.spark.rows import columns as columns_module
from tianzhou.spark.rows.columns import to_batches
from tianzhou.spark.rows.compiled_columns import CompiledColumns
from tianzhou.spark.rows.rules import FAIL, NULL, SKIP, RowRules
from tianzhou.spark.rows.schema import COLUMNS, arrow_schema, row_schema
from tianzhou.spark.source.read_options import parse_read
from tianzhou.spark.store.store_options import parse_store
from tianzhou.wire.compression import COMPRESSED, LZ4, ZLIB, ZSTD, compress

SCHEMA = arrow_schema(row_schema(True, True))
NOT_PACKED = b"this was never compressed"
LEAN = ("queueOffset", "body")


@pytest.fixture(params=["pure", "compiled"])
def read(request: pytest.FixtureRequest) -> Any:
    """Return a function that converts records to rows by the compiled or the pure code."""
    if request.param == "compiled" and not has_compiled_rows():
        pytest.skip("rows were not compiled here")

    def make(rule: str, *records: Any, names: tuple[str, ...] = COLUMNS, schema: Any = None) -> list[dict[str, Any]]:
        schema = schema or pa.schema([SCHEMA.field(name) for name in names])
        rules = RowRules(corrupt_bodies=rule)
        way = CompiledColumns(schema, names, rules=rules) if request.param == "compiled" else None
        parts = [memoryview(b"".join(map(encode_record, records)))]
        batches = list(to_batches(parts, QUEUE, schema, names, compiled=way, rules=rules))
        for batch in batches:
            batch.validate(full=True)
        return [row for batch in batches for row in batch.to_pylist()]

    return make


@pytest.mark.parametrize("kind", [0, ZLIB, LZ4, ZSTD, 0x400])
@pytest.mark.parametrize("body", [NOT_PACKED, b"", zlib.compress(b"cut off" * 9)[:-4]])
def test_a_body_that_is_not_what_its_flag_says(
    read: Any, kind: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = record(0, compress(b"good"), sys_flag=COMPRESSED)
    bad = record(1, body, sys_flag=COMPRESSED | kind)
    with pytest.raises(CorruptRecord, match="orders@broker-a:3, offset 1: "):
        read(FAIL, good, bad, record(2))
    with caplog.at_level(logging.WARNING):
        rows = read(NULL, good, bad, record(2))
    assert [(row["queueOffset"], row["body"]) for row in rows] == [(0, b"good"), (1, None), (2, b"x")]
    assert "orders@broker-a:3, offset 1: " in caplog.text
    assert "corruptBodies=null: 1 of 3 bodies of this batch cannot be unpacked and are null" in caplog.text
    with caplog.at_level(logging.WARNING):
        rows = read(SKIP, good, bad, record(2))
    assert [(row["queueOffset"], row["body"], row["tags"]) for row in rows] == [(0, b"good", "A"), (2, b"x", "A")]
    assert "corruptBodies=skip: 1 of 3 bodies of this batch cannot be unpacked and are left out" in caplog.text


def test_bodies_as_text_and_other_columns_of_the_same_rows(read: Any) -> None:
    bad = [
        record(n, NOT_PACKED, sys_flag=COMPRESSED if n % 2 else 0, properties=b"TAGS\x01%d\x02" % n) for n in range(6)
    ]
    text = pa.schema([pa.field("body", pa.string()), pa.field("tags", pa.string()), SCHEMA.field("queueOffset")])
    for rule, left in ((NULL, range(6)), (SKIP, range(0, 6, 2))):
        rows = read(rule, *bad, names=("body", "tags", "queueOffset"), schema=text)
        assert [(row["tags"], row["queueOffset"]) for row in rows] == [(str(n), n) for n in left]
        assert [row["body"] for row in rows] == [None if n % 2 else NOT_PACKED.decode() for n in left]


def test_all_bodies_of_a_batch_are_corrupt(read: Any) -> None:
    bad = [record(n, NOT_PACKED, sys_flag=COMPRESSED) for n in range(3)]
    assert read(SKIP, *bad, names=LEAN) == []
    assert [row["body"] for row in read(NULL, *bad, names=LEAN)] == [None] * 3


def test_rows_without_a_body_keep_their_messages(read: Any) -> None:
    """Only a query that reads bodies unpacks them."""
    assert len(read(SKIP, record(0, NOT_PACKED, sys_flag=COMPRESSED), names=("queueOffset",))) == 1


@pytest.mark.parametrize("flag", [COMPRESSED, 0])
def test_an_inner_batch_that_cannot_be_taken_apart_is_one_message(read: Any, flag: int) -> None:
    batch = record(4, NOT_PACKED, sys_flag=INNER_BATCH_BITS | flag)
    with pytest.raises(CorruptRecord, match="offset 4: "):
        read(FAIL, batch, names=LEAN)
    assert [row["queueOffset"] for row in read(SKIP, record(3), batch, names=LEAN)] == [3]
    assert [row["body"] for row in read(NULL, record(3), batch, names=LEAN)] == [b"x", None]


def test_a_batch_whose_bodies_are_too_large_is_halved(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "BODIES_LIMIT", 2500)
    body = compress(bytes(1000))
    records = [record(n, NOT_PACKED if n == 5 else body, sys_flag=COMPRESSED) for n in range(8)]
    assert [row["queueOffset"] for row in read(SKIP, *records, names=LEAN)] == [n for n in range(8) if n != 5]
    assert [row["body"] is None for row in read(NULL, *records, names=LEAN)] == [n == 5 for n in range(8)]


@pytest.mark.parametrize("source", ["live", "store"])
def test_the_option_of_both_sources(source: str) -> None:
    needed = {"namesrvAddr": "a:1"} if source == "live" else {"storePath": "x"}

    def parse(**more: str) -> Any:
        return (parse_read if source == "live" else parse_store)({**needed, "subscribe": "t", **more}, BATCH)

    assert parse().corrupt_bodies == FAIL
    assert parse(corruptBodies="Skip").corrupt_bodies == SKIP
    with pytest.raises(ConfigError, match="corruptBodies=drop: expected fail or null or skip"):
        parse(corruptBodies="drop")
    assert parse().max_born_ahead_ms == 86_400_000
    assert parse(maxBornAhead="1h").max_born_ahead_ms == 3_600_000
    with pytest.raises(ConfigError, match="maxBornAhead=soon: expected a time like 1h or 1d"):
        parse(maxBornAhead="soon")
