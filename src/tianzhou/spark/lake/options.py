"""The options of `format("tianzhou_lake")`, read and checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.spark.option_values import Given, flag, number

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
PARQUET: Final = "parquet"
FORMATS: Final = (DELTA, ICEBERG, PARQUET)
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "none")
TIMES: Final = ("year", "month", "day", "hour")
_TABLE: Final = re.compile(r"\w+(\.\w+)+")
_PART: Final = re.compile(r"(?:(?P<times>\w+)\((?P<of>[^,()]+)\)|(?P<column>[^,()]+))")

KNOWN: Final[Mapping[str, str]] = {
    "tableFormat": "delta, iceberg or parquet",
    "path": "the table's folder or URI, as given to save(), start() or load()",
    "table": "namespace.name of an Iceberg table",
    "catalogUri": "where an Iceberg catalog is, such as sqlite:////var/lake/catalog.db or a REST address",
    "catalogType": "sql, rest, hive, glue, dynamodb or in-memory",
    "warehouse": "the folder or URI below which an Iceberg catalog keeps its tables",
    "partitionBy": "columns with commas between them; Iceberg also takes year(c), month(c), day(c) and hour(c)",
    "compression": "zstd, snappy, gzip or none",
    "targetFileBytes": "a whole number from 65536",
    "compactEvery": "a whole number from 1: small files are merged after so many batches; streams only",
    "mergeSchema": "true or false",
    "filterPushdown": "true or false; true for reads whose every query has a load() of its own",
    "txnAppId": "a name for who writes, given together with txnVersion to write a batch at most once",
    "txnVersion": "a whole number from 0, higher for every batch of the same txnAppId",
}
_PASSED_ON: Final = ("catalog.", "storage.")
_CATALOGS: Final = ("sql", "rest", "hive", "glue", "dynamodb", "in-memory")


@dataclass(frozen=True, slots=True)
class Part:
    """What a table is partitioned by.

    Attributes:
        column: the column.
        transform: None for its values, else one of TIMES: its time, cut there.
    """

    column: str
    transform: str | None = None

    @property
    def name(self) -> str:
        """What it is called in folders' names."""
        return self.column if self.transform is None else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        return self.column if self.transform is None else f"{self.transform}({self.column})"


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Options of a lake table.

    Attributes:
        table_format: DELTA, ICEBERG or PARQUET.
        path: the table's folder or URI; "" for Iceberg.
        table: an Iceberg table's full name; "" for the others.
        catalog: what pyiceberg's catalog is made with.
        storage: what deltalake's storage is opened with.
        parts: what a table that is made is partitioned by.
        compression: of the Parquet files.
        target_bytes: about how large files become.
        compact_every: merge small files after so many batches; 0 for never.
        merge_schema: whether columns that the table lacks are added to it.
        filter_pushdown: whether a read takes the conditions of its query.
        app_id: who writes a batch at most once; None for nobody in particular.
        version: which batch it is.
    """

    table_format: str
    path: str
    table: str
    catalog: Mapping[str, str]
    storage: Mapping[str, str]
    parts: tuple[Part, ...]
    compression: str
    target_bytes: int
    compact_every: int
    merge_schema: bool
    filter_pushdown: bool
    app_id: str | None
    version: int | None

    @property
    def name(self) -> str:
        """The table, for messages."""
        return f"{self.table_format} table {self.table or self.path}"


def parse_lake(values: Mapping[str, str]) -> LakeOptions:
    """Read the options of `format("tianzhou_lake")`.

    Options that begin with `catalog.` or `storage.` go on to pyiceberg's catalog and deltalake's storage without it.

    Args:
        values: as given; names in any case.

    Raises:
        ConfigError: an option is missing, unknown, malformed or in another's way.
    """
    given = Given({name: value for name, value in values.items() if not name.lower().startswith(_PASSED_ON)}, KNOWN)
    table_format = given.read("tableFormat", DELTA, _one_of(FORMATS))
    version = given.read("txnVersion", None, number(0))
    app_id = given.text("txnAppId")
    if (app_id is None) != (version is None) or app_id == "":
        here, other = ("txnAppId", "txnVersion") if app_id is not None else ("txnVersion", "txnAppId")
        raise ConfigError(f"{here}={given.text(here)}: is of no use without {other}; give both, or neither")
    catalog, storage = (_beginning(values, prefix) for prefix in _PASSED_ON)
    if table_format == ICEBERG:
        if given.text("path"):
            raise ConfigError(
                f"path={given.text('path')}: an Iceberg table is named by its catalog; give table, catalogUri and "
                "warehouse, and save() or start() without a path"
            )
        given.need("table")
        given.read("table", "", _table)
        catalog |= _catalog(given)
    else:
        if not given.text("path"):
            raise ConfigError(f"the option path is missing; expected {KNOWN['path']}")
        for name in ("table", "catalogUri", "catalogType", "warehouse"):
            if given.text(name) is not None:
                raise ConfigError(f"{name}={given.text(name)}: goes with tableFormat=iceberg only")
        if table_format == PARQUET and "://" in given.need("path") and not given.need("path").startswith("file://"):
            raise ConfigError(
                f"path={given.text('path')}: Parquet directories need renames that are atomic, so they are written to "
                "local or mounted folders only; use tableFormat=delta or iceberg"
            )
    return LakeOptions(
        table_format=table_format,
        path=(given.text("path") or "").removeprefix("file://"),
        table=given.read("table", "", _table) if table_format == ICEBERG else "",
        catalog=catalog,
        storage=storage,
        parts=_parts(given, table_format),
        compression=given.read("compression", "zstd", _one_of(COMPRESSIONS)),
        target_bytes=given.read("targetFileBytes", 128 << 20, number(1 << 16)),
        compact_every=given.read("compactEvery", 0, number(1)),
        merge_schema=given.read("mergeSchema", False, flag),
        filter_pushdown=given.read("filterPushdown", False, flag),
        app_id=app_id,
        version=version,
    )


def _parts(given: Given, table_format: str) -> tuple[Part, ...]:
    found: tuple[Part, ...] = given.read("partitionBy", (), _listed_parts)
    text = given.text("partitionBy")
    for part in found:
        if part.transform is not None and table_format != ICEBERG:
            raise ConfigError(
                f"partitionBy={text}: {part} goes with tableFormat=iceberg only; make a column of it (to_date for "
                "days) and give that"
            )
    if len({part.column for part in found}) < len(found):
        raise ConfigError(f"partitionBy={text}: names a column twice; name it once")
    return found


def _listed_parts(text: str) -> tuple[Part, ...]:
    found = []
    for one in text.split(","):
        match = _PART.fullmatch(one.strip())
        if match is None or (match["times"] and match["times"].lower() not in TIMES):
            raise ValueError(text)
        found.append(Part(match["column"]) if match["column"] else Part(match["of"].strip(), match["times"].lower()))
    return tuple(found)


def _catalog(given: Given) -> dict[str, str]:
    uri, warehouse = given.text("catalogUri"), given.text("warehouse")
    kind = given.read("catalogType", None, _one_of(_CATALOGS))
    if kind not in {"glue", "dynamodb", "in-memory"}:
        given.need("catalogUri")
    if kind is None and uri is not None and uri.startswith(("sqlite:", "postgresql")):
        kind = "sql"
        given.need("warehouse")
    named = {"uri": uri, "warehouse": warehouse, "type": kind}
    return {name: value for name, value in named.items() if value}


def _beginning(values: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name[len(prefix) :]: value for name, value in values.items() if name.lower().startswith(prefix)}


def _one_of(allowed: Collection[str]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(text)
        return text.lower()

    return convert


def _table(text: str) -> str:
    if not _TABLE.fullmatch(text):
        raise ValueError(text)
    return text
