"""Ordinary sends of a client: from a message to its frame, and from the replies of a read to their results.

A send that is begun here needs neither a command nor a header: its reply becomes a `SendResult` where it is read.
Whatever is not ordinary is left alone, for the layers of `tianzhou.client.producer.send_stack` and the general codec.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from tianzhou._hot import frames
from tianzhou.model import Message, MessageQueue, SendResult, SendStatus

_new_tuple = tuple.__new__
_pack_lengths = Struct(">ii").pack
_MOST_NUMBER = 2**63 - 1
FLUSH_BYTES = 262_144
"""Bytes of frames of one turn of the loop that are written before it ends."""


class Awaited:
    """A request that awaits its reply.

    Attributes:
        deadline_s: when it is given up, monotonic seconds.
        waiter: the future that gets the reply.
        timeout_s: seconds that were given to it.
    """

    __slots__ = ("deadline_s", "timeout_s", "waiter")

    def __init__(self, deadline_s: float, waiter: Any, timeout_s: float) -> None:
        self.deadline_s = deadline_s
        self.waiter = waiter
        self.timeout_s = timeout_s


class Sent(Awaited):
    """A message on its way, whose future gets a `SendResult`, or the reply where that is not an ordinary one.

    Attributes:
        connection: it went by this one.
        opaque: the request's number.
        plan: the plan of its topic.
        target: where it goes: queue, address and template.
        unique_key: the message's.
        born_ms: when it was made, milliseconds since the epoch.
        flag: the user's flag.
        sys_flag: how the body is packed.
        properties: the property string as JSON text; None for the unique key alone.
        body: as it is sent.
    """

    __slots__ = (
        "body", "born_ms", "connection", "flag", "opaque", "plan", "properties", "sys_flag", "target", "unique_key",
    )  # fmt: skip

    connection: Any
    opaque: int
    plan: Any
    target: Any
    unique_key: str
    born_ms: int
    flag: int
    sys_flag: int
    properties: str | None
    body: bytes


def unique_key_json(unique_key: str) -> str:
    """Property string of a message that has a unique key and nothing more, as JSON text."""
    return f"UNIQ_KEY\\u0001{unique_key}\\u0002"


class SendFrames:
    """Frames of messages to one queue that are sent by themselves, each with its own numbers, properties and body.

    Args:
        before: header up to the system flags.
        between: of it what stands between properties and opaque.
        behind: what stands behind the opaque.
    """

    __slots__ = ("_before", "_behind", "_between")

    def __init__(self, before: str, between: str, behind: str) -> None:
        self._before = before
        self._between = between
        self._behind = behind

    def frame(self, opaque: int, born_ms: int, flag: int, sys_flag: int, properties: str, body: bytes) -> bytes:
        """A whole frame.

        Args:
            opaque: the request's number.
            born_ms: when the message was made.
            flag: the user's flag.
            sys_flag: how the body is packed.
            properties: the property string as JSON text.
            body: as sent.
        """
        header = (
            f'{self._before}{sys_flag}","g":"{born_ms}","h":"{flag}","i":"{properties}{self._between}{opaque}{self._behind}'
        ).encode()
        size = len(header)
        return b"".join((_pack_lengths(4 + size + len(body), size), header, body))


class QuickSends:
    """Begins the ordinary sends of a producer: to the next queue of a known topic, by a connection that is there.

    Args:
        plans: the plans by topic, see `tianzhou.client.producer.publish_plan`.
        routes: its `version` is that of the plans that are valid.
        connections: by address.
        group: of the connections; its loop, numbers and limits.
        ids: makes unique keys.
        clock: gives the time of day.
        running_loop: gives the loop that runs.
        properties: makes the property string of a message that has more than its unique key, of the message and that
            key; None for one that takes more than that.
        pack: a body as it is sent, and the flags that say so.
        compress_over: bodies as large are packed.
        most: bytes of the largest body.

    Attributes:
        open: whether anything may be sent.
    """

    __slots__ = (
        "_clock", "_compress_over", "_connections", "_group", "_ids", "_most", "_pack", "_plans", "_properties",
        "_routes", "_running_loop", "open",
    )  # fmt: skip

    def __init__(
        self,
        plans: dict[str, Any],
        routes: Any,
        connections: dict[str, Any],
        group: Any,
        ids: Any,
        clock: Any,
        running_loop: Callable[[], Any],
        properties: Callable[[Message, str], str | None],
        pack: Callable[[bytes], tuple[bytes, int]],
        compress_over: int,
        most: int,
    ) -> None:
        self._plans = plans
        self._routes = routes
        self._connections = connections
        self._group = group
        self._ids = ids
        self._clock = clock
        self._running_loop = running_loop
        self._properties = properties
        self._pack = pack
        self._compress_over = compress_over
        self._most = most
        self.open = False

    def begin(self, message: Message, timeout_ms: float) -> Sent | None:
        """Send a message.

        Args:
            message: it.
            timeout_ms: limit for its reply.

        Returns:
            What is on its way; None, and nothing was sent, when that takes more than is done here.

        Raises:
            ClientError: its properties cannot be sent.
        """
        if type(message) is not Message or not self.open or message.sharding_key is not None:
            return None
        topic, body, flag = message.topic, message.body, message.flag
        if type(topic) is not str or type(body) is not bytes or type(flag) is not int:
            return None
        if not 0 < len(body) <= self._most or not -_MOST_NUMBER <= flag <= _MOST_NUMBER:
            return None
        plan = self._plans.get(topic)
        if plan is None or plan.version != self._routes.version:
            return None
        turn, ring = plan.turn, plan.ring
        index = turn.index + 1
        target = ring[index % len(ring)]
        connection = self._connections.get(target.address)
        group = self._group
        if (
            connection is None
            or connection.closed
            or group.opaques.in_flight >= group.opaques.most
            or self._running_loop() is not group.loop
        ):
            return None
        now_ms = self._clock.now_ms()
        unique_key = self._ids.next(now_ms)
        text = None
        if message.properties or message.tags or message.keys or message.delay_level or not message.wait_store_ok:
            text = self._properties(message, unique_key)
            if text is None:
                return None
        sys_flag = 0
        if len(body) >= self._compress_over:
            body, sys_flag = self._pack(body)
        turn.index = index
        timeout_s = timeout_ms / 1000
        sent = Sent(group.monotonic() + timeout_s, group.loop.create_future(), timeout_s)
        sent.connection, sent.plan, sent.target = connection, plan, target
        sent.opaque = opaque = group.opaques.next()
        sent.unique_key, sent.born_ms, sent.properties = unique_key, now_ms, text
        sent.flag, sent.sys_flag, sent.body = flag, sys_flag, body
        connection.await_reply(opaque, sent)
        connection.send_request(
            target.template.frames.frame(opaque, now_ms, flag, sys_flag, text or unique_key_json(unique_key), body)
        )
        return sent


def send_result(status: SendStatus, unique_key: str, queue: MessageQueue, header: Any) -> SendResult:
    """Return the result of a send; the compiled `take_results` fills the same fields.

    Args:
        status: what the broker promises about the message.
        unique_key: of the message; of a batch, all keys joined by commas.
        queue: the queue that the message was sent to; the broker may have stored it in another one of the topic.
        header: of the reply, a `SendReplyHeader`.
    """
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    # By hand: the call that a named tuple makes of its arguments takes as long as all of the above.
    return _new_tuple(
        SendResult,
        (
            status,
            unique_key,
            header.msg_id,
            queue,
            header.queue_offset,
            header.transaction_id,
            header.msg_region,
            header.trace_on,
        ),
    )


def take_results(awaited: dict[int, Awaited], buffer: frames.Buffer, start: int, end: int) -> tuple[int, int]:
    """Complete sends by the ordinary replies at the front of `buffer[start:end]`.

    Args:
        awaited: what awaits a reply, by number; those that are completed leave it.
        buffer: what was read from a connection.
        start: where its first frame starts.
        end: where it ends.

    Returns:
        Where the first frame starts that was left, and how many were completed.
    """
    view = memoryview(buffer)
    count = 0
    while end - start >= frames.PEEK_SIZE:
        found, stop = frames.stored_at(buffer, view, start, end)
        if found is None or not found.flag & 1:
            break
        sent = awaited.get(found.opaque)
        if type(sent) is not Sent:
            break
        del awaited[found.opaque]
        count += 1
        start = stop
        if sent.waiter.done():
            continue
        sent.waiter.set_result(send_result(SendStatus.SEND_OK, sent.unique_key, sent.target.queue, found.header))
    return start, count
