"""The identity of a queue."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Queues sort by topic, broker and id, as in every RocketMQ client."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
