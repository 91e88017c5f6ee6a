"""A stream with invalid options, which raises the error at Spark's first call.

PySpark stops a stream's reader even if its constructor raised, and then reports that there is no reader to stop instead
of the real error. So the constructor succeeds and the methods raise.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from tianzhou.errors import TianzhouError


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader whose methods raise one error.

    Args:
        error: the reason why the options or the schema are invalid.
    """

    def __init__(self, error: TianzhouError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error.with_traceback(None)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raise the error."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raise the error."""
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise the error."""
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        self._refuse()
