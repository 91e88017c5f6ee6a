"""Interface of consumers to their client instance."""

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
        half_queue_offset: queue offset of the half message; the answer repeats it.
        commitlog_offset: log offset of the half message; the answer repeats it.
        broker_name: the broker that checks.
        address: address of that broker, `host:port`.
        connection: connection of the check, which also carries the answer.
    """

    message: MessageExt
    transaction_id: str | None
    half_queue_offset: int
    commitlog_offset: int
    broker_name: str
    address: str
    connection: Connection


StateCheck = Callable[[StateQuestion], None]
"""Handler of a transaction check. It answers later, with END_TRANSACTION."""


class GroupMember(Protocol):
    """A consumer of a client instance. Heartbeats report it, brokers notify it of changes and query its state."""

    @property
    def group(self) -> str:
        """The consumer group."""
        ...

    def consumer_data(self) -> ConsumerData | None:
        """Return its part of a heartbeat; None while it has no subscription."""
        ...

    def topics(self) -> set[str]:
        """Return the topics whose routes it needs."""
        ...

    def wake_rebalance(self) -> None:
        """Rebalance soon, because the group's members or a route have changed."""
        ...

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets (request 220)."""
        ...

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the committable offsets of a topic's queues (request 221)."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """Return the answer to request 307, without a stack dump (wire.md §7.11)."""
        ...

    async def consume_directly(self, message: MessageExt) -> DirectConsumption:
        """Consume one message at once, outside its queue (request 309, wire.md §7.12)."""
        ...
