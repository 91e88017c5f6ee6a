"""Failed delivery attempts of a message, and the messages that are set aside. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from tianzhou.repeats import Repeats
from tianzhou.wire.undeliverable import UndeliverableWalk

MAX_TRIES = 3
"""Maximum delivery attempts of a faulty message before it is set aside."""
MOST_NAMED = 100_000
"""Maximum messages whose topics are remembered; further ones are only counted."""
LOG_LINES = 10
"""Maximum messages of one topic that are logged in a minute."""


class DeliveryTries:
    """Failed delivery attempts of the first message of a ledger.

    Args:
        most: number of attempts after which a message is set aside.
    """

    def __init__(self, most: int = MAX_TRIES) -> None:
        self._most = most
        self._key: Hashable = None
        self._count = 0

    def failed(self, key: Hashable) -> bool:
        """Note a failure that is likely to repeat; return whether the message has used all attempts.

        Args:
            key: key of the message. Another key starts a new count.
        """
        self._count = self._count + 1 if key == self._key else 1
        self._key = key
        return self._count >= self._most


class Named(NamedTuple):
    """Ledger and topic of a message that was set aside.

    Attributes:
        ledger: the ledger that set it aside.
        topic: the target topic of the message.
    """

    ledger: str
    topic: str


class UndeliverableLedger:
    """Messages that were set aside, by their offsets in the queue of such messages.

    Attributes:
        total: messages set aside since the broker became the master.
        reason: reason of the newest one; empty without any.
        lines: rate limit of log lines by topic.
    """

    def __init__(self, most_named: int = MOST_NAMED) -> None:
        self._most_named = most_named
        self._named: dict[int, Named] = {}
        self._counts: Counter[Named] = Counter()
        self._done: set[int] = set()
        self._begin = self._end = 0
        self.total = 0
        self.reason = ""
        self.lines = Repeats(LOG_LINES)

    def __len__(self) -> int:
        """Number of messages that were set aside, are not delivered and have not expired."""
        return self._end - self._begin - len(self._done)

    @property
    def counts(self) -> Mapping[Named, int]:
        """Numbers of the remembered messages by ledger and topic."""
        return self._counts

    def set_aside(self, offset: int, named: Named, reason: str) -> None:
        """Add a message that was set aside.

        Args:
            offset: its offset in the queue of such messages.
            named: its ledger and its topic.
            reason: why it cannot be delivered.
        """
        self.total += 1
        self.reason = reason
        self._add(offset, named)

    def _add(self, offset: int, named: Named) -> None:
        self._end = max(self._end, offset + 1)
        if len(self._named) < self._most_named:
            self._named[offset] = named
            self._counts[named] += 1

    def is_waiting(self, offset: int) -> bool:
        """Whether a message was set aside and is not delivered."""
        return self._begin <= offset < self._end and offset not in self._done

    def delivered(self, offsets: Iterable[int]) -> None:
        """Note messages that were delivered on request."""
        for offset in offsets:
            if self.is_waiting(offset):
                self._done.add(offset)
                self._forget(offset)

    def expired(self, begin: int) -> None:
        """Drop messages before an offset of their queue, which the log no longer has."""
        if begin <= self._begin:
            return
        for offset in [offset for offset in self._named if offset < begin]:
            self._forget(offset)
        self._done = {offset for offset in self._done if offset >= begin}
        self._begin = begin
        self._end = max(self._end, begin)

    def _forget(self, offset: int) -> None:
        named = self._named.pop(offset, None)
        if named is not None:
            self._counts[named] -= 1
            if not self._counts[named]:
                del self._counts[named]

    def restore(self, begin: int, end: int, done: Iterable[int], named: Iterable[tuple[int, Named, str]]) -> None:
        """Rebuild the ledger from the log.

        Args:
            begin: first offset of the queue of such messages.
            end: offset after the last one.
            done: offsets of messages that were delivered.
            named: offset, names and reason of each message, the oldest first.
        """
        self.clear()
        self._begin, self._end = begin, end
        self._done = {offset for offset in done if begin <= offset < end}
        for offset, one, reason in named:
            if offset not in self._done:
                self._add(offset, one)
                self.reason = reason

    def clear(self) -> None:
        """Clear the ledger when the broker is no longer the master."""
        self._named.clear()
        self._counts.clear()
        self._done.clear()
        self._begin = self._end = self.total = 0
        self.reason = ""


def named(ledger: UndeliverableWalk, topic: str) -> Named:
    """Return the names of a message."""
    return Named(str(ledger), topic)
