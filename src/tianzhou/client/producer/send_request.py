"""A send on its way through a producer's layers: a prepared message, its target and its timeout (client.md §5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from tianzhou.client.hooks import MessageKind
from tianzhou.client.producer.selector import QueueSelector
from tianzhou.model import Message, MessageQueue, SendResult
from tianzhou.wire.codes import RequestCode

SINGLE = int(RequestCode.SEND_MESSAGE_V2)
BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)


class PreparedMessage(NamedTuple):
    """A message, or a batch, that is ready to be encoded for any queue.

    Attributes:
        topic: its topic, by the servers' name.
        code: `SINGLE`, `BATCH` or `REPLY`.
        unique_keys: its unique key; for a batch, all keys joined by commas.
        born_ms: its creation time.
        flag: the user's flag.
        sys_flag: bits of wire.md §4.4.
        properties: property string as JSON text.
        body: the body as sent: compressed if `sys_flag` has that bit; for a batch its encoding.
        reconsume_times: number of retries of a message to a retry topic.
        max_reconsume_times: maximum retries of a message to a retry topic.
        messages: the sender's messages.
        kind: kind of the message.
        stamped: properties that stamp hooks added to each of the messages.
    """

    topic: str
    code: int
    unique_keys: str
    born_ms: int
    flag: int
    sys_flag: int
    properties: str
    body: bytes
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    messages: Sequence[Message] = ()
    kind: MessageKind = MessageKind.NORMAL
    stamped: Sequence[dict[str, str]] = ()


class SendRequest(NamedTuple):
    """A send, as one layer passes it to the next.

    Attributes:
        prepared: the prepared message.
        timeout_ms: timeout of all attempts together, including the wait for room.
        queue: the queue to send it to; None for any.
        selector: chooses the queue when `queue` is None.
        selector_arg: argument of the selector.
    """

    prepared: PreparedMessage
    timeout_ms: float
    queue: MessageQueue | None = None
    selector: QueueSelector | None = None
    selector_arg: Any = None


Layer: TypeAlias = Callable[[SendRequest], Awaitable[SendResult]]
"""Function that sends a message, together with the layers below it."""
