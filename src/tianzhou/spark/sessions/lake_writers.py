"""Patches of Spark's writers: `.partitionBy()` reaches lake tables, and writes that lake tables cannot do are rejected.

Spark passes a Python sink no columns of `partitionBy`, and a query of a table in Spark's catalog passes no options of
that table. So the columns are passed as the sink's option, and `saveAsTable` and similar methods are rejected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

from tianzhou.errors import ConfigError

LAKE: Final = "tianzhou_lake"
OPTION: Final = "partitionBy"
CASE: Final = "caseSensitive"
VIEW: Final = "CREATE TEMPORARY VIEW orders USING tianzhou_lake OPTIONS (path 'lake/orders')"
_TABLES: Final = {"saveAsTable": "save(path)", "insertInto": "save(path)", "toTable": "start(path)"}
"""Methods that need a table of Spark's catalog, and the method to use instead."""


def teach(kinds: Iterable[Any]) -> None:
    """Patch classes of writers. Patched classes are not patched again.

    Args:
        kinds: `DataFrameWriter` and `DataStreamWriter`, of Spark or of Spark Connect.
    """
    for kind in kinds:
        if hasattr(kind.partitionBy, "reaches_lakes"):
            continue
        kind.format = _noting(kind.format)
        kind.partitionBy = _as_option(kind.partitionBy)
        for name in _TABLES.keys() & vars(kind).keys():
            setattr(kind, name, _refusing(getattr(kind, name)))


def teach_own() -> None:
    """Patch the writers of this process's own Spark."""
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    teach((DataFrameWriter, DataStreamWriter))


def teach_connected() -> None:
    """Patch the writers of sessions on a Spark Connect server."""
    from pyspark.sql.connect.readwriter import DataFrameWriter
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    teach((DataFrameWriter, DataStreamWriter))


def _noting(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def noting(self: Any, source: str) -> Any:
        self._into_lake = isinstance(source, str) and source.lower() == LAKE
        named = getattr(self, "_partitioned_by", None)
        if self._into_lake and named:
            self.partitionBy(*named)
        spark = getattr(self, "_spark", None)
        if self._into_lake and spark is not None:
            # A Python sink cannot read Spark's setting.
            self.option(CASE, spark.conf.get("spark.sql.caseSensitive", "false"))
        return plain(self, source)

    return noting


def _as_option(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def as_option(self: Any, *columns: Any) -> Any:
        named = columns[0] if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns
        self._partitioned_by = tuple(named)
        if not getattr(self, "_into_lake", False):
            return plain(self, *columns)
        plain(self)  # Clear the columns of an earlier call, made before `format`.
        return self.option(OPTION, ",".join(named)) if named else self

    as_option.reaches_lakes = True  # type: ignore[attr-defined]
    return as_option


def _refusing(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def refusing(self: Any, table: Any, *args: Any, **options: Any) -> Any:
        told = options.get("format")
        into_lake = told.lower() == LAKE if isinstance(told, str) else getattr(self, "_into_lake", False)
        if into_lake:
            name = plain.__name__
            raise ConfigError(
                f"{name}({table!r}): Spark gives Python sources none of the options of a table in its catalog, so "
                f"nobody could read it; write with {_TABLES[name]}, and name what is there for SQL: {VIEW}"
            )
        return plain(self, table, *args, **options)

    return refusing
