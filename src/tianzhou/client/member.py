"""What a client instance wants of the consumers it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tianzhou.model import ConsumerData, MessageExt, MessageQueue
from tianzhou.wire.bodies import ConsumerRunningInfo, DirectConsumption


class GroupMember(Protocol):
    """A consumer, as its instance sees it: announced in heartbeats, told of changes, asked by the broker."""

    @property
    def group(self) -> str:
        """The consumer group."""
        ...

    def consumer_data(self) -> ConsumerData | None:
        """What heartbeats say about it; None while there is nothing to announce."""
        ...

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""
        ...

    def wake_rebalance(self) -> None:
        """The group's members or a route have changed: share the queues anew, soon."""
        ...

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets (request 220)."""
        ...

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """What is committable of a topic's queues (request 221)."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """The answer to request 307, without a stack dump (wire.md §7.11)."""
        ...

    async def consume_directly(self, message: MessageExt) -> DirectConsumption:
        """Consume one message at once, outside its queue (request 309, wire.md §7.12)."""
        ...
