"""A connection over a transport of memory, with a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from tianzhou.remoting.connection import Connection
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode, split

Processor = Callable[[Connection, Command], Any]


class Bench:
    """A connection, its output, and its clock; `run_bench` closes it."""

    made: ClassVar[list[Bench]] = []

    def __init__(self, processor: Processor, **limits: Any) -> None:
        Bench.made.append(self)
        self.clock = VirtualClock()
        self.group = ConnectionGroup(processor, clock=self.clock, **limits)
        self.group.start()
        self.connection = Connection(self.group)
        self.transport = MemoryTransport(self.connection, ("10.1.2.3", 4567))

    def again(self) -> MemoryTransport:
        """Return another connection of the same host."""
        return MemoryTransport(Connection(self.group), ("10.1.2.3", 4568))

    def feed(self, *commands: Command) -> int:
        return self.transport.feed(b"".join(encode(c) for c in commands))

    def sent(self) -> list[Command]:
        data, self.transport.written = bytes(self.transport.written), bytearray()
        return split(data, 0, len(data), MAX_FRAME)[0]


def run_bench(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in virtual time, and close its benches."""

    async def closing() -> None:
        Bench.made.clear()
        try:
            await test
        finally:
            while Bench.made:
                await Bench.made.pop().group.close()

    run(closing())


def echo(_connection: Connection, command: Command) -> Command:
    return command.reply(0, remark=str(command.opaque))


def requests(count: int, **changes: Any) -> list[Command]:
    return [Command(10, opaque=i, **changes) for i in range(count)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
