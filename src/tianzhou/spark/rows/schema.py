"""The row of a message, under RocketMQ's names or under the names of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tianzhou.errors import ConfigError
from tianzhou.spark.option_values import nearest

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "msgId": StringType(),
    "tags": StringType(),
    "keys": StringType(),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType(), valueContainsNull=True),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "reconsumeTimes": IntegerType(),
    "sysFlag": IntegerType(),
    "physicalOffset": LongType(),
}
COLUMNS: Final = tuple(_TYPES)
PROPERTIES: Final = "properties"
METADATA: Final = ("msgId", "bornHost", "storeHost", "reconsumeTimes", "sysFlag", "physicalOffset")
"""Columns that few queries use and that slow down every query. `includeMetadata` or their names select them."""
DEFAULT_COLUMNS: Final = tuple(name for name in COLUMNS if name not in (PROPERTIES, *METADATA))
"""The columns of a query without options for columns (docs/adr/0023)."""

SLOWEST: Final = "slowestTimestamp"
"""Column of streams alone, the same in all rows of a micro-batch: the store time that all queues reach with it."""
SLOWEST_BEFORE: Final = "slowestBefore"
"""Column of streams alone: the same at the beginning of the micro-batch."""

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_KAFKA_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
KAFKA_COLUMNS: Final = tuple(_KAFKA_TYPES)
"""The columns of Spark's Kafka source."""
SAME: Final = {"value": "body", "partition": "queueId", "offset": "queueOffset", "timestamp": "storeTimestamp"}
"""Kafka's columns that equal a column of a message under another name."""
_AS_TEXT: Final = frozenset({"body", "value", "key"})


def row_schema(include_properties: bool = False, include_metadata: bool = False) -> StructType:
    """Return the schema of a read without `.schema()`. With both arguments it has all `COLUMNS`.

    Args:
        include_properties: whether to include the map of all properties.
        include_metadata: whether to include `METADATA`: id, hosts, deliveries, flags and commit log offset.
    """
    left_out = {*(() if include_properties else (PROPERTIES,)), *(() if include_metadata else METADATA)}
    return StructType([StructField(name, kind) for name, kind in _TYPES.items() if name not in left_out])


def kafka_schema(include_headers: bool = False) -> StructType:
    """Return the schema of Spark's Kafka source, with or without `headers`."""
    return StructType(
        [StructField(name, kind) for name, kind in _KAFKA_TYPES.items() if include_headers or name != "headers"]
    )


class Chosen(Protocol):
    """Options that determine the row, see `ReadOptions`."""

    @property
    def kafka_columns(self) -> bool:
        """Whether the row has the columns of Spark's Kafka source."""

    @property
    def include_headers(self) -> bool:
        """Whether a row with Kafka's columns has the column `headers`."""

    @property
    def include_properties(self) -> bool:
        """Whether the row has the column `properties`."""

    @property
    def include_metadata(self) -> bool:
        """Whether the row has the columns of `METADATA`."""


def schema_of(options: Chosen) -> StructType:
    """Return the schema for `columns`, `includeHeaders`, `includeProperties` and `includeMetadata`."""
    if options.kafka_columns:
        return kafka_schema(options.include_headers)
    return row_schema(options.include_properties, options.include_metadata)


def with_slowest(schema: StructType) -> StructType:
    """Return a schema with the columns `slowestTimestamp` and `slowestBefore` appended."""
    more = [StructField(name, TimestampType()) for name in (SLOWEST, SLOWEST_BEFORE)]
    return StructType([*schema.fields, *more])


def without_slowest(schema: StructType) -> tuple[StructType, dict[int, str]]:
    """Return a schema without the columns `slowestTimestamp` and `slowestBefore`, and their names by index.

    Raises:
        ConfigError: one of the columns has another type.
    """
    by_lower = {name.lower(): name for name in (SLOWEST, SLOWEST_BEFORE)}
    places = {at: by_lower[one.name.lower()] for at, one in enumerate(schema.fields) if one.name.lower() in by_lower}
    for place, name in places.items():
        kind = schema.fields[place].dataType
        if kind != TimestampType():
            raise ConfigError(f"schema: column {name} is {kind.simpleString().upper()}; expected TIMESTAMP")
    return StructType([one for at, one in enumerate(schema.fields) if at not in places]), places


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the column of a message behind each field of a schema given to `.schema()`.

    The schema may have any subset of RocketMQ's and Kafka's names, in any order. Names are compared without case.
    `body`, `value` and `key` may be STRING.

    Raises:
        ConfigError: a column does not exist or has another type. The error contains the column and the valid ones.
    """
    types = {**_TYPES, **_KAFKA_TYPES}
    by_lower = {name.lower(): name for name in types}
    result = []
    for field in schema.fields:
        name = by_lower.get(field.name.lower())
        if name is None:
            hint = nearest(field.name, types)
            raise ConfigError(
                f"schema: no column {field.name}{hint}; there are {', '.join(_TYPES)}, and Kafka's "
                f"{', '.join(name for name in _KAFKA_TYPES if name not in _TYPES)}"
            )
        allowed = [types[name], *([StringType()] if name in _AS_TEXT else [])]
        # Compare as text, because it does not matter whether a map's values may be null.
        kind, expected = field.dataType.simpleString(), [one.simpleString() for one in allowed]
        if kind not in expected:
            raise ConfigError(
                f"schema: column {field.name} is {kind.upper()}; expected {' or '.join(map(str.upper, expected))}"
            )
        result.append(SAME.get(name, name))
    return tuple(result)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of batches. Any difference fails the query."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
