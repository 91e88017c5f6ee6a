"""Outcomes that are no errors."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from tianzhou.model.message import MessageExt
from tianzhou.model.queue import MessageQueue


class SendStatus(enum.Enum):
    """Promise of the broker about a stored message (wire.md §4.6).

    KEPT_IN_OUTBOX is no broker's word: none answered, and the producer keeps the message until one does.
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    KEPT_IN_OUTBOX = -1


class SendResult(NamedTuple):
    """A stored message; a tuple, because producers make hundreds of thousands of them a second.

    Attributes:
        status: whether flush and replication were confirmed as well.
        msg_id: the unique key the client gave it; of a batch, all keys joined by commas.
        offset_msg_id: where the broker stored it; of a batch, all ids joined by commas.
        queue: the queue it is in.
        queue_offset: its position there; of a batch, the first one's.
        transaction_id: the broker's transaction id, for transactional messages.
        region: the broker's region.
        trace_on: whether the broker wants traces of this message.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str | None = None
    trace_on: bool = True


class TransactionState(enum.Enum):
    """Outcome of a local transaction; the values are those of END_TRANSACTION (wire.md §7.7)."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


class TransactionSendResult(NamedTuple):
    """A message that was sent together with a local transaction.

    Attributes:
        result: how storing the half message went.
        state: the decision the broker got; UNKNOWN makes it ask again later.
    """

    result: SendResult
    state: TransactionState

    @property
    def msg_id(self) -> str:
        """The message's unique key, which is the transaction's id."""
        return self.result.msg_id


class PullStatus(enum.Enum):
    """Outcome of a pull (wire.md §6.3)."""

    FOUND = 0
    NO_NEW_MSG = 19
    NO_MATCHED_MSG = 20
    OFFSET_ILLEGAL = 21


@dataclass(slots=True, frozen=True)
class PullResult:
    """Messages and offsets that a pull brought.

    Attributes:
        status: see `PullStatus`.
        next_offset: where to pull next.
        min_offset: the queue's first offset.
        max_offset: the offset the queue's next message will get.
        messages: the messages, empty unless FOUND.
        suggested_broker_id: the replica to pull from next, as the broker suggests.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt] = field(default_factory=list)
    suggested_broker_id: int = 0


class ConsumeResult(enum.Enum):
    """A handler's verdict on its messages (client.md §13, §14).

    RECONSUME_LATER is for consumers without an order, the last three for orderly ones.

    Attributes:
        SUCCESS: they are consumed.
        RECONSUME_LATER: deliver them again, after those that follow.
        SUSPEND_CURRENT_QUEUE_A_MOMENT: deliver them again before those that follow, after a moment.
        COMMIT: with `auto_commit` off, they and all before them are consumed.
        ROLLBACK: with `auto_commit` off, deliver them and all since the last COMMIT again.
    """

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
