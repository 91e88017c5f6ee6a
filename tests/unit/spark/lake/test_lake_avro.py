"""Avro bodies as Arrow values."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import fastavro
import pyarrow as pa

from tianzhou.errors import ConfigError, ProtocolError
from tianzhou.spark.lake.avro import FAILFAST, PERMISSIVE, Decoder

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": ["null", "int"]}}},
    ],
}
VALUE = {
    "id": 7,
    "item": None,
    "price": Decimal("12.50"),
    "at": datetime(2026, 1, 31, 8, 0, tzinfo=UTC),
    "day": date(2026, 1, 31),
    "ref": UUID("12345678-1234-5678-1234-567812345678"),
    "kind": "NEW",
    "again": "OLD",
    "lines": [{"a": 1, "b": None}, {}],
}


def encode(value, schema=ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_every_kind_of_value() -> None:
    decode = Decoder(json.dumps(ORDER), None, FAILFAST)
    found = decode(pa.array([encode(VALUE), None], pa.binary())).to_pylist()
    expected = {**VALUE, "ref": str(VALUE["ref"]), "lines": [[("a", 1), ("b", None)], []]}
    assert found == [expected, None]


def test_the_header_of_a_schema_registry_is_passed_over() -> None:
    decode = Decoder(ORDER, None, FAILFAST)
    [found] = decode(pa.array([b"\0\0\0\0\x2a" + encode(VALUE)], pa.binary())).to_pylist()
    assert found["id"] == 7


def test_what_is_no_avro_is_null_or_an_error() -> None:
    bad = [b"", b"{}", encode(VALUE)[:-1], encode(VALUE) + b"x"]
    assert Decoder(ORDER, None, PERMISSIVE)(pa.array(bad, pa.binary())).to_pylist() == [None] * 4
    for body in bad:
        with pytest.raises(ProtocolError, match=f"a body of {len(body)} bytes is no value of the Avro schema"):
            Decoder(ORDER, None, FAILFAST)(pa.array([body], pa.binary()))


def test_another_schema_to_read_by() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "shop", "type": "string", "default": "here"}]
    wanted = {"type": "record", "name": "Order", "fields": fields}
    [found] = Decoder(ORDER, wanted, FAILFAST)(pa.array([encode(VALUE)], pa.binary())).to_pylist()
    assert found == {"id": 7, "shop": "here"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "avro schema: JSONDecodeError"),
        ({"type": "record"}, "avro schema: .*expected the JSON of an Avro schema"),
        (["int", "string"], "a union of int, string has no column type"),
        ({"type": "int", "logicalType": "time-millis"}, "logical type time-millis has no column type"),
        (
            {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]},
            "N contains itself, which no column can",
        ),
    ],
)
def test_schemas_that_cannot_be_are_explained(schema, text) -> None:
    with pytest.raises(ConfigError, match=text):
        Decoder(schema if isinstance(schema, str) else json.dumps(schema), None, PERMISSIVE)


def test_the_mode_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match="mode=DROP: expected PERMISSIVE or FAILFAST"):
        Decoder(ORDER, None, "DROP")
