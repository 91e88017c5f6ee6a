"""What the queues of a query hold, looked at once or again and again."""

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

# A broker that has no master for the moment is a ClientError.
_AWAY: Final = (RemotingError, ClientError)

START_PATIENCE_MS: Final = 2000
"""How long a query that begins tries to reach its servers: a wrong address should be an error soon."""
LOOK_AROUND_S: Final = 1.0
"""How often a stream looks for new queues and deleted messages; Spark asks for new messages every 10 ms."""
LOOK_FOR_MISSING_S: Final = 0.2
"""How often it looks while a broker or topic is away."""
GONE_AFTER_S: Final = 2.0
"""Seconds a queue has to be missing at a broker that serves: servers do not learn of a change all at once."""
NAMED: Final = 20
"""Maximum topics named in an error."""


def patiently(
    reader: BlockingQueueReader,
    ask: Callable[[], T],
    timeout_ms: int,
    errors: tuple[type[TianzhouError], ...] = (RemotingError,),
) -> T:
    """Ask until there is an answer: connections break, and brokers are started again.

    Args:
        reader: whose clock and patience to use.
        ask: what to do.
        timeout_ms: how long to go on trying.
        errors: what is worth another try.

    Raises:
        TianzhouError: what went wrong the last time.
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
        options: what is read, and the patience of a query that runs.
        connect: gives the process's `BlockingQueueReader`.

    Attributes:
        looks: how many times it looked at everything, not only at the ends of known queues.
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
        """What was seen last."""
        return self._bounds

    def begin(self, *, may_be_empty: bool = False) -> dict[MessageQueue, QueueBounds]:
        """A first look, which everything that is named has to pass.

        Args:
            may_be_empty: whether a pattern may select nothing yet.

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
        """A look while the query runs. What does not answer is left out until it does, unless nothing answers.

        Args:
            patience_ms: how long to wait for an answer, `pollTimeoutMs` when None.

        Raises:
            RemotingError: no server answers for longer than that.
        """
        reader = self._connect(self._options)
        due_s = LOOK_FOR_MISSING_S if self._missing - self._deleted else LOOK_AROUND_S
        if self._looked_at is None or reader.monotonic() - self._looked_at >= due_s or not self._glance(reader):
            self._look_around(reader, self._options.poll_timeout_ms if patience_ms is None else patience_ms)
        return self._bounds

    def _glance(self, reader: BlockingQueueReader) -> bool:
        """Look at the ends of known queues; False when there is reason to look around."""
        try:
            maxima = reader.maxima(self._bounds)
        except (*_AWAY, BrokerError):
            return False  # the look around finds out who
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
        """What the queues of the brokers hold that answer."""
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

    # --- what is gone

    def gone(self, positions: Mapping[MessageQueue, int]) -> list[MessageLoss]:
        """What became of queues that the last look did not find.

        A queue whose broker is away is waited for. A broker that is registered and answers, but does not have the
        queue any more, has lost it: with its topic, or because the topic has fewer queues now.

        Args:
            positions: where the query is in them.

        Returns:
            The queues that are gone, with what is known to be unread. A queue that was read to its end and then taken
            away is none of them.

        Raises:
            RemotingError: no server answers for longer than `pollTimeoutMs`.
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
            # Brokers tell about queues that cannot be read any more, but do not give their messages.
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
