"""Counts by kind of message: messages that wait in another topic first, and messages that no producer sent.

Only messages on a slow path are counted here, so ordinary messages have no extra cost.
"""

from __future__ import annotations

from typing import Final

from tianzhou.metrics.families import Histogram

DELAY, TRANSACTION = "delay", "transaction"
COMMITTED, ROLLED_BACK = "commit", "rollback"
FINISH_BOUNDS_MS: Final = (5_000.0, 60_000.0, 600_000.0, 3_600_000.0, 43_200_000.0, 86_400_000.0)
"""Bounds of the histogram of transaction durations, ms."""
SIZE_BOUNDS: Final = (1_024.0, 4_096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)


class MessageKinds:
    """Counts of messages by kind, in addition to those of puts.

    Attributes:
        waiting: messages and bytes sent to a topic and stored in another topic first, by topic and kind.
        own: messages and bytes that the broker itself put to a topic; the topic's puts include them.
        dead: messages that became dead letters, by topic and group.
        ended: ms that half messages waited for their outcome, by topic and outcome.
    """

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, str], list[int]] = {}
        self.own: dict[str, list[int]] = {}
        self.dead: dict[tuple[str, str], int] = {}
        self.ended: dict[tuple[str, str], Histogram] = {}

    def add_waiting(self, topic: str, kind: str, size: int) -> None:
        """Count a message for a topic that is stored elsewhere until it is due or committed."""
        _add(self.waiting.setdefault((topic, kind), [0, 0]), size)

    def add_own(self, topic: str, size: int) -> None:
        """Count a message that the broker put to a topic itself."""
        _add(self.own.setdefault(topic, [0, 0]), size)

    def add_dead(self, topic: str, group: str) -> None:
        """Count a dead letter."""
        self.dead[topic, group] = self.dead.get((topic, group), 0) + 1

    def add_end(self, topic: str, end: str, ms: int) -> None:
        """Count the outcome of a half message."""
        found = self.ended.get((topic, end))
        if found is None:
            found = self.ended[topic, end] = Histogram(FINISH_BOUNDS_MS)
        found.note(max(ms, 0))

    def forget_topic(self, topic: str) -> None:
        """Drop the counts of a deleted topic."""
        self.own.pop(topic, None)
        for table in (self.waiting, self.dead, self.ended):
            for key in [key for key in table if key[0] == topic]:
                del table[key]

    def forget_group(self, group: str) -> None:
        """Drop the counts of a deleted group."""
        for key in [key for key in self.dead if key[1] == group]:
            del self.dead[key]


def _add(counts: list[int], size: int) -> None:
    counts[0] += 1
    counts[1] += size
