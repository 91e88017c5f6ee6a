"""Bodies as columns: JSON through Spark's own reader, Avro through `fastavro` (docs/adr/0007-avro-bodies.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


def json_value(schema: str | StructType, column: str = "body", mode: str = "PERMISSIVE") -> Column:
    """Return the JSON in a column of bodies, as a struct.

    Args:
        schema: DDL (`"id LONG, item STRING"`) or a `StructType`.
        column: BINARY in UTF-8, or STRING.
        mode: `PERMISSIVE` makes invalid JSON null, `FAILFAST` fails the query.
    """
    from pyspark.sql import functions as sql

    return sql.from_json(sql.col(column).cast("string"), schema, {"mode": mode})


def avro_value(
    schema: str | Mapping[str, Any],
    column: str = "body",
    mode: str = "PERMISSIVE",
    reader_schema: str | Mapping[str, Any] | None = None,
) -> Column:
    """Return the Avro datum in a column of bodies, with or without the header of a schema registry.

    Args:
        schema: the writer's Avro schema, as JSON text or as the parsed object.
        column: BINARY.
        mode: `PERMISSIVE` makes a malformed body null, `FAILFAST` fails the query.
        reader_schema: a schema with fields added or removed, into which bodies are decoded; None for the writer's
            schema.

    Raises:
        ConfigError: a schema is invalid or has no column type, the mode is unknown, or fastavro is not installed.
    """
    import pyarrow as pa
    from pyspark.sql import functions as sql

    decoder = _decoder(schema, reader_schema, mode)

    def decode(bodies: Any) -> Any:
        return decoder(bodies)

    # Spark reads the types from the annotations. PyArrow is imported in this function only, so set them here.
    decode.__annotations__ = {"bodies": pa.Array, "return": pa.Array}
    as_column: Any = sql.arrow_udf(decode, returnType=avro_type(reader_schema or schema))  # type: ignore[attr-defined]
    result: Column = as_column(sql.col(column))
    return result


def avro_type(schema: str | Mapping[str, Any]) -> DataType:
    """Return the Spark type of an Avro schema.

    Raises:
        ConfigError: as `avro_value`.
    """
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(_decoder(schema, None, "PERMISSIVE").type)


def _decoder(schema: str | Mapping[str, Any], wanted: str | Mapping[str, Any] | None, mode: str) -> Any:
    try:
        from tianzhou.spark.lake.avro import Decoder
    except ImportError as error:
        raise ConfigError(f"Avro bodies: {error.name} cannot be imported; pip install 'tianzhou[lake]'") from error
    return Decoder(schema, wanted, mode)
