"""Results of sends, pulls and handlers that are not errors."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from tianzhou.model.message import MessageExt
from tianzhou.model.queue import MessageQueue


class SendStatus(enum.Enum):
    """Guarantee of the broker about a stored message (wire.md §4.6).

    KEPT_IN_OUTBOX comes from the producer: no broker answered, and the producer's outbox stores the message until one
    does.
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    KEPT_IN_OUTBOX = -1


class SendResult(NamedTuple):
    """A stored message. It is a tuple because a producer creates hundreds of thousands of results a second.

    Attributes:
        status: whether flush and replication were confirmed as well.
        msg_id: the unique key from the client; for a batch, all keys joined by commas.
        offset_msg_id: id with the broker's address and the log offset; for a batch, all ids joined by commas.
        queue: the queue that holds the message.
        queue_offset: offset of the message in the queue; for a batch, the offset of the first message.
        transaction_id: the broker's transaction id, for transactional messages.
        region: the broker's region.
        trace_on: whether the broker asks for traces of this message.
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
        result: result of storing the half message.
        state: the decision that was sent to the broker; UNKNOWN makes the broker check again later.
    """

    result: SendResult
    state: TransactionState

    @property
    def msg_id(self) -> str:
        """The message's unique key, which is also the transaction's id."""
        return self.result.msg_id


class PullStatus(enum.Enum):
    """Outcome of a pull (wire.md §6.3)."""

    FOUND = 0
    NO_NEW_MSG = 19
    NO_MATCHED_MSG = 20
    OFFSET_ILLEGAL = 21


@dataclass(slots=True, frozen=True)
class PullResult:
    """Messages and offsets that a pull returned.

    Attributes:
        status: see `PullStatus`.
        next_offset: offset of the next pull.
        min_offset: the queue's first offset.
        max_offset: the offset that the queue's next message will get.
        messages: the messages; empty unless the status is FOUND.
        suggested_broker_id: id of the replica that the broker suggests for the next pull.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt] = field(default_factory=list)
    suggested_broker_id: int = 0


class ConsumeResult(enum.Enum):
    """A handler's result for its messages (client.md §13, §14).

    RECONSUME_LATER is for concurrent consumers, the last three values are for orderly consumers.

    Attributes:
        SUCCESS: the messages are consumed.
        RECONSUME_LATER: deliver the messages again, after later ones.
        SUSPEND_CURRENT_QUEUE_A_MOMENT: deliver the messages again before later ones, after a short pause.
        COMMIT: with `auto_commit` off, these messages and all before them are consumed.
        ROLLBACK: with `auto_commit` off, deliver these messages and all since the last COMMIT again.
    """

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
