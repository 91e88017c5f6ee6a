"""Waiting for a streaming query, and telling what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
SENT = "sent"
"""The observed figure that says how many rows a micro-batch sent; `Topics.start` makes it."""


def wait(query: StreamingQuery, each: Callable[[Any], None] = lambda _: None) -> None:
    """Wait until the query ends; a query whose waiter is interrupted is stopped.

    Args:
        query: a started query.
        each: called with the progress of each micro-batch, once.

    Raises:
        StreamingQueryException: the query failed.
    """
    news = _News(query)
    try:
        while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
            for progress in news():
                each(progress)
        for progress in news():
            each(progress)
    finally:
        if query.isActive:
            query.stop()


class _News:
    """The progress that was not told yet. Asking for one is cheap, for all that Spark remembers is not."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._told = ""
        self._batch: int | None = None

    def __call__(self) -> list[Any]:
        last = self._query.lastProgress
        # Times of one format, which are in order as texts.
        if last is None or last.timestamp <= self._told:
            return []
        known = self._batch is not None and last.batchId <= self._batch + 1
        found = [last] if known else [one for one in self._query.recentProgress if one.timestamp > self._told]
        self._told = max(one.timestamp for one in found)
        # A query that waits tells of the batch that is to come, too.
        self._batch = max((one.batchId for one in found if "addBatch" in one.durationMs), default=self._batch)
        return found


class Rows:
    """Counts the rows of a query's micro-batches; call it with each progress.

    Attributes:
        count: rows read.
        sent: rows sent.

    Args:
        advance: called with the rows read so far.
    """

    def __init__(self, advance: Callable[[int], None] = lambda _: None) -> None:
        self.count = 0
        self.sent = 0
        self._advance = advance

    def __call__(self, progress: Any) -> None:
        """Count one micro-batch."""
        self.count += progress.numInputRows
        figures = progress.observedMetrics.get(SENT)
        self.sent += figures["rows"] if figures is not None else 0
        self._advance(self.count)
