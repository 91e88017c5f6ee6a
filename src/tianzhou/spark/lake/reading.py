"""Files of a lake table to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tianzhou.spark.lake.files import filesystem

ROWS: Final = 8192


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table.

    Attributes:
        path: path or URI.
        values: columns it does not hold, and the value all its rows have there.
    """

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)


def file_batches(file: TableFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file; columns it lacks are what its partition says, or null.

    Args:
        file: the file.
        schema: names and types of the batches.
    """
    system, path = filesystem(file.path)
    with system.open_input_file(path) as opened:
        parquet = pq.ParquetFile(opened)
        there = set(parquet.schema_arrow.names)
        columns = [name for name in schema.names if name in there]
        for batch in parquet.iter_batches(ROWS, columns=columns):
            found = dict(zip(columns, batch.columns, strict=True))
            arrays = [
                found[column.name].cast(column.type)
                if column.name in found
                else pa.repeat(pa.scalar(file.values.get(column.name), column.type), batch.num_rows)
                for column in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
