"""Lake tables by their format; what a format needs is imported when a table of it is opened."""

from __future__ import annotations

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.options import DELTA, ICEBERG, LakeOptions, parse_lake
from tianzhou.spark.lake.tables import LakeTable


def open_table(options: LakeOptions) -> LakeTable:
    """The table that options name.

    Raises:
        ConfigError: the package for its format is not installed.
    """
    try:
        if options.table_format == DELTA:
            from tianzhou.spark.lake.delta import DeltaLake

            return DeltaLake(options)
        if options.table_format == ICEBERG:
            from tianzhou.spark.lake.iceberg import IcebergTable

            return IcebergTable(options)
    except ImportError as error:
        raise ConfigError(
            f"tableFormat={options.table_format}: {error.name} cannot be imported; pip install 'tianzhou[lake]'"
        ) from error
    from tianzhou.spark.lake.directory import ParquetDirectory

    return ParquetDirectory(options)


def compact(path: str = "", **options: str) -> int:
    """Merge the small files of a table into larger ones.

    Beside writers that is safe. For Delta and Iceberg the second one to commit tries again; into a Parquet directory
    commits wait meanwhile, where its file system has `flock`. A Parquet directory shows rows twice for the moment
    between the new file's coming and the old ones' going; do not read it then.

    Args:
        path: the table's folder or URI; "" for Iceberg.
        **options: as of `format("tianzhou_lake")`: `tableFormat`, `table`, `catalogUri`, `warehouse`,
            `targetFileBytes`, …

    Returns:
        How many files were merged.

    Raises:
        ConfigError: an option is wrong.
        LakeError: there is no such table.
    """
    parsed = parse_lake({**options, **({"path": path} if path else {})})
    parsed.refuse_as_of("merging small files")
    return open_table(parsed).compact(parsed.target_bytes)
