"""The options of `format("tianzhou_lake")`, read and checked. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.spark.option_values import RawOptions, count, number, one_of, option, several, switch

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
TIMES: Final = ("year", "month", "day", "hour")
"""Transforms of timestamps and dates by which Iceberg tables are partitioned."""
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "none")
_TABLE: Final = re.compile(r"\w+(\.\w+)+")
_PART: Final = re.compile(r"(?:(?P<times>\w+)\((?P<of>[^,()]+)\)|(?P<column>[^,()]+))")

CATALOG_NAME: Final = "tianzhou"
_CATALOG_RULES: Final = {
    "table": "namespace.name of an Iceberg table",
    "catalogName": "what a SQL catalog has its tables under, and pyiceberg's configuration a catalog's settings",
    "catalogUri": "where an Iceberg catalog is, such as sqlite:////var/lake/catalog.db or a REST address",
    "catalogType": "sql, rest, hive, glue, dynamodb, bigquery or in-memory",
    "warehouse": "the folder or URI below which an Iceberg catalog keeps its tables",
}
_CATALOG, _STORAGE = "catalog.", "storage."
_CATALOGS: Final = ("sql", "rest", "hive", "glue", "dynamodb", "bigquery", "in-memory")
_WITHOUT_URI: Final = frozenset({"glue", "dynamodb", "bigquery", "in-memory"})
_OWN_CLASS: Final = "py-catalog-impl"
_OF_SPARKS_CATALOG: Final = {"owner", "provider"}
"""Options that Spark adds to a table that is created in its catalog."""
_AS_OF_RULES: Final = {
    "versionAsOf": "a version of a Delta table, or the id of a snapshot of an Iceberg table; batch reads only",
    "timestampAsOf": "a time like 2026-01-31T08:00:00Z, of UTC when it names no zone; batch reads only",
}


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A partition column.

    Attributes:
        column: name of the column.
        transform: None for the column's value, else one of TIMES, or another transform of an Iceberg table.
    """

    column: str
    transform: str | None = None

    def __str__(self) -> str:
        return self.column if self.transform is None else f"{self.transform}({self.column})"


def _table_format(raw: RawOptions) -> str:
    if (raw.text("tableFormat") or "").lower() == "parquet":
        raise ConfigError(
            "tableFormat=parquet: expected delta or iceberg; leave tableFormat out for a Delta table (package "
            'deltalake), or write Parquet with format("parquet") of Spark, and read files of a stream with Spark only'
        )
    return raw.read("tableFormat", DELTA, one_of(DELTA, ICEBERG))


def _path(raw: RawOptions) -> str:
    text = raw.text("path") or ""
    if _table_format(raw) == ICEBERG:
        if text:
            raise ConfigError(
                f"path={text}: an Iceberg table is named by its catalog; give table, catalogUri and warehouse, and "
                "save() or start() without a path"
            )
        return ""
    raw.need("path")
    for name in _CATALOG_RULES:
        if raw.text(name) is not None:
            raise ConfigError(f"{name}={raw.text(name)}: goes with tableFormat=iceberg only")
    return text.removeprefix("file://")


def _table(raw: RawOptions) -> str:
    if _table_format(raw) != ICEBERG:
        return ""
    raw.need("table")
    return raw.read("table", "", _full_name)


def _parts(raw: RawOptions) -> tuple[PartitionColumn, ...]:
    found: tuple[PartitionColumn, ...] = raw.read("partitionBy", (), _listed_parts)
    text = raw.text("partitionBy")
    for part in found:
        if part.transform is not None and _table_format(raw) != ICEBERG:
            raise ConfigError(
                f"partitionBy={text}: {part} goes with tableFormat=iceberg only; make a column of it (to_date for "
                "days) and give that"
            )
    if len({part.column for part in found}) < len(found):
        raise ConfigError(f"partitionBy={text}: names a column twice; name it once")
    return found


def _listed_parts(text: str) -> tuple[PartitionColumn, ...]:
    found = []
    for one in text.split(","):
        match = _PART.fullmatch(one.strip())
        if match is None or (match["times"] and match["times"].lower() not in TIMES):
            raise ValueError(text)
        found.append(
            PartitionColumn(match["column"])
            if match["column"]
            else PartitionColumn(match["of"].strip(), match["times"].lower())
        )
    return tuple(found)


def _app_id(raw: RawOptions) -> str | None:
    app_id, version = raw.text("txnAppId"), raw.read("txnVersion", None, number(0))
    if (app_id is None) != (version is None) or app_id == "":
        here, other = ("txnAppId", "txnVersion") if app_id is not None else ("txnVersion", "txnAppId")
        raise ConfigError(f"{here}={raw.text(here)}: is of no use without {other}; give both, or neither")
    return app_id


def _catalog(raw: RawOptions) -> dict[str, str]:
    options = raw.below(_CATALOG)
    if _table_format(raw) != ICEBERG:
        return options
    uri = raw.text("catalogUri") or options.get("uri")
    warehouse = raw.text("warehouse") or options.get("warehouse")
    kind = raw.read("catalogType", None, one_of(*_CATALOGS)) or options.get("type")
    # A named catalog may be in pyiceberg's own configuration, which this parser does not read.
    configured = raw.text("catalogName") is not None or _OWN_CLASS in options
    if not (uri or kind in _WITHOUT_URI or configured):
        raw.need("catalogUri")
    if kind is None and uri is not None and uri.startswith(("sqlite:", "postgresql")) and _OWN_CLASS not in options:
        kind = "sql"
        if not (warehouse or configured):
            raw.need("warehouse")
    named = {"uri": uri, "warehouse": warehouse, "type": kind}
    return options | {name: value for name, value in named.items() if value}


def _catalog_name(raw: RawOptions) -> str:
    return raw.text("catalogName") or CATALOG_NAME


def _version_as_of(raw: RawOptions) -> int | None:
    raw.either("versionAsOf", "timestampAsOf")
    return raw.read("versionAsOf", None, number(0))


def _time(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found


def _full_name(text: str) -> str:
    if not _TABLE.fullmatch(text):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Options of a lake table.

    Attributes:
        table_format: DELTA or ICEBERG.
        path: the table's folder or URI; "" for Iceberg.
        table: an Iceberg table's full name; "" for the others.
        catalog_name: name of pyiceberg's catalog.
        catalog: properties of pyiceberg's catalog.
        storage: storage options of deltalake.
        parts: partition columns of a table that is created.
        compression: of the Parquet files.
        target_bytes: approximate size of a file.
        compact_every: number of batches after which small files are merged; 0 for never.
        merge_schema: whether columns that the table lacks are added to it.
        case_sensitive: whether column names that differ in case are different columns.
        filter_pushdown: whether a read skips files by the conditions of its query.
        version_as_of: the version to read, a snapshot's id for Iceberg; None for the current version.
        timestamp_as_of: the time whose version is read; None for the current version.
        app_id: name of the writer, which writes each batch at most once; None for commits that may be repeated.
        version: number of the batch.
    """

    table_format: str = several({"tableFormat": "delta or iceberg"}, _table_format)
    path: str = several(
        {
            "path": "the table's folder or URI, as given to save(), start() or load(); what a table of Spark's catalog "
            "says of it (saveAsTable, CREATE TABLE) reaches no Python source"
        },
        _path,
    )
    table: str = several({}, _table)
    catalog_name: str = several({}, _catalog_name)
    catalog: Mapping[str, str] = several(_CATALOG_RULES, _catalog)
    storage: Mapping[str, str] = several({}, lambda raw: raw.below(_STORAGE))
    parts: tuple[PartitionColumn, ...] = several(
        {"partitionBy": "columns with commas between them; Iceberg also takes year(c), month(c), day(c) and hour(c)"},
        _parts,
    )
    compression: str = option("compression", "zstd, snappy, gzip or none", one_of(*COMPRESSIONS), "zstd")
    target_bytes: int = option("targetFileBytes", "a whole number from 65536", number(1 << 16), 128 << 20)
    compact_every: int = count("compactEvery", 0, ": small files are merged after so many batches; streams only")
    merge_schema: bool = switch("mergeSchema", False)
    case_sensitive: bool = switch(
        "caseSensitive", False, "; sessions of tianzhou.spark.session set it to spark.sql.caseSensitive"
    )
    filter_pushdown: bool = switch(
        "filterPushdown", False, "; true for reads whose every query has a load() of its own"
    )
    version_as_of: int | None = several(_AS_OF_RULES, _version_as_of)
    timestamp_as_of: dt.datetime | None = several({}, lambda raw: raw.read("timestampAsOf", None, _time))
    app_id: str | None = several(
        {"txnAppId": "a name for who writes, given together with txnVersion to write a batch at most once"}, _app_id
    )
    version: int | None = option(
        "txnVersion", "a whole number from 0, higher for every batch of the same txnAppId", number(0), None
    )

    @property
    def name(self) -> str:
        """Name of the table, for messages."""
        return f"{self.table_format} table {self.table or self.path}"

    def refuse_as_of(self, doing: str) -> None:
        """Reject options that name an earlier version of a table that is about to change.

        Args:
            doing: the operation, for the message.

        Raises:
            ConfigError: the options name an earlier version.
        """
        asked = {"versionAsOf": self.version_as_of, "timestampAsOf": self.timestamp_as_of}
        for name, value in asked.items():
            if value is not None:
                raise ConfigError(
                    f"{name}={value}: {doing} changes the table as it is now; leave it out, or read with it: "
                    f'spark.read.format("tianzhou_lake").option("{name}", …).load()'
                )


def parse_lake(values: Mapping[str, str]) -> LakeOptions:
    """Read the options of `format("tianzhou_lake")`.

    Options with the prefix `catalog.` or `storage.` are passed without the prefix to pyiceberg's catalog or deltalake's
    storage.

    Args:
        values: as written; names in any case.

    Raises:
        ConfigError: an option is missing, unknown, malformed or contradicts another option.
    """
    if {name.lower() for name in values} >= _OF_SPARKS_CATALOG:
        raise ConfigError(
            "CREATE TABLE … USING tianzhou_lake: Spark gives Python sources none of the options of a table in its "
            "catalog when it is queried; make a view: "
            f"CREATE TEMPORARY VIEW orders USING tianzhou_lake OPTIONS (path '{values.get('path', 'lake/orders')}')"
        )
    return RawOptions(values, LakeOptions, prefixes=(_CATALOG, _STORAGE)).parse(LakeOptions)
