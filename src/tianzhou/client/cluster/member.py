"""The consumers of a client instance, as the instance sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tianzhou.model import ConsumerData, MessageExt, MessageQueue
from tianzhou.remoting.connection import Connection

if TYPE_CHECKING:
    from tianzhou.wire.bodies.clients import ConsumerRunningInfo, DirectConsumption


class StateQuestion(NamedTuple):
    """A broker's check of a local transaction (CHECK_TRANSACTION_STATE, wire.md §7.7).

    Attributes:
        message: the half message.
        transaction_id: the broker's name for the transaction.
        half_queue_offset: where the broker keeps it; goes back with the answer.
        commitlog_offset: likewise.
        broker_name: the broker that checks.
        address: of that broker, `host:port`.
        connection: the connection it came on, on which the answer goes back.
    """

    message: MessageExt
    transaction_id: str | None
    half_queue_offset: int
    commitlog_offset: int
    broker_name: str
    address: str
    connection: Connection


StateCheck = Callable[[StateQuestion], None]
"""Takes a question; the answer follows by END_TRANSACTION."""


class GroupMember(Protocol):
    """A consumer, as its instance sees it: announced in heartbeats, notified of changes, queried by the broker."""

    @property
    def group(self) -> str:
        """The consumer group."""
        ...

    def consumer_data(self) -> ConsumerData | None:
        """Its part of a heartbeat; None while there is nothing to announce."""
        ...

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""
        ...

    def wake_rebalance(self) -> None:
        """The group's members or a route have changed: rebalance soon."""
        ...

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets (request 220)."""
        ...

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """The committable offsets of a topic's queues (request 221)."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """The answer to request 307, without a stack dump (wire.md §7.11)."""
        ...

    async def consume_directly(self, message: MessageExt) -> DirectConsumption:
        """Consume one message at once, outside its queue (request 309, wire.md §7.12)."""
        ...
