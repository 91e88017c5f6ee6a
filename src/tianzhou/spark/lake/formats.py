"""Lake tables by their format. The package of a format is imported when a table of it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.options import DELTA, LakeOptions, parse_lake
from tianzhou.spark.lake.tables import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa


def open_table(options: LakeOptions) -> LakeTable:
    """Return the table that options name. It may not exist yet.

    Raises:
        ConfigError: the package of its format is not installed.
    """
    try:
        if options.table_format == DELTA:
            from tianzhou.spark.lake.delta import DeltaLake

            return DeltaLake(options)
        from tianzhou.spark.lake.iceberg import IcebergTable

        return IcebergTable(options)
    except ImportError as error:
        extra = "spark" if options.table_format == DELTA else "lake"
        raise ConfigError(
            f"tableFormat={options.table_format}: {error.name} cannot be imported; pip install 'tianzhou[{extra}]'"
        ) from error


def read_part(options: LakeOptions, part: Any, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a part of `LakeTable.scan`.

    Args:
        options: options of the table.
        part: a file of the table.
        wanted: names and types of the batches. Columns that the table lacks are null.
    """
    if options.table_format == DELTA:
        from tianzhou.spark.lake import delta

        return delta.read_part(part, wanted)
    from tianzhou.spark.lake import iceberg

    return iceberg.read_part(part, wanted)


def compact(path: str = "", **options: str) -> int:
    """Merge the small files of a table into larger ones.

    Writers may commit meanwhile. If two compactions run at the same time, one drops its result.

    Args:
        path: the table's folder or URI; "" for Iceberg.
        **options: as of `format("tianzhou_lake")`: `tableFormat`, `table`, `catalogUri`, `warehouse`,
            `targetFileBytes`, …

    Returns:
        Number of files that were merged.

    Raises:
        ConfigError: an option is wrong.
        LakeError: there is no such table.
    """
    parsed = parse_lake({**options, **({"path": path} if path else {})})
    parsed.refuse_as_of("merging small files")
    return open_table(parsed).compact(parsed.target_bytes)
