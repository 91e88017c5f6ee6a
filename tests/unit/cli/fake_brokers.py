"""Supervised fake broker processes whose end a test decides, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tianzhou.cli.brokers.child import BrokerOrder, BrokerReady, Failed
from tianzhou.cli.brokers.kinds import BrokersKind, Several
from tianzhou.cli.brokers.supervisor import BrokersSupervisor
from tianzhou.embedded import EmbeddedSettings
from tianzhou.testing.clock import VirtualClock, run


@dataclass
class FakeProcess:
    """A process that ends when the test ends it."""

    order: BrokerOrder
    pid: int
    says: BrokerReady | Failed | None
    code: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    stubborn: bool = False
    asked: list[str] = field(default_factory=list)

    async def answer(self) -> BrokerReady | Failed | None:
        if self.says is None or isinstance(self.says, Failed):
            self.end(1 if self.says is None else self.says.code)
        return self.says

    async def wait(self) -> int:
        return await asyncio.shield(self.code)

    def end(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)

    def terminate(self) -> None:
        self.asked.append("terminate")
        if not self.stubborn:
            self.end(0)

    def kill(self) -> None:
        self.asked.append("kill")
        self.end(-9)


class Brokers:
    """Supervised fake processes in virtual time."""

    def __init__(self, folder: Path, clock: VirtualClock, count: int = 2, kind: BrokersKind | None = None) -> None:
        self.started: list[FakeProcess] = []
        self.clock = clock
        self.says: Callable[[BrokerOrder], BrokerReady | Failed | None] = lambda order: BrokerReady(
            f"127.0.0.1:{order.port}", "pure"
        )
        self.supervisor = BrokersSupervisor(
            EmbeddedSettings(folder / "data", namesrv_port=0, broker_port=0),
            kind or Several.of(count),
            clock=clock,
            start=self.launch,
        )

    async def launch(self, order: BrokerOrder) -> FakeProcess:
        self.started.append(FakeProcess(order, 100 + len(self.started), self.says(order)))
        return self.started[-1]

    def last(self, name: str) -> FakeProcess:
        return next(one for one in reversed(self.started) if one.order.name == name)

    def starts(self, name: str) -> int:
        return sum(one.order.name == name for one in self.started)


def supervised(
    folder: Path, work: Callable[[Brokers], Coroutine[Any, Any, None]], count: int = 2, kind: BrokersKind | None = None
) -> Brokers:
    clock = VirtualClock()

    async def main() -> Brokers:
        brokers = Brokers(folder, clock, count, kind)
        async with brokers.supervisor:
            await work(brokers)
        return brokers

    return run(main(), clock)
