"""What a lake table is to the sink: a place for files, and commits that happen once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tianzhou.errors import ConfigError, TianzhouError

if TYPE_CHECKING:
    import pyarrow as pa

    from tianzhou.spark.lake.files import NewFile
    from tianzhou.spark.lake.partitions import Division
    from tianzhou.spark.lake.pruning import Condition
    from tianzhou.spark.lake.reading import TableFile

T = TypeVar("T")
TRIES: Final = 8
"""Attempts at a commit that others' commits get in the way of."""


class LakeError(TianzhouError):
    """A table cannot be read, or refuses a commit."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Who commits, and which of his batches; a batch is committed once.

    Attributes:
        writer: a query's id, or `txnAppId`; None for a commit that is its own.
        number: grows with every batch of the writer.
    """

    writer: str | None
    number: int

    def is_in(self, last: int | None) -> bool:
        """Whether a table has the batch, `last` being the highest of the writer that it has."""
        return last is not None and last >= self.number


def retried(commit: Callable[[], T], beaten: type[Exception] | tuple[type[Exception], ...], failure: str) -> T:
    """Commit, and try again when another writer's commit came first.

    Args:
        commit: opens the table as it is now and commits.
        beaten: what it raises when another commit came first.
        failure: what has not happened, for the error after the last attempt.

    Raises:
        LakeError: every attempt was beaten.
    """
    for left in reversed(range(TRIES)):
        try:
            return commit()
        except beaten as error:
            if not left:
                raise LakeError(f"{failure}: {error}") from error
    raise AssertionError


class LakeTable(Protocol):
    """A table of one of the formats."""

    @property
    def location(self) -> str:
        """Folder or URI that files' paths are relative to."""

    @property
    def prefix(self) -> str:
        """How paths of new files begin."""

    @property
    def division(self) -> Division | None:
        """How rows are divided, known once `prepare` was called; None when the table is not partitioned."""

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        """Make the table when there is none, and see that rows of a schema fit.

        Returns:
            The schema that rows are to have.

        Raises:
            ConfigError: they do not; names the column.
            LakeError: the table is of a kind that is not written here; names what it has.
        """

    def committed(self, writer: str) -> int | None:
        """The highest batch of a writer that the table has; None when it has none of his."""

    def commit(self, files: Sequence[NewFile], batch: Batch, overwrite: bool) -> bool:
        """Make files visible, all at once; False when the batch is in the table already.

        Args:
            files: what the tasks wrote.
            batch: whose batch it is.
            overwrite: whether they replace what is there.

        Raises:
            LakeError: the table refuses.
        """

    def known(self, paths: Sequence[str]) -> set[str]:
        """Which of some files a commit speaks of."""

    def compact(self, target_bytes: int) -> int:
        """Merge small files; how many were merged. Rows and batches stay what they are."""

    def files(self, conditions: Sequence[Condition] = ()) -> list[TableFile]:
        """The files that hold the table's rows; none of them is opened.

        Args:
            conditions: files of partitions without a row that all of them select may be left out.

        Raises:
            LakeError: there is no such table, or its rows are not simply those of its files.
        """

    def schema(self) -> pa.Schema:
        """The table's columns.

        Raises:
            LakeError: as `files`.
        """


def fitting(rows: pa.Schema, table: pa.Schema, name: str) -> list[str]:
    """The columns of rows that a table lacks.

    Raises:
        ConfigError: a column has another type there, or the rows lack one that may not be null.
    """
    new = []
    for field in rows:
        index = table.get_field_index(field.name)
        if index < 0:
            new.append(field.name)
            continue
        there = table.field(index).type
        if not _same(there, field.type):
            raise ConfigError(f"column {field.name} is {field.type} in the rows and {there} in {name}; cast it")
    for field in table:
        if not field.nullable and rows.get_field_index(field.name) < 0:
            raise ConfigError(f"the rows lack column {field.name}, which {name} does not let be null")
    return new


def requiring(rows: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The schema of rows, with columns that may not be null where a table does not let them be.

    Writing a null into such a file is an error, before anything is committed.
    """
    for index, field in enumerate(rows):
        if field.name in table.names and not table.field(field.name).nullable:
            rows = rows.set(index, field.with_nullable(False))
    return rows


def _same(one: Any, other: Any) -> bool:
    """Whether two types hold the same values; formats name the parts of maps and lists differently."""
    from pyarrow import types

    if types.is_map(one) and types.is_map(other):
        return _same(one.key_type, other.key_type) and _same(one.item_type, other.item_type)
    if types.is_struct(one) and types.is_struct(other):
        return [field.name for field in one] == [field.name for field in other] and all(
            _same(field.type, counterpart.type) for field, counterpart in zip(one, other, strict=True)
        )
    if all(types.is_list(kind) or types.is_large_list(kind) for kind in (one, other)):
        return _same(one.value_type, other.value_type)
    import pyarrow as pa

    short = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(short.get(one, one) == short.get(other, other))


def refuse_new(new: Sequence[str], table: pa.Schema, name: str) -> ConfigError:
    """The error for columns that a table lacks."""
    return ConfigError(
        f"{name} has no column {', '.join(new)}; it has {', '.join(table.names)}. "
        "Leave it out, or set mergeSchema=true to add it"
    )
