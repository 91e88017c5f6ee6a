"""Bodies as columns: JSON by Spark's own reader, Avro by `fastavro` (docs/adr/0007-avro-bodies.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


def json_value(schema: str | StructType, column: str = "body", mode: str = "PERMISSIVE") -> Column:
    """The JSON in a column of bodies, as a struct.

    Args:
        schema: as DDL (`"id LONG, item STRING"`) or a `StructType`.
        column: BINARY in UTF-8, or STRING.
        mode: `PERMISSIVE` makes what is no JSON null, `FAILFAST` ends the query.
    """
    from pyspark.sql import functions as sql

    return sql.from_json(sql.col(column).cast("string"), schema, {"mode": mode})


def avro_value(
    schema: str | Mapping[str, Any],
    column: str = "body",
    mode: str = "PERMISSIVE",
    reader_schema: str | Mapping[str, Any] | None = None,
) -> Column:
    """The Avro datum in a column of bodies, with or without the header of a schema registry.

    Args:
        schema: the Avro schema of who wrote them, as JSON or as the object it is.
        column: BINARY.
        mode: `PERMISSIVE` makes what cannot be read null, `FAILFAST` ends the query.
        reader_schema: another one to read them by, for fields that have come or gone.

    Raises:
        ConfigError: a schema is none or has no column type, or the mode is another, or fastavro is not installed.
    """
    import pyarrow as pa
    from pyspark.sql import functions as sql

    decoder = _decoder(schema, reader_schema, mode)

    def decode(bodies: Any) -> Any:
        return decoder(bodies)

    # Spark wants to see what a function takes; PyArrow is imported here only.
    decode.__annotations__ = {"bodies": pa.Array, "return": pa.Array}
    as_column: Any = sql.arrow_udf(decode, returnType=avro_type(reader_schema or schema))  # type: ignore[attr-defined]
    result: Column = as_column(sql.col(column))
    return result


def avro_type(schema: str | Mapping[str, Any]) -> DataType:
    """The Spark type of what an Avro schema describes.

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
