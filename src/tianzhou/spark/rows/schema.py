"""The row a message becomes, under RocketMQ's names or under those of Spark's Kafka source."""

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
"""Columns that few queries look at and that cost every one: they come by `includeMetadata` or by name."""
DEFAULT_COLUMNS: Final = tuple(name for name in COLUMNS if name not in (PROPERTIES, *METADATA))
"""The row a query gets that asks for nothing (docs/adr/0023)."""

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
"""Kafka's columns that are columns of a message under another name."""
_AS_TEXT: Final = frozenset({"body", "value", "key"})


def row_schema(include_properties: bool = False, include_metadata: bool = False) -> StructType:
    """The schema of a read without `.schema()`; with both arguments it has all `COLUMNS`.

    Args:
        include_properties: whether the map of all properties is among the columns.
        include_metadata: whether `METADATA` is: id, hosts, deliveries, flags and place in the log.
    """
    left_out = {*(() if include_properties else (PROPERTIES,)), *(() if include_metadata else METADATA)}
    return StructType([StructField(name, kind) for name, kind in _TYPES.items() if name not in left_out])


def kafka_schema(include_headers: bool = False) -> StructType:
    """The schema of Spark's Kafka source, with `headers` or without."""
    return StructType(
        [StructField(name, kind) for name, kind in _KAFKA_TYPES.items() if include_headers or name != "headers"]
    )


class Chosen(Protocol):
    """What options say of the row; see `ReadOptions`."""

    @property
    def kafka_columns(self) -> bool:
        """Whether it is that of Spark's Kafka source."""

    @property
    def include_headers(self) -> bool:
        """Whether that one has the column `headers`."""

    @property
    def include_properties(self) -> bool:
        """Whether it has the column `properties`."""

    @property
    def include_metadata(self) -> bool:
        """Whether it has `METADATA`."""


def schema_of(options: Chosen) -> StructType:
    """The schema that `columns`, `includeHeaders`, `includeProperties` and `includeMetadata` ask for."""
    if options.kafka_columns:
        return kafka_schema(options.include_headers)
    return row_schema(options.include_properties, options.include_metadata)


def with_slowest(schema: StructType) -> StructType:
    """Return a schema with the columns `slowestTimestamp` and `slowestBefore` behind the others."""
    more = [StructField(name, TimestampType()) for name in (SLOWEST, SLOWEST_BEFORE)]
    return StructType([*schema.fields, *more])


def without_slowest(schema: StructType) -> tuple[StructType, dict[int, str]]:
    """Return a schema without the columns `slowestTimestamp` and `slowestBefore`, and which of them is at which place.

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
    """The column of a message behind each field of a schema given to `.schema()`.

    Any subset in any order will do, of RocketMQ's names and of Kafka's; names are compared without case, and `body`,
    `value` and `key` may be STRING.

    Raises:
        ConfigError: there is no such column, or it has another type; names the column and what is there.
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
        # Compared as text: whether a map's values may be null makes no difference to what is delivered.
        kind, expected = field.dataType.simpleString(), [one.simpleString() for one in allowed]
        if kind not in expected:
            raise ConfigError(
                f"schema: column {field.name} is {kind.upper()}; expected {' or '.join(map(str.upper, expected))}"
            )
        result.append(SAME.get(name, name))
    return tuple(result)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema Spark compares batches with: equal in every respect, or the query fails."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
