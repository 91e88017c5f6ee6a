"""What the queues of a query hold, looked at once or again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from tianzhou.errors import ClientError, RemotingError, TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.spark.offsets import Bounds
from tianzhou.spark.options import ReadOptions
from tianzhou.spark.reading import PAUSE_MS, QueueReader

logger = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[[ReadOptions], QueueReader]

# A broker that has no master for the moment is a ClientError.
_AWAY: Final = (RemotingError, ClientError)

START_PATIENCE_MS: Final = 2000
"""How long a query that begins tries to reach its servers: a wrong address should be told soon."""
LOOK_AROUND_S: Final = 1.0
"""How often a stream looks for new queues and deleted messages; Spark asks for new messages every 10 ms."""
LOOK_FOR_MISSING_S: Final = 0.2
"""How often it looks while a broker or topic is away."""


def patiently(
    reader: QueueReader,
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
        options: topics, and the patience of a query that runs.
        connect: gives the process's `QueueReader`.
    """

    def __init__(self, options: ReadOptions, connect: Connect) -> None:
        self._options = options
        self._connect = connect
        self._bounds: dict[MessageQueue, Bounds] = {}
        self._looked_at: float | None = None
        self._away: set[str] = set()

    @property
    def last(self) -> dict[MessageQueue, Bounds]:
        """What was seen last."""
        return self._bounds

    def begin(self) -> dict[MessageQueue, Bounds]:
        """A first look, which every topic has to pass.

        Raises:
            ClientError: a topic does not exist.
            RemotingError: the servers do not answer.
        """
        reader = self._connect(self._options)
        queues = patiently(reader, lambda: reader.queues(self._options.topics), START_PATIENCE_MS)
        return self._keep(patiently(reader, lambda: reader.bounds(queues), START_PATIENCE_MS, _AWAY), reader)

    def now(self) -> dict[MessageQueue, Bounds]:
        """A look while the query runs. What does not answer is left out until it does, unless nothing answers.

        Raises:
            RemotingError: no server answers for longer than `pollTimeoutMs`.
        """
        reader = self._connect(self._options)
        due_s = LOOK_FOR_MISSING_S if self._away else LOOK_AROUND_S
        if self._looked_at is not None and reader.monotonic() - self._looked_at < due_s:
            try:
                maxima = reader.maxima(self._bounds)
            except _AWAY:
                pass  # the look around finds out who
            else:
                self._bounds = {queue: Bounds(limits.minimum, maxima[queue]) for queue, limits in self._bounds.items()}
                return self._bounds
        timeout_ms = self._options.poll_timeout_ms
        queues = [queue for topic in self._options.topics for queue in self._queues(reader, topic)]
        return self._keep(patiently(reader, lambda: self._answering(reader, queues), timeout_ms, _AWAY), reader)

    def _keep(self, bounds: dict[MessageQueue, Bounds], reader: QueueReader) -> dict[MessageQueue, Bounds]:
        self._bounds = bounds
        self._looked_at = reader.monotonic()
        return bounds

    def _queues(self, reader: QueueReader, topic: str) -> list[MessageQueue]:
        try:
            found = patiently(reader, lambda: reader.queues([topic]), self._options.poll_timeout_ms)
        except ClientError as error:
            self._miss(topic, error)
            return []
        self._away.discard(topic)
        return found

    def _answering(self, reader: QueueReader, queues: list[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """What the queues of the brokers hold that answer."""
        found: dict[MessageQueue, Bounds] = {}
        failure: TianzhouError | None = None
        for broker in sorted({queue.broker_name for queue in queues}):
            try:
                found |= reader.bounds([queue for queue in queues if queue.broker_name == broker])
            except _AWAY as error:
                self._miss(broker, error)
                failure = error
            else:
                self._away.discard(broker)
        if failure is not None and not found:
            raise failure
        return found

    def _miss(self, name: str, error: TianzhouError) -> None:
        if name not in self._away:
            logger.warning("%s is away and waited for: %s", name, error)
        self._away.add(name)
