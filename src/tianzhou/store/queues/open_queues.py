"""The queues of an open store, by topic and number, created for their first message (store.md §5)."""

from __future__ import annotations

from tianzhou.store.files.retired import RetiredSegment
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.queues.queues import QueueMaker, QueueTable, queue_of
from tianzhou.watermark import Watermark


class OpenQueues:
    """Finds queues, creates missing ones, and returns their bounds.

    Args:
        kinds: creates queues.

    Attributes:
        table: all queues; the opening of the store fills it.
        kinds: the argument.
        light: topics that are light queues.
    """

    def __init__(self, kinds: QueueMaker) -> None:
        self.table: QueueTable = {}
        self.kinds = kinds
        self.light: set[str] = set()

    def opened(self) -> None:
        """Collect the light queues after the table was filled from the folder."""
        self.light = {topic for topic in self.table if is_light(topic)}

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue; None when it never had a message."""
        of_topic = self.table.get(topic)
        return None if of_topic is None else of_topic.get(queue_id)

    def find_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue; create it if it is missing."""
        known = topic in self.table
        queue = queue_of(self.table, self.kinds, topic, queue_id)
        if not known and is_light(topic):
            self.light.add(topic)
        return queue

    def retire(self, topic: str) -> list[RetiredSegment]:
        """Drop a topic's queues; return their files."""
        self.light.discard(topic)
        return [file for queue in self.table.pop(topic).values() for file in queue.retire()]

    def topics(self) -> list[str]:
        """Return the topics that have or had messages."""
        return [topic for topic, queues in self.table.items() if any(q.next_offset for q in queues.values())]

    def numbers(self, topic: str) -> list[int]:
        """Return the numbers of a topic's queues that have or had messages, in order."""
        return sorted(n for n, queue in self.table.get(topic, {}).items() if queue.next_offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest offset of a queue; -1 for an unknown queue."""
        queue = self.find(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Return the next offset of a queue; 0 for an unknown queue.

        Args:
            topic: topic.
            queue_id: queue.
            committed: whether to count readable messages only; otherwise all stored ones, which may be a few more.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.max_offset if committed else queue.next_offset

    def unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Return log offset, size and tags code of a queue offset's unit; None when the queue does not have it."""
        queue = self.find(topic, queue_id)
        return None if queue is None else queue.unit(offset)

    def arrived(self, topic: str, queue_id: int) -> Watermark:
        """Return a watermark that follows the queue's next offset; the queue may have no message yet."""
        queue = self.find_or_make(topic, queue_id)
        if queue.arrived is None:
            queue.arrived = Watermark(queue.max_offset)
        return queue.arrived
