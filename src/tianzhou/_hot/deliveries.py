"""Messages of a pull on their way to handlers: decoded from records, and passed to handlers one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tianzhou.records.layout import HEAD_SIZE, HOST_BITS, INNER_BATCH_BITS, LENGTH, MAGIC_V1, OVERHEAD, fields_at

COMPRESSED: Final = 0x1
"""Bit of the system flags: the body is compressed (wire.md §4.4)."""
_SPECIAL_BITS: Final = COMPRESSED | INNER_BATCH_BITS | HOST_BITS
_HEAD: Final = fields_at("size", "magic", "queue_offset", "sys_flag", "body_size")


class MessageReader:
    """Decodes ordinary records into messages whose fields are decoded at their first use.

    Args:
        kind: class of the messages, see `tianzhou.wire.delivered.DeliveredMessage`.
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind

    def read(self, data: bytes, at: int, broker_name: str, added: bytes, messages: list[Any]) -> int:
        """Append the messages of consecutive records, up to the first that is not ordinary.

        An ordinary record is a whole record of version 1 with IPv4 hosts whose body is neither compressed nor a batch.

        Args:
            data: contiguous records.
            at: start of the first record.
            broker_name: the broker that sent them.
            added: further properties of all messages, each made by `tianzhou.wire.delivered.pair_behind`.
            messages: receives the messages.

        Returns:
            The start of the first record that is not ordinary.
        """
        append = messages.append
        kind = self._kind
        unpack, short, new = _HEAD.unpack_from, LENGTH.unpack_from, object.__new__
        # The bytes between body and properties (topic and length of the properties) seldom differ from record to
        # record.
        between, properties_size, topic = b"", -1, ""
        end = len(data)
        while end - at >= OVERHEAD:
            size, magic, queue_offset, sys_flag, body_size = unpack(data, at)
            following = at + size
            body_at = at + HEAD_SIZE
            body_end = body_at + body_size
            if magic != MAGIC_V1 or sys_flag & _SPECIAL_BITS or body_size < 0 or not body_end < following <= end:
                break
            properties_at = body_end + len(between)
            if following - properties_at != properties_size or data[body_end:properties_at] != between:
                topic_end = body_end + 1 + data[body_end]
                properties_at = topic_end + 2
                if properties_at > following or short(data, topic_end)[0] != following - properties_at:
                    break
                between, properties_size = data[body_end:properties_at], following - properties_at
                topic = between[1:-2].decode("utf-8", "replace")
            # Set the attributes here: a call for each message would cost more than all the rest.
            message: Any = new(kind)
            message.topic = topic
            message.body = data[body_at:body_end]
            message.head = data[at:body_at]
            message.raw_properties = data[properties_at:following]
            message.more_properties = added
            message.broker_name = broker_name
            message.queue_offset = queue_offset
            message.sys_flag = sys_flag
            append(message)
            at = following
        return at


class Unfinished(NamedTuple):
    """A message whose handler has begun, or has ended in an unusual way.

    Attributes:
        message: the message.
        began_s: monotonic time of the handler's call, seconds.
        waiting: coroutine of a waiting handler, which `measured` continues; None when it has ended.
        wanted: the awaitable that the coroutine waits for, or the handler's return value.
        failure: the exception of the handler.
    """

    message: Any
    began_s: float
    waiting: Any = None
    wanted: Any = None
    failure: BaseException | None = None


class HandlerCalls:
    """Calls handlers, one message after the other, as long as they do not wait.

    Args:
        kind: class of the messages to handle; other messages are left to the caller.
        monotonic: monotonic time, seconds.
        now_ms: returns the wall-clock time, ms.
        pair: returns the property for the time (ms) of a handler's call, in the form that is appended to others.

    Attributes:
        calls: whether `run` calls handlers at all.
    """

    __slots__ = ()
    calls = False

    def __init__(
        self,
        kind: type[Any],
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        pair: Callable[[int], bytes],
    ) -> None:
        pass

    def run(
        self, line: Any, lot: Any, handler: Callable[[Any], Any], rates: Any, slot: Any, most: int
    ) -> tuple[int, Unfinished | None]:
        """Call a handler for the next messages of the first item in line.

        The compiled twin calls and counts all handlers that end at once without an answer. This twin leaves all
        messages to its caller, whose own loop is as fast as one here would be.

        Args:
            line: items that wait for handlers, `lot` first; `lot` leaves it before its last message is handed out.
            lot: item with its messages in `rest`, the next one last, and their queue `pq`.
            handler: takes a message of the next message's topic.
            rates: counts calls.
            slot: slot of the worker; no message is handed out once it retires.
            most: maximum number of calls.

        Returns:
            The number of calls, and the last call when the caller has to finish it.
        """
        return 0, None
