"""Injected faults of brokers: refusals, lost replies, lost requests, dropped connections, slow replies.

A fault acts between a connection and the request's handler, until it is ended or has hit its number of requests.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack

from tianzhou.broker.router import Router
from tianzhou.chained_coroutines import ChainedCoroutine
from tianzhou.errors import ClientError
from tianzhou.remoting.connection import Connection, FastPath, Processor, Reply
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header

SENDS = frozenset(map(int, (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)))
"""Requests with which producers send messages."""
PULLS = frozenset(map(int, (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)))
"""Requests with which consumers pull messages."""
SEND_BACKS = frozenset({int(RequestCode.CONSUMER_SEND_MSG_BACK)})
"""Requests with which consumers send back messages that they could not consume."""
COMMITS = frozenset({int(RequestCode.UPDATE_CONSUMER_OFFSET)})
"""Requests with which consumers commit offsets."""
ENDS = frozenset({int(RequestCode.END_TRANSACTION)})
"""Requests with which producers commit or roll back a transaction."""
EVERYTHING = frozenset(map(int, RequestCode))
"""All requests, with heartbeats."""


Strike: TypeAlias = "Callable[[Router, Connection, Command], Reply | Awaitable[Reply]]"
"""The handling of a request that a fault hits."""


class Struck(TypedDict, total=False):
    """The requests that a fault hits.

    Attributes:
        requests: their codes; by default those of sends.
        topic: only requests for this topic.
        times: maximum number of requests; None for all until the fault is ended.
    """

    requests: Collection[int]
    topic: str | None
    times: int | None


class Fault:
    """A fault in force; a context manager that ends it.

    Attributes:
        hits: number of requests that it has hit.
    """

    def __init__(self, faults: Iterable[Faults], strike: Strike, struck: Struck) -> None:
        times = struck.get("times")
        if times is not None and times < 1:
            raise ClientError(f"a fault that strikes times={times}; give 1 or more, or leave it out for 'until ended'")
        self.hits = 0
        self.strike = strike
        self._codes = frozenset(map(int, struck.get("requests", SENDS)))
        self._topic = struck.get("topic")
        self._left = times
        self._faults = list(faults)
        for one in self._faults:
            one._active = (self, *one._active)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the fault; a second call has no effect."""
        for one in self._faults:
            one._active = tuple(fault for fault in one._active if fault is not self)

    def _strikes(self, command: Command) -> bool:
        if command.code not in self._codes:
            return False
        if self._topic is not None and _topic_of(command) != self._topic:
            return False
        self.hits += 1
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.end()
        return True


def _unanswered(reply: Awaitable[Reply], act: Callable[[], object] = lambda: None) -> Awaitable[Reply]:
    """Serve the request, act, and send no reply."""

    async def serve() -> Reply:
        await reply
        act()
        return None

    return ChainedCoroutine(serve(), reply)


def _later(seconds: float, reply: Reply | Awaitable[Reply]) -> Awaitable[Reply]:
    async def serve() -> Reply:
        answer = await reply if inspect.isawaitable(reply) else reply
        await asyncio.sleep(seconds)
        return answer

    return ChainedCoroutine(serve(), reply)


def _topic_of(command: Command) -> str:
    """Return the topic of a request; for a message that is sent back, its original topic."""
    header: Any = read_header(command)
    for name in ("origin_topic", "topic"):
        topic = getattr(header, name, None)
        if topic:
            return str(topic)
    return ""


class Faults:
    """The faults of one broker, or of several at once.

    Each method starts a fault and returns it. Use the fault in a `with` block, or call its `end`, or `clear`. The fault
    hits requests by `requests` (`SENDS`, `PULLS`, `COMMITS`, … of `tianzhou.testing`, or any collection of request
    codes), by `topic` and by `times`, see `Struck`. When several faults match a request, the newest one hits it.

    Args:
        parts: the faults of several brokers; none for the faults of one broker.
    """

    def __init__(self, parts: Iterable[Faults] = ()) -> None:
        self._parts = list(parts) or [self]
        # Replaced, never changed in place, because tests start faults in another thread than that of the requests.
        self._active: tuple[Fault, ...] = ()

    def refuse(
        self,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "refused by the test",
        **struck: Unpack[Struck],
    ) -> Fault:
        """Reply with a code and do not serve the request.

        Args:
            code: the response code, see `tianzhou.wire.codes.ResponseCode`.
            remark: the text of the response.
            struck: selects the requests.
        """
        return Fault(self._parts, lambda _router, _connection, command: command.reply(int(code), remark), struck)

    def lose_requests(self, **struck: Unpack[Struck]) -> Fault:
        """Neither serve nor reply; the client waits until its timeout."""
        return Fault(self._parts, lambda *_: None, struck)

    def lose_replies(self, **struck: Unpack[Struck]) -> Fault:
        """Serve, but send no reply: the message is stored, and its producer gets no confirmation."""

        def strike(router: Router, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            reply = router.serve(connection, command)
            return _unanswered(reply) if inspect.isawaitable(reply) else None

        return Fault(self._parts, strike, struck)

    def drop_connections(self, *, served: bool = False, **struck: Unpack[Struck]) -> Fault:
        """Break the connection of a request.

        Args:
            served: whether the request is served first; its reply is not sent.
            struck: selects the requests.
        """

        def strike(router: Router, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            reply = router.serve(connection, command) if served else None
            if inspect.isawaitable(reply):
                return _unanswered(reply, connection.abort)
            connection.abort()
            return None

        return Fault(self._parts, strike, struck)

    def answer_late(self, seconds: float, **struck: Unpack[Struck]) -> Fault:
        """Serve at once and reply after a delay in seconds, in the cluster's time."""
        return Fault(
            self._parts,
            lambda router, connection, command: _later(seconds, router.serve(connection, command)),
            struck,
        )

    def clear(self) -> None:
        """End all faults."""
        for part in self._parts:
            for fault in part._active:
                fault.end()

    def striking(self, command: Command) -> Fault | None:
        """Return the fault that hits a request; None for a request to serve."""
        return next((fault for fault in self._active if fault._strikes(command)), None)


class FaultyRouter(Router):
    """A router whose requests pass through the faults first. Once killed, it serves no request.

    Args:
        router: serves the requests that no fault hits.
        faults: see `Faults`.
    """

    def __init__(self, router: Router, faults: Faults) -> None:
        super().__init__()
        self._router = router
        self._faults = faults
        self._peers: set[Connection] = set()
        self._twins: list[FaultyRouter] = []
        self._killed = False

    def kill(self) -> None:
        """Break every connection now, and each later one."""
        self._killed = True
        for twin in self._twins:
            twin.kill()
        for connection in list(self._peers):
            connection.abort()

    def without(self, codes: Iterable[int]) -> Router:
        """Return a router without some request codes; see `Router.without`."""
        twin = FaultyRouter(self._router.without(codes), self._faults)
        self._twins.append(twin)
        return twin

    @property
    def fast_paths(self) -> dict[int, FastPath]:
        """The fast paths of `Router.fast_paths`; while a fault is in force they leave all requests to this router."""

        def unless_faulty(serve: FastPath) -> FastPath:
            def serve_unless_faulty(
                connection: Connection, buffer: bytearray, start: int, end: int
            ) -> tuple[int, list[bytes]]:
                return (start, []) if self._faults._active else serve(connection, buffer, start, end)

            return serve_unless_faulty

        return {code: unless_faulty(serve) for code, serve in self._router.fast_paths.items()}

    def _admits(self, connection: Connection) -> bool:
        if self._killed:
            connection.abort()
        elif connection not in self._peers:
            self._peers.add(connection)
            connection.on_close(self._peers.discard)
        return not self._killed

    def serve(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Serve a request; see `Router.serve`."""
        return self._served(connection, command, self._router.serve)

    def serve_late(self, connection: Connection, command: Command, waited_s: float) -> Reply | Awaitable[Reply]:
        """Serve a late request; see `Router.serve_late`."""
        return self._served(connection, command, functools.partial(self._router.serve_late, waited_s=waited_s))

    def _served(self, connection: Connection, command: Command, serve: Processor) -> Reply | Awaitable[Reply]:
        if not self._admits(connection):
            return None
        fault = self._faults.striking(command) if self._faults._active else None
        return serve(connection, command) if fault is None else fault.strike(self._router, connection, command)
