"""Files of a lake table to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tianzhou.spark.lake.files import filesystem

ROWS: Final = 8192


def file_batches(file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file; columns it lacks are null.

    Args:
        file: path or URI.
        schema: names and types of the batches.
    """
    system, path = filesystem(file)
    with system.open_input_file(path) as opened:
        parquet = pq.ParquetFile(opened)
        there = set(parquet.schema_arrow.names)
        columns = [name for name in schema.names if name in there]
        for batch in parquet.iter_batches(ROWS, columns=columns):
            found = dict(zip(columns, batch.columns, strict=True))
            arrays = [
                found[field.name].cast(field.type) if field.name in found else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
