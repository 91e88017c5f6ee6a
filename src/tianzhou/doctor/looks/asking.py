"""Requests to many servers: a few at a time, each only once, and none to an unreachable server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from tianzhou.admin import Admin
from tianzhou.doctor.findings import Unanswered
from tianzhou.errors import ConnectFailed, RemotingError, TianzhouError
from tianzhou.supervision import start_awaited

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")

AT_ONCE: Final = 16
"""Maximum number of concurrent requests."""


class Asking:
    """Sends requests to servers, and records the requests without an answer.

    Args:
        admin: sends the requests; its `timeout_ms` bounds each request.

    Attributes:
        unanswered: the requests without an answer.
    """

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.unanswered: list[Unanswered] = []
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._unreachable: dict[str, str] = {}
        self._known: dict[tuple[str, str], Any] = {}

    @property
    def now_ms(self) -> int:
        """Time of this machine's clock, in ms."""
        return self.admin.instance.clock.now_ms()

    def note(self, server: str, question: str, why: str) -> None:
        """Record a request without an answer."""
        self.unanswered.append(Unanswered(server, question, why))

    def why(self, server: str, question: str) -> str:
        """Return why a request was not answered; empty when it was answered."""
        return next((one.why for one in self.unanswered if (one.server, one.question) == (server, question)), "")

    async def in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await `work` when fewer than `AT_ONCE` requests are running, and return its result. `work` raises nothing."""
        async with self._turns:
            return await work()

    def unreachable(self, server: str, why: str) -> None:
        """Send no more requests to a server that did not answer a request outside of this object."""
        self._unreachable[server] = why

    async def ask(
        self, server: str, question: str, work: Callable[[], Awaitable[T]], default: U, *, relayed: bool = False
    ) -> T | U:
        """Return the answer of a server, or the default.

        Args:
            server: the server's address.
            question: what is requested, in words.
            work: sends the request and returns the answer.
            default: result when there is no answer.
            relayed: whether the server forwards the request to a client, so that a missing reply does not mean a dead
                server.
        """
        async with self._turns:
            if (why := self._unreachable.get(server)) is not None:
                self.note(server, question, why)
                return default
            try:
                return await work()
            except TianzhouError as error:
                if isinstance(error, ConnectFailed) or (isinstance(error, RemotingError) and not relayed):
                    self._unreachable[server] = str(error)
                self.note(server, question, str(error))
                return default

    async def once(self, server: str, question: str, work: Callable[[], Awaitable[T]], default: U) -> T | U:
        """Send a request as `ask` does, and return the cached answer when it is repeated."""
        key = server, question
        if key not in self._known:
            self._known[key] = start_awaited(self.ask(server, question, work, default))
        found: T | U = await self._known[key]
        return found

    async def each(self, over: Iterable[R], work: Callable[[R], Awaitable[T]]) -> list[T]:
        """Return the results of all calls of `work`, in the order of `over`. `work` raises nothing."""
        return list(await asyncio.gather(*(work(one) for one in over)))
