"""Brokers that misbehave on purpose: refusals, lost replies, lost requests, dropped connections, slow answers.

A fault sits between a connection and the request's handler, until it is ended or has struck as often as it may.
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
"""Requests by which producers send."""
PULLS = frozenset(map(int, (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)))
"""Requests by which consumers get messages."""
SEND_BACKS = frozenset({int(RequestCode.CONSUMER_SEND_MSG_BACK)})
"""Requests by which consumers give back what they could not consume."""
COMMITS = frozenset({int(RequestCode.UPDATE_CONSUMER_OFFSET)})
"""Requests by which consumers store how far they are."""
ENDS = frozenset({int(RequestCode.END_TRANSACTION)})
"""Requests by which producers commit or roll back a transaction."""
EVERYTHING = frozenset(map(int, RequestCode))
"""All requests, heartbeats included."""


Strike: TypeAlias = "Callable[[Router, Connection, Command], Reply | Awaitable[Reply]]"
"""What happens to a request that a fault strikes."""


class Struck(TypedDict, total=False):
    """Requests that a fault strikes.

    Attributes:
        requests: their codes; by default those of sends.
        topic: only those about this topic.
        times: how many; None for all until the fault is ended.
    """

    requests: Collection[int]
    topic: str | None
    times: int | None


class Fault:
    """A fault in force; a context manager that ends it.

    Attributes:
        hits: how many requests it has struck.
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
        """No further request is struck; ending twice does nothing."""
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
    """Serve the request, act, and send nothing."""

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
    """The topic a request is about; that of a message which is sent back is its own."""
    header: Any = read_header(command)
    for name in ("origin_topic", "topic"):
        topic = getattr(header, name, None)
        if topic:
            return str(topic)
    return ""


class Faults:
    """The faults of one broker, or of several at once.

    Each method puts a fault into force and returns it; use it in a `with` block, or call its `end`, or `clear`. Which
    requests it strikes depends on `requests` (`SENDS`, `PULLS`, `COMMITS`, … of `tianzhou.testing`, or any collection
    of request codes), on `topic`, and on `times`, see `Struck`. When several would strike a request, the newest does.

    Args:
        parts: the faults of the brokers this one stands for; none for those of one broker.
    """

    def __init__(self, parts: Iterable[Faults] = ()) -> None:
        self._parts = list(parts) or [self]
        # Replaced, never changed: tests put faults into force in another thread than they strike in.
        self._active: tuple[Fault, ...] = ()

    def refuse(
        self,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "refused by the test",
        **struck: Unpack[Struck],
    ) -> Fault:
        """Answer with a code instead of serving.

        Args:
            code: the response code, see `tianzhou.wire.codes.ResponseCode`.
            remark: the text that goes with it.
            struck: which requests.
        """
        return Fault(self._parts, lambda _router, _connection, command: command.reply(int(code), remark), struck)

    def lose_requests(self, **struck: Unpack[Struck]) -> Fault:
        """Neither serve nor answer; the client waits until its time is up."""
        return Fault(self._parts, lambda *_: None, struck)

    def lose_replies(self, **struck: Unpack[Struck]) -> Fault:
        """Serve, but do not answer: the message is stored, and its producer does not know."""

        def strike(router: Router, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            reply = router.serve(connection, command)
            return _unanswered(reply) if inspect.isawaitable(reply) else None

        return Fault(self._parts, strike, struck)

    def drop_connections(self, *, served: bool = False, **struck: Unpack[Struck]) -> Fault:
        """Break the connection a request comes on.

        Args:
            served: whether the request is served before; its answer never leaves.
            struck: which requests.
        """

        def strike(router: Router, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
            reply = router.serve(connection, command) if served else None
            if inspect.isawaitable(reply):
                return _unanswered(reply, connection.abort)
            connection.abort()
            return None

        return Fault(self._parts, strike, struck)

    def answer_late(self, seconds: float, **struck: Unpack[Struck]) -> Fault:
        """Serve at once and answer so much later, in the cluster's time."""
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
        """The fault that strikes a request, None when it is to be served."""
        return next((fault for fault in self._active if fault._strikes(command)), None)


class FaultyRouter(Router):
    """A router whose requests pass the faults first. Once killed, it serves nobody.

    Args:
        router: serves what is not struck.
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
        """End every connection at once, and each one that comes yet."""
        self._killed = True
        for twin in self._twins:
            twin.kill()
        for connection in list(self._peers):
            connection.abort()

    def without(self, codes: Iterable[int]) -> Router:
        """See `Router.without`."""
        twin = FaultyRouter(self._router.without(codes), self._faults)
        self._twins.append(twin)
        return twin

    @property
    def fast_paths(self) -> dict[int, FastPath]:
        """As `Router.fast_paths`; while a fault is in force they leave all requests to this router."""

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
        """See `Router.serve`."""
        return self._served(connection, command, self._router.serve)

    def serve_late(self, connection: Connection, command: Command, waited_s: float) -> Reply | Awaitable[Reply]:
        """See `Router.serve_late`."""
        return self._served(connection, command, functools.partial(self._router.serve_late, waited_s=waited_s))

    def _served(self, connection: Connection, command: Command, serve: Processor) -> Reply | Awaitable[Reply]:
        if not self._admits(connection):
            return None
        fault = self._faults.striking(command) if self._faults._active else None
        return serve(connection, command) if fault is None else fault.strike(self._router, connection, command)
