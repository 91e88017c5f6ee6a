"""Pulls over connections of their own, without an event loop: many pulls in one write, their replies in one block.

It is for a caller in a thread of its own that reads whole ranges of queues, such as a Spark task. It supports brokers
without TLS and without a proxy. In all other cases (a connection that fails, a server that shuts down, bytes that are
no frames) the caller uses `QueueReader.pull_raw` instead, because a pull can be repeated.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from tianzhou.client.consumer.pull.pull_replies import PullReplies, PullReply
from tianzhou.client.consumer.pull.queue_pull import QueuePull
from tianzhou.client.consumer.pulling import RawPull, pull_request, raw_pull
from tianzhou.client.consumer.subscription import build_subscription
from tianzhou.client.instance import ClientInstance
from tianzhou.errors import ProtocolError, RequestTimeout
from tianzhou.model import MessageQueue, SubscriptionData
from tianzhou.remoting.client import parse_address
from tianzhou.wire.codes import FLAG_RESPONSE, ResponseCode
from tianzhou.wire.command import encode
from tianzhou.wire.templates import PullTemplate

TIMEOUT_MS: Final = 10_000
_TEMPLATES: Final = 256
"""Maximum number of cached frame templates. The cache is cleared when one more is needed."""

Found = tuple[RawPull, memoryview]
"""Result of a pull, and its records as a view, which holds their memory."""


class Asked(NamedTuple):
    """Pulls that wait for their replies.

    Attributes:
        line: their connection.
        pulls: the pulls by their request numbers.
        deadline_s: monotonic time at which they time out.
    """

    line: _BrokerLine
    pulls: dict[int, QueuePull]
    deadline_s: float


class _BrokerLine:
    """A connection to a broker, and received replies that were not collected yet.

    Args:
        address: address of the broker.
        timeout_s: maximum seconds to connect.

    Raises:
        OSError: the connection failed.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self._socket = socket.create_connection(parse_address(address), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = PullReplies()
        self._there: dict[int, PullReply] = {}
        self._wanted: set[int] = set()

    def send(self, frames: dict[int, bytes], timeout_s: float) -> None:
        """Send requests, by their numbers. Late replies to former requests are dropped.

        Raises:
            OSError: the connection is lost, or the broker does not accept the requests in time.
        """
        self._there.clear()
        self._wanted = set(frames)
        self._replies.begin()
        self._socket.settimeout(timeout_s)
        self._socket.sendall(b"".join(frames.values()))

    def receive(self, deadline_s: float, clock: Callable[[], float]) -> dict[int, PullReply]:
        """Return the replies to the last requests, by number, once all have arrived.

        Raises:
            TimeoutError: they do not arrive in time.
            OSError: the connection is lost.
            ProtocolError: the received bytes are no frames.
        """
        there, wanted = self._there, self._wanted
        while len(there) < len(wanted):
            self._socket.settimeout(max(deadline_s - clock(), 0.001))
            count = self._socket.recv_into(self._replies.writable())
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            for reply in self._replies.received(count):
                number = reply.command.opaque
                if reply.command.flag & FLAG_RESPONSE and number in wanted:
                    there[number] = reply
        self._there, self._wanted = {}, set()
        return there

    def expects(self, numbers: Iterable[int]) -> bool:
        """Whether these are the last requests, and their replies have not been collected yet."""
        return self._wanted == set(numbers)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class DirectPulls:
    """Pulls of a group over sockets of their own.

    Args:
        instance: knows the brokers' addresses, and the hooks that change requests.
        group: the consumer group.
        timeout_ms: timeout of connecting, and of all replies together.
        clock: monotonic time, seconds.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        timeout_ms: float = TIMEOUT_MS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._group = group
        self._timeout_s = timeout_ms / 1000
        self._clock = clock
        self._lines: dict[str, _BrokerLine] = {}
        self._templates: dict[tuple[MessageQueue, int, str | None, str | None], PullTemplate] = {}

    def send(self, pulls: Sequence[QueuePull]) -> Asked | None:
        """Send pulls of one queue. The broker answers all of them at once, also without messages.

        Args:
            pulls: the pulls; only the fields up to `sql` are used.

        Returns:
            The argument of `collect`; None when they were not sent, and the caller has to pull in another way.
        """
        remoting = self._instance.remoting
        queue = pulls[0].queue
        address = self._instance.routes.readable(queue.broker_name, 0) if remoting.is_plain else None
        if address is None:
            return None
        opaques = remoting.group.opaques
        asked = {opaques.next(): pull for pull in pulls}
        frames = {number: self._frame(number, pull, address) for number, pull in asked.items()}
        deadline_s = self._clock() + self._timeout_s
        line = self._lines.get(address)
        try:
            if line is None:
                line = self._lines[address] = _BrokerLine(address, remoting.connect_timeout_ms / 1000)
            line.send(frames, self._timeout_s)
        except OSError:
            self._end(address)
            return None
        return Asked(line, asked, deadline_s)

    def collect(self, asked: Asked) -> list[Found] | None:
        """Return the replies to the last pulls, in their order; None when the caller has to pull in another way.

        Raises:
            BrokerError: the broker rejects a pull.
            ProtocolError: an answer is invalid.
            RequestTimeout: the replies do not arrive in time.
        """
        address = asked.line.address
        if self._lines.get(address) is not asked.line or not asked.line.expects(asked.pulls):
            return None  # the connection was lost meanwhile, or other pulls were sent
        try:
            replies = asked.line.receive(asked.deadline_s, self._clock)
        except TimeoutError:
            self._end(address)
            late = f"{address} does not answer pulls within {self._timeout_s * 1000:.0f} ms"
            raise RequestTimeout(f"{late}; whether the request was carried out is unknown") from None
        except (OSError, ProtocolError):
            self._end(address)
            return None
        if any(reply.command.code == ResponseCode.GO_AWAY for reply in replies.values()):
            self._end(address)
            return None
        return [
            (raw_pull(replies[number].command, b"", address, pull.offset), replies[number].body)
            for number, pull in asked.pulls.items()
        ]

    def close(self) -> None:
        """Close all connections; the next pulls open new ones."""
        for address in list(self._lines):
            self._end(address)

    def _end(self, address: str) -> None:
        line = self._lines.pop(address, None)
        if line is not None:
            line.close()

    def _frame(self, number: int, pull: QueuePull, address: str) -> bytes:
        queue, most = pull.queue, pull.max_messages
        remoting = self._instance.remoting
        if remoting.hooked:
            subscription = self._subscription(pull)
            request = pull_request(self._group, queue, pull.offset, max_messages=most, subscription=subscription)
            request = remoting.prepare(address, request)
            request.opaque = number
            return encode(request)
        key = queue, most, pull.tags, pull.sql
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
            template = self._templates[key] = PullTemplate(
                self._group,
                queue,
                max_messages=most,
                max_bytes=None,
                subscription=self._subscription(pull),
                sub_version=0,
                suspend_ms=0,
            )
        return template.frame(number, pull.offset, None)

    @staticmethod
    def _subscription(pull: QueuePull) -> SubscriptionData:
        return build_subscription(pull.queue.topic, pull.tags, pull.sql)
