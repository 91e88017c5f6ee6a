"""Messages of a pull on their way to handlers: made out of records, and given to handlers one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tianzhou.records.layout import HEAD_SIZE, HOST_BITS, INNER_BATCH_BITS, LENGTH, MAGIC_V1, OVERHEAD, fields_at

COMPRESSED: Final = 0x1
"""Bit of the system flags: the body is packed (wire.md §4.4)."""
_SPECIAL_BITS: Final = COMPRESSED | INNER_BATCH_BITS | HOST_BITS
_HEAD: Final = fields_at("size", "magic", "queue_offset", "sys_flag", "body_size")


class MessageReader:
    """Reads ordinary records into messages of a class, of which most is made when it is first looked at.

    Args:
        kind: the class, see `tianzhou.wire.delivered.DeliveredMessage`.
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind

    def read(self, data: bytes, at: int, broker_name: str, added: bytes, messages: list[Any]) -> int:
        """Append the messages of records that follow each other, up to the first that is not ordinary.

        Ordinary is a whole record of version 1 with IPv4 hosts whose body is neither packed nor a batch.

        Args:
            data: records one behind the other.
            at: where the first one begins.
            broker_name: the broker that sent them.
            added: further properties of all messages, each by `tianzhou.wire.delivered.pair_behind`.
            messages: gets them.

        Returns:
            Where the first begins that is not ordinary.
        """
        append = messages.append
        kind = self._kind
        unpack, short, new = _HEAD.unpack_from, LENGTH.unpack_from, object.__new__
        # What stands between body and properties, the topic and how long the properties are, seldom differs.
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
            # Filled here: a call for each message would cost more than all the rest.
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
    """A message whose handler has begun, or ended in an unusual way.

    Attributes:
        message: it.
        began_s: when its handler was called, monotonic seconds.
        waiting: the coroutine of a handler that waits, to be gone on with by `measured`; None when it has ended.
        wanted: what that waits for, or what the handler returned.
        failure: what the handler raised.
    """

    message: Any
    began_s: float
    waiting: Any = None
    wanted: Any = None
    failure: BaseException | None = None


class HandlerCalls:
    """Calls handlers, one message after the other, as long as they do not wait.

    Args:
        kind: the class of messages that are known here; others are left.
        monotonic: seconds of a clock.
        now_ms: the time of day.
        pair: the property that says when a message was handed to its handler, of a time in ms, as it is put behind
            others.

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
        """Call a handler for the next messages of the first in line.

        The compiled twin does this for all that end at once without an answer, and counts them; this one leaves all of
        them to its caller, whose own loop is as quick as one here would be.

        Args:
            line: what waits for handlers, `lot` first; that leaves it before its last message is handed out.
            lot: its messages in `rest`, the next one last, and their queue `pq`.
            handler: takes a message, of the topic of the next one.
            rates: counts calls.
            slot: of the worker; nothing more is handed out when it retires.
            most: maximum number of calls.

        Returns:
            How many calls there were, and the last one when there is something to do about it.
        """
        return 0, None
