"""The requesting half of a connection: outgoing requests, and the futures that await their replies (wire.md §1.5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from tianzhou._hot import Awaited, ReadPath, take_results
from tianzhou.errors import ConnectionLost
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.wire.codes import FLAG_ONEWAY
from tianzhou.wire.command import Command, encode

MAX_REFUSAL_LISTENERS: Final = 256
"""Maximum one-way requests of a connection whose refusal is still reported."""
_log = logging.getLogger(__name__)


class Requester(ReadPath):
    """Sends requests to the peer of a `Connection` and awaits the replies.

    Args:
        group: counts the requests that await a reply.
    """

    __slots__ = ("_lone", "_out", "_refusal_listeners")

    _group: ConnectionGroup[Any]

    def __init__(self, group: ConnectionGroup[Any]) -> None:
        self.closed = False
        self._group = group
        self._awaited: dict[int, Awaited] = {}  # by opaque
        self._out: list[bytes] = []  # frames of this loop turn
        self._lone = False  # whether the last write had one frame
        self._refusal_listeners: dict[int, Callable[[Command], object]] = {}  # by opaque of one-way requests

    def send(self, data: Command | bytes) -> None:
        """Send a command or a complete frame."""
        raise NotImplementedError

    def send_request(self, frame: bytes) -> None:
        """Send a request that awaits a reply; write it at once if the recent requests came one by one.

        A caller that waits for each reply before its next request would otherwise wait for the end of the turn each
        time.
        """
        if self._lone and not self._out and self._group.opaques.in_flight == 1 and not self.closed:
            self._write([frame], len(frame))
        else:
            self.send(frame)

    async def invoke(self, command: Command, timeout_ms: float = 3000) -> Command:
        """Send a request to the peer and return its reply, whatever its response code is.

        Args:
            command: the request; its opaque is set here.
            timeout_ms: maximum ms to wait for the reply, accurate to about 50 ms.

        Raises:
            ConnectionLost: the connection ended first.
            RequestTimeout: no reply came in time.
            TooManyRequests: too many requests are in flight.
        """
        command.opaque = opaque = self._group.opaques.next()
        return await self.invoke_frame(opaque, encode(command), timeout_ms)

    async def invoke_frame(self, opaque: int, frame: bytes, timeout_ms: float = 3000) -> Command:
        """Invoke a request whose frame the caller encoded with an opaque of the group's counter."""
        try:
            return await self.ask(opaque, frame, timeout_ms)
        except asyncio.CancelledError:
            self.forget(opaque)
            raise

    def ask(self, opaque: int, frame: bytes, timeout_ms: float) -> asyncio.Future[Command]:
        """Return the reply's future, like `invoke_frame` without a coroutine. After cancelling it, call `forget`."""
        group, counter = self._group, self._group.opaques
        if self.closed:
            raise ConnectionLost(f"connection to {self} is closed")
        if counter.in_flight >= counter.most:
            raise group.too_many()
        waiter: asyncio.Future[Command] = group.loop.create_future()
        timeout_s = timeout_ms / 1000
        self.await_reply(opaque, Awaited(group.monotonic() + timeout_s, waiter, timeout_s))
        self.send_request(frame)
        return waiter

    def await_reply(self, opaque: int, awaited: Awaited) -> None:
        """Register a request, sent now, that awaits a reply."""
        group = self._group
        self._awaited[opaque] = awaited
        group.opaques.in_flight += 1
        if group.deadline_timer is None:
            group.arm_deadlines()

    def forget(self, opaque: int) -> None:
        """Stop awaiting the reply to a request."""
        if self._awaited.pop(opaque, None) is not None:
            self._group.opaques.in_flight -= 1

    def invoke_oneway(self, command: Command, refused: Callable[[Command], object] | None = None) -> None:
        """Send a request that awaits no reply.

        Args:
            command: the request; its opaque is set here.
            refused: called with the reply of a server that refuses the request and replies nevertheless. The connection
                remembers it for the last `MAX_REFUSAL_LISTENERS` such requests.

        Raises:
            ConnectionLost: the connection is closed.
        """
        if self.closed:
            raise ConnectionLost(f"connection to {self} is closed")
        flag = command.flag
        command.opaque = self._group.opaques.next()
        command.flag = flag | FLAG_ONEWAY
        if refused is not None:
            listeners = self._refusal_listeners
            if len(listeners) >= MAX_REFUSAL_LISTENERS:
                del listeners[next(iter(listeners))]
            listeners[command.opaque] = refused
        try:
            self.send(encode(command))
        finally:
            command.flag = flag

    @property
    def awaiting(self) -> int:
        """Number of requests that the peer has not answered."""
        return len(self._awaited)

    def expired(self, now: float) -> list[tuple[asyncio.Future[Command], float]]:
        """Remove and return the waiters whose deadline is at or before `now`, each with its timeout in seconds."""
        late = [opaque for opaque, awaited in self._awaited.items() if awaited.deadline_s <= now]
        gone = [self._awaited.pop(opaque) for opaque in late]
        return [(awaited.waiter, awaited.timeout_s) for awaited in gone]

    def _take_results(self, buffer: bytearray, start: int, end: int) -> int:
        """Complete sends by the replies at the front of a read; return the start of the first frame left."""
        after, count = take_results(self._awaited, buffer, start, end)
        self._group.opaques.in_flight -= count
        return after

    def _replied(self, reply: Command) -> None:
        entry = self._awaited.pop(reply.opaque, None)
        if entry is None:
            refused = self._refusal_listeners.pop(reply.opaque, None)
            if refused is not None:
                refused(reply)
                return
            _log.debug("reply %d from %s came too late or belongs to no request", reply.opaque, self)
            return
        self._group.opaques.in_flight -= 1
        if not entry.waiter.done():
            entry.waiter.set_result(reply)

    def _fail_all(self, error: ConnectionLost) -> None:
        for awaited in self._awaited.values():
            if not awaited.waiter.done():
                awaited.waiter.set_exception(error)
        self._group.opaques.in_flight -= len(self._awaited)
        self._awaited.clear()
