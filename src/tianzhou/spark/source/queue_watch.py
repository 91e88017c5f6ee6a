"""The queues of a query and the offsets of their messages, queried once or repeatedly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tianzhou.errors import BrokerError, ClientError, ConfigError, RemotingError, TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import MessageLoss, QueueBounds
from tianzhou.spark.source.read_options import ReadOptions
from tianzhou.spark.source.selection import TopicSelection
from tianzhou.spark.source.span_reader import PAUSE_MS, BlockingQueueReader

logger = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[[ReadOptions], BlockingQueueReader]

# A broker that has no master for the moment raises ClientError.
_AWAY: Final = (RemotingError, ClientError)

START_PATIENCE_MS: Final = 2000
"""Time in ms for which a new query tries to reach its servers. It is short, so that a wrong address soon fails."""
LOOK_AROUND_S: Final = 1.0
"""Seconds between two searches for new queues and deleted messages. Spark asks for new messages every 10 ms."""
LOOK_FOR_MISSING_S: Final = 0.2
"""Seconds between two searches while a broker or topic is away."""
GONE_AFTER_S: Final = 2.0
"""Seconds for which a serving broker must lack a queue before it counts as lost. Servers learn of changes late."""
NAMED: Final = 20
"""Maximum number of topics in an error."""


def patiently(
    reader: BlockingQueueReader,
    ask: Callable[[], T],
    timeout_ms: int,
    errors: tuple[type[TianzhouError], ...] = (RemotingError,),
) -> T:
    """Call a function until it succeeds, because connections may break and brokers may restart.

    Args:
        reader: provides the clock and the pauses.
        ask: the function.
        timeout_ms: time in ms for which to retry.
        errors: errors after which to retry.

    Raises:
        TianzhouError: the error of the last attempt.
    """
    begun = reader.monotonic()
    while True:
        try:
            return ask()
        except errors:
            if reader.monotonic() - begun >= timeout_ms / 1000:
                raise
            reader.wait(PAUSE_MS)


class Watch:
    """The queues of a query.

    Args:
        options: the options of the query, with the timeout of a running query.
        connect: returns the process's `BlockingQueueReader`.

    Attributes:
        looks: number of full searches. Queries for only the ends of known queues do not count.
    """

    def __init__(self, options: ReadOptions, connect: Connect) -> None:
        self._options = options
        self._selection = options.selection
        self._connect = connect
        self._bounds: dict[MessageQueue, QueueBounds] = {}
        self._ends: dict[MessageQueue, int] = {}
        self._looked_at: float | None = None
        self._missing: set[str] = set()
        self._reported: set[str] = set()
        self._deleted: set[str] = set()
        self._drained: dict[MessageQueue, int] = {}
        self.looks = 0

    @property
    def last(self) -> dict[MessageQueue, QueueBounds]:
        """Result of the last search."""
        return self._bounds

    def begin(self, *, may_be_empty: bool = False) -> dict[MessageQueue, QueueBounds]:
        """Search for the queues the first time. All topics and queues of the options must exist.

        Args:
            may_be_empty: whether a pattern may match no topic yet.

        Raises:
            ClientError: a topic does not exist.
            ConfigError: a queue does not exist, no topic matches, or a broker cannot evaluate the SQL expression.
            RemotingError: the servers do not answer.
        """
        reader = self._connect(self._options)
        topics = patiently(reader, lambda: reader.topics(self._selection), START_PATIENCE_MS)
        if not topics:
            self._no_topic(reader, may_be_empty)
        queues = patiently(reader, lambda: reader.queues(topics), START_PATIENCE_MS)
        self._selection.check(queues)
        chosen = [queue for queue in queues if self._selection.wants(queue)]
        if self._options.sql is not None:
            self._check_sql(reader, chosen, self._options.sql)
        return self._keep(patiently(reader, lambda: reader.bounds(chosen), START_PATIENCE_MS, _AWAY), reader)

    def _no_topic(self, reader: BlockingQueueReader, may_be_empty: bool) -> None:
        there = reader.topics(TopicSelection("subscribePattern", pattern=".*"))
        more = f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
        text = (
            f"subscribePattern={self._selection.pattern}: no topic has such a name; there are "
            f"{', '.join(there[:NAMED]) or 'none'}{more}"
        )
        if not may_be_empty:
            raise ConfigError(text)
        logger.warning("%s. Those that come will be read", text)

    def _check_sql(self, reader: BlockingQueueReader, queues: list[MessageQueue], sql: str) -> None:
        try:
            patiently(reader, lambda: reader.check_sql(queues, sql), START_PATIENCE_MS, _AWAY)
        except BrokerError as error:
            raise ConfigError(f"sql={sql}: {error}") from error

    def now(self, patience_ms: int | None = None) -> dict[MessageQueue, QueueBounds]:
        """Search for the queues while the query runs. Brokers that do not answer are left out, unless none answers.

        Args:
            patience_ms: maximum time in ms to wait for an answer; None for `pollTimeoutMs`.

        Raises:
            RemotingError: no server answers within that time.
        """
        reader = self._connect(self._options)
        due_s = LOOK_FOR_MISSING_S if self._missing - self._deleted else LOOK_AROUND_S
        if self._looked_at is None or reader.monotonic() - self._looked_at >= due_s or not self._glance(reader):
            self._look_around(reader, self._options.poll_timeout_ms if patience_ms is None else patience_ms)
        return self._bounds

    def _glance(self, reader: BlockingQueueReader) -> bool:
        """Query the ends of known queues. Return False if a full search is needed."""
        try:
            maxima = reader.maxima(self._bounds)
        except (*_AWAY, BrokerError):
            return False  # The full search finds the broker that failed.
        if any(maxima[queue] < limits.maximum for queue, limits in self._bounds.items()):
            return False
        self._bounds = {queue: limits._replace(maximum=maxima[queue]) for queue, limits in self._bounds.items()}
        self._ends.update(maxima)
        return True

    def _look_around(self, reader: BlockingQueueReader, timeout_ms: int) -> None:
        self._missing = set()
        topics = patiently(reader, lambda: reader.topics(self._selection), timeout_ms)
        queues = [
            queue
            for topic in topics
            for queue in self._queues(reader, topic, timeout_ms)
            if self._selection.wants(queue)
        ]
        self._keep(patiently(reader, lambda: self._answering(reader, queues), timeout_ms, _AWAY), reader)
        self._reported &= self._missing

    def _keep(
        self, bounds: dict[MessageQueue, QueueBounds], reader: BlockingQueueReader
    ) -> dict[MessageQueue, QueueBounds]:
        self._bounds = bounds
        self._ends.update({queue: limits.maximum for queue, limits in bounds.items()})
        self._looked_at = reader.monotonic()
        self.looks += 1
        return bounds

    def _queues(self, reader: BlockingQueueReader, topic: str, timeout_ms: int) -> list[MessageQueue]:
        try:
            found = patiently(reader, lambda: reader.queues([topic]), timeout_ms)
        except ClientError as error:
            self._miss(topic, error)
            return []
        self._deleted.discard(topic)
        return found

    def _answering(self, reader: BlockingQueueReader, queues: list[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
        """Return the bounds of the queues whose broker answers."""
        found: dict[MessageQueue, QueueBounds] = {}
        failure: TianzhouError | None = None
        for broker in sorted({queue.broker_name for queue in queues}):
            try:
                found |= reader.bounds([queue for queue in queues if queue.broker_name == broker])
            except _AWAY as error:
                self._miss(broker, error)
                failure = error
            else:
                self._missing.discard(broker)
        if failure is not None and not found:
            raise failure
        return found

    def _miss(self, name: str, error: TianzhouError) -> None:
        self._missing.add(name)
        if name not in self._reported and name not in self._deleted:
            self._reported.add(name)
            logger.warning("%s is away and waited for: %s", name, error)

    # --- lost queues

    def gone(self, positions: Mapping[MessageQueue, int]) -> list[MessageLoss]:
        """Return the losses of queues that the last search did not find.

        A queue whose broker is away is waited for. A broker that is registered and answers, but lacks the queue, has
        lost it: with its topic, or because the topic now has fewer queues.

        Args:
            positions: the query's position in each queue.

        Returns:
            The lost queues, with the messages that are known to be unread. A queue that was read to its end before it
                was removed is not among them.

        Raises:
            RemotingError: no server answers within `pollTimeoutMs`.
        """
        suspects = {
            queue: at
            for queue, at in positions.items()
            if queue not in self._bounds and self._selection.wants(queue) and self._drained.get(queue) != at
        }
        if not suspects:
            return []
        reader = self._connect(self._options)
        begun = reader.monotonic()
        while True:
            serving = patiently(reader, reader.serving, self._options.poll_timeout_ms) - self._missing
            suspects = {
                queue: at
                for queue, at in suspects.items()
                if queue not in self._bounds and queue.broker_name in serving
            }
            if not suspects or reader.monotonic() - begun >= GONE_AFTER_S:
                return [loss for queue in sorted(suspects) if (loss := self._loss(reader, queue, suspects[queue]))]
            reader.wait(PAUSE_MS)
            self._look_around(reader, self._options.poll_timeout_ms)

    def _loss(self, reader: BlockingQueueReader, queue: MessageQueue, at: int) -> MessageLoss | None:
        topic, broker = queue.topic, queue.broker_name
        if any(other.topic == topic and other.broker_name == broker for other in self._bounds):
            # Brokers return the bounds of queues that cannot be read any more, but not their messages.
            end = patiently(reader, lambda: reader.bounds([queue]), self._options.poll_timeout_ms)[queue].maximum
            if end <= at:
                self._drained[queue] = at
                logger.info("%s was taken away; it had been read to its end at %d", queue, at)
                return None
            return MessageLoss(queue, at, end, f"topic {topic} has fewer queues on {broker} now")
        self._deleted.add(topic)
        last = self._ends.get(queue)
        end_known = None if last is None else max(at, last)
        return MessageLoss(queue, at, end_known, f"topic {topic} is deleted from {broker}, or may not be read there")
