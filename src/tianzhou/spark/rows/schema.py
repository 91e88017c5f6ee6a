"""The row a message becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
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


def row_schema(include_properties: bool = True) -> StructType:
    """The schema of a read without `.schema()`; `properties` can be left out, which saves taking them apart."""
    return StructType(
        [StructField(name, kind) for name, kind in _TYPES.items() if include_properties or name != "properties"]
    )


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The column of the row schema behind each field of a schema given to `.schema()`.

    Any subset in any order will do, names are compared without case, and `body` may be STRING.

    Raises:
        ConfigError: there is no such column, or it has another type; names the column and what is there.
    """
    by_lower = {name.lower(): name for name in _TYPES}
    result = []
    for field in schema.fields:
        name = by_lower.get(field.name.lower())
        if name is None:
            hint = nearest(field.name, _TYPES)
            raise ConfigError(f"schema: no column {field.name}{hint}; there are {', '.join(_TYPES)}")
        allowed = [_TYPES[name], *([StringType()] if name == "body" else [])]
        # Compared as text: whether a map's values may be null makes no difference to what is delivered.
        kind, expected = field.dataType.simpleString(), [one.simpleString() for one in allowed]
        if kind not in expected:
            raise ConfigError(
                f"schema: column {field.name} is {kind.upper()}; expected {' or '.join(map(str.upper, expected))}"
            )
        result.append(name)
    return tuple(result)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema Spark compares batches with: equal in every respect, or the query fails."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
