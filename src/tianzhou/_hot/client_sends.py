"""Ordinary sends of a client: from a message to its frame, and from the replies of a read to their results.

A send that begins here needs neither a command nor a header: its reply becomes a `SendResult` where it is read. Other
sends are left to the layers of `tianzhou.client.producer.send_stack` and the general codec.
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
"""Bytes of frames of one loop turn above which they are written before the turn ends."""


class Awaited:
    """A request that awaits its reply.

    Attributes:
        deadline_s: monotonic time of its timeout, seconds.
        waiter: the future of the reply.
        timeout_s: timeout in seconds.
    """

    __slots__ = ("deadline_s", "timeout_s", "waiter")

    def __init__(self, deadline_s: float, waiter: Any, timeout_s: float) -> None:
        self.deadline_s = deadline_s
        self.waiter = waiter
        self.timeout_s = timeout_s


class Sent(Awaited):
    """A message in flight. Its future gets a `SendResult`, or the reply when the reply is not an ordinary one.

    Attributes:
        connection: the connection that sent it.
        opaque: opaque of the request.
        plan: the publish plan of its topic.
        target: its target: queue, address and template.
        unique_key: the message's unique key.
        born_ms: time of its creation, milliseconds since the epoch.
        flag: the user's flag.
        sys_flag: system flags, which name the compression of the body.
        properties: the property string as JSON text; None when there is only the unique key.
        body: the body as sent.
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
    """Return the property string, as JSON text, of a message with a unique key and no other property."""
    return f"UNIQ_KEY\\u0001{unique_key}\\u0002"


class SendFrames:
    """Frames of single messages to one queue, each with its own opaque, properties and body.

    Args:
        before: header up to the system flags.
        between: part of the header between properties and opaque.
        behind: part of the header after the opaque.
    """

    __slots__ = ("_before", "_behind", "_between")

    def __init__(self, before: str, between: str, behind: str) -> None:
        self._before = before
        self._between = between
        self._behind = behind

    def frame(self, opaque: int, born_ms: int, flag: int, sys_flag: int, properties: str, body: bytes) -> bytes:
        """Return a whole frame.

        Args:
            opaque: opaque of the request.
            born_ms: time of the message's creation, ms.
            flag: the user's flag.
            sys_flag: system flags, which name the compression of the body.
            properties: the property string as JSON text.
            body: the body as sent.
        """
        header = (
            f'{self._before}{sys_flag}","g":"{born_ms}","h":"{flag}","i":"{properties}{self._between}{opaque}{self._behind}'
        ).encode()
        size = len(header)
        return b"".join((_pack_lengths(4 + size + len(body), size), header, body))


class QuickSends:
    """Begins the ordinary sends of a producer: to the next queue of a known topic, over an open connection.

    Args:
        plans: publish plans by topic, see `tianzhou.client.producer.publish_plan`.
        routes: its `version` is that of the valid plans.
        connections: open connections by address.
        group: group of the connections; has their loop, opaques and limits.
        ids: generator of unique keys.
        clock: wall clock.
        running_loop: returns the running event loop.
        properties: returns the property string for a message with more than its unique key, and that key; None for a
            message that needs the ordinary path.
        pack: compresses a body; returns the body and its system flags.
        compress_over: bytes from which a body is compressed.
        most: maximum bytes of a body.

    Attributes:
        open: whether the producer may send.
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
        """Send a message if it is ordinary.

        Args:
            message: the message.
            timeout_ms: timeout of its reply, ms.

        Returns:
            The message in flight; None, without any effect, when the send needs the ordinary path.

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
    """Return the result of a send; the compiled `take_results` sets the same fields.

    Args:
        status: the broker's outcome of the send.
        unique_key: unique key of the message; of a batch, all keys joined by commas.
        queue: the queue that the message was sent to; the broker may have stored it in another one of the topic.
        header: header of the reply, a `SendReplyHeader`.
    """
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    # Build the tuple directly: a named tuple's constructor takes as long as all of the above.
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
        awaited: requests that await a reply, by opaque; completed ones are removed.
        buffer: bytes read from a connection.
        start: start of the first frame.
        end: end of the bytes.

    Returns:
        The start of the first frame left, and the number of completed sends.
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
