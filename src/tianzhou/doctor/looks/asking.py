"""Questions to many servers: a few at a time, none twice, and none to a server that cannot be reached."""

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
"""Questions under way at the same time."""


class Asking:
    """Asks, and notes what was not answered.

    Args:
        admin: carries the questions; its `timeout_ms` bounds each.

    Attributes:
        unanswered: what was not.
    """

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.unanswered: list[Unanswered] = []
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._unreachable: dict[str, str] = {}
        self._known: dict[tuple[str, str], Any] = {}

    @property
    def now_ms(self) -> int:
        """The clock of who asks."""
        return self.admin.instance.clock.now_ms()

    def note(self, server: str, question: str, why: str) -> None:
        """Note a question without an answer."""
        self.unanswered.append(Unanswered(server, question, why))

    def why(self, server: str, question: str) -> str:
        """Why a question was not answered; empty when it was."""
        return next((one.why for one in self.unanswered if (one.server, one.question) == (server, question)), "")

    async def in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """What work gives that asks by itself and raises nothing, when its turn has come."""
        async with self._turns:
            return await work()

    def unreachable(self, server: str, why: str) -> None:
        """Ask a server nothing more, as it did not answer somebody else."""
        self._unreachable[server] = why

    async def ask(
        self, server: str, question: str, work: Callable[[], Awaitable[T]], default: U, *, relayed: bool = False
    ) -> T | U:
        """The answer of a server, or the default.

        Args:
            server: its address.
            question: what is asked for, in words.
            work: asks.
            default: what there is without an answer.
            relayed: whether it is somebody else who answers, so that silence says nothing about the server.
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
        """`ask`, and the same answer whenever the question is repeated."""
        key = server, question
        if key not in self._known:
            self._known[key] = start_awaited(self.ask(server, question, work, default))
        found: T | U = await self._known[key]
        return found

    async def each(self, over: Iterable[R], work: Callable[[R], Awaitable[T]]) -> list[T]:
        """The results of all, in their order; `work` raises nothing."""
        return list(await asyncio.gather(*(work(one) for one in over)))
