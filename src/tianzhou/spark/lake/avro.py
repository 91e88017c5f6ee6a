"""Decoding of Avro bodies to Arrow arrays: each body is one datum of a given schema."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import fastavro
import pyarrow as pa

from tianzhou.errors import ConfigError, ProtocolError
from tianzhou.spark.pickling import Pickled

PERMISSIVE: Final = "PERMISSIVE"
FAILFAST: Final = "FAILFAST"
CONFLUENT_MAGIC: Final = 0
CONFLUENT_HEADER: Final = 5
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}

Convert = Callable[[Any], Any]


def parsed(schema: str | Mapping[str, Any]) -> Any:
    """Parse an Avro schema.

    Raises:
        ConfigError: the text is not an Avro schema.
    """
    try:
        return fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else dict(schema))
    except Exception as error:
        raise ConfigError(
            f"avro schema: {type(error).__name__}: {error}; expected the JSON of an Avro schema"
        ) from error


def _type(schema: Any, known: dict[str, Any], inside: tuple[str, ...]) -> tuple[pa.DataType, Convert | None]:
    """Return the Arrow type, and the converter of fastavro's values to Arrow's; None if they need no conversion."""
    if isinstance(schema, list):
        return _union(schema, known, inside)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema], None
        if schema in inside:
            raise ConfigError(f"avro schema: {schema} contains itself, which no column can; parse it in Python instead")
        if schema not in known:
            raise ConfigError(f"avro schema: there is no type {schema}")
        return _type(known[schema], known, inside)
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, dict | list):
        return _type(kind, known, inside)
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0)), None
    if logical in _LOGICAL:
        return _LOGICAL[logical], str if logical == "uuid" else None
    if logical is not None and logical.startswith("time-"):
        raise ConfigError(f"avro schema: logical type {logical} has no column type; leave the logical type out")
    if kind in {"record", "error"}:
        return _record(schema, known, inside)
    if kind == "array":
        inner, convert = _type(schema["items"], known, inside)
        if convert is None:
            return pa.list_(inner), None
        of_item = convert
        return pa.list_(inner), lambda values: [of_item(value) for value in values]
    if kind == "map":
        inner, convert = _type(schema["values"], known, inside)
        each = convert or (lambda value: value)
        return pa.map_(pa.string(), inner), lambda values: [(key, each(value)) for key, value in values.items()]
    if kind in {"enum", "fixed"}:
        known[schema["name"]] = schema
        return (pa.string() if kind == "enum" else pa.binary()), None
    return _type(kind, known, inside)


def _union(branches: list[Any], known: dict[str, Any], inside: tuple[str, ...]) -> tuple[pa.DataType, Convert | None]:
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        names = ", ".join(branch if isinstance(branch, str) else branch["type"] for branch in branches)
        raise ConfigError(f"avro schema: a union of {names} has no column type; only null and one other can be")
    kind, convert = _type(others[0], known, inside)
    if convert is None:
        return kind, None
    other = convert
    return kind, lambda value: None if value is None else other(value)


def _record(schema: Any, known: dict[str, Any], inside: tuple[str, ...]) -> tuple[pa.DataType, Convert | None]:
    name = schema["name"]
    known[name] = schema
    fields, converts = [], {}
    for field in schema["fields"]:
        kind, convert = _type(field["type"], known, (*inside, name))
        fields.append(pa.field(field["name"], kind))
        if convert is not None:
            converts[field["name"]] = convert
    if not converts:
        return pa.struct(fields), None

    def each(value: dict[str, Any]) -> dict[str, Any]:
        for part, convert in converts.items():
            value[part] = convert(value[part])
        return value

    return pa.struct(fields), each


class Decoder(Pickled):
    """A decoder of Avro bodies.

    Args:
        schema: the writer's schema.
        wanted: the reader's schema, which may have columns added or removed; None for the writer's schema.
        mode: PERMISSIVE makes a malformed body null, FAILFAST raises.

    Raises:
        ConfigError: a schema is invalid or has no column type, or the mode is unknown.
    """

    def __init__(self, schema: str | Mapping[str, Any], wanted: str | Mapping[str, Any] | None, mode: str) -> None:
        if mode not in {PERMISSIVE, FAILFAST}:
            raise ConfigError(f"mode={mode}: expected {PERMISSIVE} or {FAILFAST}")
        self._schema = parsed(schema)
        self._wanted = None if wanted is None else parsed(wanted)
        self.type, self._convert = _type(self._wanted or self._schema, {}, ())
        self._strict = mode == FAILFAST

    def __call__(self, bodies: Any) -> Any:
        """Return the values of bodies. The value of null is null.

        Raises:
            ProtocolError: a body is malformed, and the mode is FAILFAST.
        """
        return pa.array([self._one(body) for body in bodies.to_pylist()], self.type)

    def _one(self, body: bytes | str | None) -> Any:
        if body is None:
            return None
        data = body.encode() if isinstance(body, str) else body
        try:
            return self._read(data)
        except ProtocolError as error:
            if self._strict:
                raise ProtocolError(f"a body of {len(data)} bytes is no value of the Avro schema: {error}") from error
            return None

    def _read(self, data: bytes) -> Any:
        registered = len(data) > CONFLUENT_HEADER and data[0] == CONFLUENT_MAGIC
        for skipped in (0, CONFLUENT_HEADER) if registered else (0,):
            source = io.BytesIO(data)
            source.seek(skipped)
            try:
                value = fastavro.schemaless_reader(source, self._schema, self._wanted)
            except Exception as error:  # noqa: BLE001 - of fastavro's: EOFError, IndexError, UnicodeDecodeError, …
                problem = f"{type(error).__name__}: {error}"
                continue
            if source.tell() == len(data):
                return value if self._convert is None else self._convert(value)
            problem = f"{len(data) - source.tell()} bytes are left behind it"
        raise ProtocolError(problem)
