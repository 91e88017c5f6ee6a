"""The interface of a lake table, and the commit loop that both formats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tianzhou.errors import TianzhouError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from tianzhou.spark.lake.files import LakeTarget, NewFile

T = TypeVar("T")
ATTEMPTS: Final = 20
"""Number of times to try a commit that other commits keep overtaking."""


class LakeError(TianzhouError):
    """A table cannot be read, or refuses a commit."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A numbered batch of a writer. A table commits each batch at most once.

    Attributes:
        writer: a query id, or `txnAppId`; None for a commit that may be repeated.
        number: greater than the numbers of all earlier batches of the writer.
    """

    writer: str | None
    number: int

    def is_in(self, last: int | None) -> bool:
        """Whether a table has the batch, given the greatest batch number it has of the writer."""
        return last is not None and last >= self.number


def retried(commit: Callable[[], T], beaten: type[Exception] | tuple[type[Exception], ...], failure: str) -> T:
    """Commit, and try again when another commit came first.

    Args:
        commit: opens the table in its current version and commits.
        beaten: raised by `commit` when another commit came first.
        failure: the result that is missing, for the error after the last attempt.

    Raises:
        LakeError: another commit came first at every attempt.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            return commit()
        except beaten as error:
            if not left:
                raise LakeError(f"{failure}: {error}") from error
    raise AssertionError


def replaced(
    commit: Callable[[], bool],
    beaten: type[Exception] | tuple[type[Exception], ...],
    target: LakeTarget,
    written: Sequence[NewFile],
) -> bool:
    """Commit the output of a compaction, and delete the output unless the commit succeeds.

    Args:
        commit: opens the table and commits. Returns False if an input file is no longer active.
        beaten: raised by `commit` when another commit came first.
        target: the table.
        written: the output.

    Raises:
        LakeError: another commit came first at every attempt.
    """
    try:
        done = retried(commit, beaten, f"{target.name} is not compacted")
    except LakeError:
        target.remove(file.path for file in written)
        raise
    if not done:
        target.remove(file.path for file in written)
    return done


class LakeTable(Protocol):
    """A table of one of the formats."""

    def prepare(self, rows: pa.Schema) -> LakeTarget:
        """Create the table if it is missing, add columns if the options allow it, and return the target of tasks.

        Args:
            rows: schema of the rows to write.

        Raises:
            ConfigError: the rows do not fit the table; names the column.
            LakeError: the table has a feature that cannot be written; names the feature.
        """

    def committed(self, writer: str) -> int | None:
        """Return the greatest batch number that the table has of a writer, None if it has no batch of the writer."""

    def commit(self, files: Sequence[NewFile], batch: Batch, overwrite: bool) -> bool:
        """Make files visible in one commit. Return False if the table has the batch already.

        Args:
            files: the files that the tasks wrote.
            batch: the batch that the files hold.
            overwrite: whether the files replace the rows of the table.

        Raises:
            LakeError: the table refuses the commit.
        """

    def known(self, paths: Sequence[str]) -> set[str]:
        """Return the paths that the current version of the table contains."""

    def compact(self, target_bytes: int) -> int:
        """Merge files smaller than half of `target_bytes`. Return the number of files that were replaced.

        Return 0 if another commit removed one of the files meanwhile.
        """

    def scan(self, conditions: Sequence[Filter] = ()) -> list[Any]:
        """Return one picklable part per file, for `read_part` of the format's module.

        Args:
            conditions: files of partitions in which no row fulfils all conditions may be left out.

        Raises:
            LakeError: there is no such table or version, or it has a feature that cannot be read.
        """

    def schema(self) -> pa.Schema:
        """Return the table's columns.

        Raises:
            LakeError: as `scan`.
        """
