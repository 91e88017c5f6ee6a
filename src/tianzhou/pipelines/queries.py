"""Waiting for a streaming query, and reporting its progress."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

POLL_S = 0.2
TRIES = 5
"""Maximum starts without progress of a query that Spark fails because a process started too slowly."""
TOO_SLOW = "Python worker failed to connect back"
SENT = "sent"
"""Name of the observed figure with the number of rows that a micro-batch sent. `Topics.start` defines it."""


def wait(query: StreamingQuery, each: Callable[[Any], None] = lambda _: None) -> None:
    """Wait until the query ends. Stop the query if the wait is interrupted.

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


def run(start: Callable[[], StreamingQuery], each: Callable[[Any], None] = lambda _: None) -> None:
    """Start a query and wait until it ends. Start it again if Spark failed it because a Python process was too slow.

    Spark gives a new Python process ten seconds to connect, whatever the load of the machine. A restarted query
    continues from its checkpoint.

    Args:
        start: starts the query.
        each: called with the progress of each micro-batch, once.

    Raises:
        StreamingQueryException: the query failed.
    """
    tries = 0

    def seen(progress: Any) -> None:
        nonlocal tries
        tries = 0
        each(progress)

    while True:
        try:
            wait(start(), seen)
            return
        except StreamingQueryException as error:
            tries += 1
            if TOO_SLOW not in str(error) or tries >= TRIES:
                raise
            logger.warning("the machine is busy: Spark gave up on a process that had no time to start; started again")


class _News:
    """New progress of a query. Reading the last progress is cheap, reading all that Spark remembers is not."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._reported = ""
        self._batch: int | None = None

    def __call__(self) -> list[Any]:
        last = self._query.lastProgress
        # Timestamps have one format, so their texts sort by time.
        if last is None or last.timestamp <= self._reported:
            return []
        known = self._batch is not None and last.batchId <= self._batch + 1
        found = [last] if known else [one for one in self._query.recentProgress if one.timestamp > self._reported]
        self._reported = max(one.timestamp for one in found)
        # A waiting query also reports the next batch.
        self._batch = max((one.batchId for one in found if "addBatch" in one.durationMs), default=self._batch)
        return found


class Rows:
    """A counter of the rows of a query's micro-batches. Call it with each progress.

    Attributes:
        count: number of rows read.
        sent: number of rows sent.
        late: number of rows that a state dropped because they were older than its watermark.

    Args:
        advance: called with the number of rows read so far.
    """

    def __init__(self, advance: Callable[[int], None] = lambda _: None) -> None:
        self.count = 0
        self.sent = 0
        self.late = 0
        self._advance = advance

    def __call__(self, progress: Any) -> None:
        """Count one micro-batch."""
        self.count += progress.numInputRows
        figures = progress.observedMetrics.get(SENT)
        self.sent += figures["rows"] if figures is not None else 0
        self.late += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
        self._advance(self.count)
