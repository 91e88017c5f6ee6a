"""A send as it goes down a producer's stack: a message made ready, its destination and its limit (client.md §5)."""

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
    """A message, or a batch of them, ready to be framed for whatever queue it goes to.

    Attributes:
        topic: its topic as the servers know it.
        code: `SINGLE`, `BATCH` or `REPLY`.
        unique_keys: its unique key; of a batch all, joined by commas.
        born_ms: when it was made.
        flag: the user's flag.
        sys_flag: bits of wire.md §4.4.
        properties: as text of the frame's JSON.
        body: as sent, so compressed already; of a batch its encoding.
        reconsume_times: of messages sent to a retry topic.
        max_reconsume_times: of messages sent to a retry topic.
        messages: what it was made of.
        kind: what it is.
        stamped: what stamp hooks have added to each of the messages.
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
    """A send as one layer hands it to the next.

    Attributes:
        prepared: what is sent.
        timeout_ms: limit of all attempts together, waiting for room included.
        queue: the queue it has to go to, None for any.
        selector: chooses the queue when none is given.
        selector_arg: handed to the selector.
    """

    prepared: PreparedMessage
    timeout_ms: float
    queue: MessageQueue | None = None
    selector: QueueSelector | None = None
    selector_arg: Any = None


Layer: TypeAlias = Callable[[SendRequest], Awaitable[SendResult]]
"""Sends, by itself or with the layers below it."""
