"""A stream whose options are refused: it says why when it is first asked for anything.

PySpark stops a stream's reader also when none could be made, and reports that it has no reader to stop instead of why.
So the reader is made, and raises.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from tianzhou.errors import TianzhouError


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises one error, whatever Spark calls first.

    Args:
        error: why the options or the schema cannot be.
    """

    def __init__(self, error: TianzhouError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error.with_traceback(None)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raises the error."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raises the error."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raises the error."""
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises the error."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises the error."""
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raises the error."""
        self._refuse()
