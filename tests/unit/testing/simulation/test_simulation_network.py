"""The network of a simulated cluster: delays, cuts, and the effect of a death at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tianzhou.testing.simulation.loop import SimulationLoop, StuckError
from tianzhou.testing.simulation.machines import Machine
from tianzhou.testing.simulation.network import Network


class Ear(asyncio.Protocol):
    """Records the received bytes and their times."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.heard: list[tuple[float, bytes]] = []
        self.lost: list[Exception | None] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.heard.append((self._world.loop.time(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    @property
    def bytes(self) -> bytes:
        return b"".join(data for _, data in self.heard)


class World:
    """A loop, a network and two machines."""

    def __init__(self, root: Path, seed: int = 1) -> None:
        rng = Random(seed)
        self.loop = SimulationLoop(rng)
        self.notes: list[str] = []
        self.network = self.loop.network = Network(self.loop, rng, self.notes.append)
        self.server, self.client = (
            Machine(name, address, root, self.loop, self.network, rng)
            for name, address in (("server", "10.0.0.1"), ("client", "10.0.0.2"))
        )
        self.ears: list[Ear] = []
        self.near = Ear(self)

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            self.loop.run_until_complete(main)
        finally:
            self.loop.abandon([*self.server.dead_tasks, *self.client.dead_tasks])
            self.loop.close()

    async def serve(self) -> None:
        def made() -> Ear:
            self.ears.append(Ear(self))
            return self.ears[-1]

        await self.loop.create_server(made, "10.0.0.1", 80)
        await self.loop.create_future()

    async def call(self) -> None:
        await self.loop.create_connection(lambda: self.near, "10.0.0.1", 80)
        await self.loop.create_future()

    async def connected(self) -> None:
        self.server.start(self.serve)
        await asyncio.sleep(0.1)
        self.client.start(self.call)
        await asyncio.sleep(1)
        assert self.near.transport is not None

    def say(self, *texts: bytes) -> None:
        assert self.near.transport is not None
        for text in texts:
            self.near.transport.write(text)


Play = Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        world = World(tmp_path)
        world.run(story(world))

    return run


def test_bytes_arrive_later_and_in_order(play: Play) -> None:
    async def story(world: World) -> None:
        await world.connected()
        began_s = world.loop.time()
        world.say(*(b"%d," % number for number in range(200)))
        assert world.ears[0].heard == []
        await asyncio.sleep(5)
        assert world.ears[0].bytes == b"".join(b"%d," % number for number in range(200))
        assert world.ears[0].heard[0][0] > began_s

    play(story)


def test_a_cut_holds_back_what_was_sent_until_it_heals(play: Play) -> None:
    async def story(world: World) -> None:
        await world.connected()
        world.network.halves(["10.0.0.1"], ["10.0.0.2"])
        world.say(b"late")
        await asyncio.sleep(10)
        assert world.ears[0].heard == []
        assert world.near.lost == []
        world.network.heal()
        await asyncio.sleep(1)
        # Or the connection was dropped meanwhile, and both ends know it.
        assert world.ears[0].bytes == b"late" or (world.ears[0].lost and world.near.lost)

    play(story)


def test_a_one_way_cut_lets_the_other_way_through(play: Play) -> None:
    async def story(world: World) -> None:
        await world.connected()
        world.network.cut("10.0.0.2", "10.0.0.1")
        world.say(b"unheard")
        answer = world.ears[0].transport
        assert answer is not None
        answer.write(b"heard")
        await asyncio.sleep(1)
        assert (world.ears[0].bytes, world.near.bytes) == (b"", b"heard")

    play(story)


def test_nobody_answers_over_a_cut(play: Play) -> None:
    async def story(world: World) -> None:
        world.server.start(world.serve)
        await asyncio.sleep(0.1)
        world.network.cut("10.0.0.1", "10.0.0.2")
        dialled = world.client.start(world.call)
        await asyncio.sleep(61)
        assert isinstance(dialled.exception(), TimeoutError)

    play(story)


def test_a_process_that_dies_closes_its_connections(play: Play) -> None:
    async def story(world: World) -> None:
        await world.connected()
        world.server.die(power=False)
        await asyncio.sleep(1)
        assert world.near.lost == [None]
        world.client.die(power=False)
        refused = world.client.start(world.call)
        await asyncio.sleep(1)
        assert isinstance(refused.exception(), ConnectionRefusedError)

    play(story)


def test_a_machine_without_power_says_nothing_until_it_is_up_again(play: Play) -> None:
    async def story(world: World) -> None:
        await world.connected()
        world.server.die(power=True)
        world.say(b"anybody?")
        await asyncio.sleep(50)
        assert world.near.lost == []
        world.server.start(world.serve)
        await asyncio.sleep(5)
        [error] = world.near.lost
        assert isinstance(error, ConnectionResetError)

    play(story)


def test_nothing_that_belongs_to_a_dead_process_happens(play: Play) -> None:
    done: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(1)
            done.append("later")
        finally:
            done.append("finally")

    async def story(world: World) -> None:
        world.server.start(main)
        await asyncio.sleep(0.5)
        world.server.die(power=False)
        await asyncio.sleep(5)
        assert done == []

    play(story)


def test_a_loop_on_which_nothing_can_happen_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def forever() -> None:
        await world.loop.create_future()

    with pytest.raises(StuckError, match="nothing is left to happen"):
        world.run(forever())


def test_a_stopped_process_gets_what_came_meanwhile_when_it_goes_on(play: Play) -> None:
    async def story(world: World) -> None:
        await world.connected()
        world.server.freeze()
        world.say(b"one", b"two")
        await asyncio.sleep(10)
        assert (world.ears[0].heard, world.near.lost) == ([], [])
        world.server.thaw()
        await asyncio.sleep(0.1)
        assert world.ears[0].bytes == b"onetwo"

    play(story)


def test_a_stopped_process_that_dies_does_nothing_more(play: Play) -> None:
    async def story(world: World) -> None:
        await world.connected()
        world.server.freeze()
        world.say(b"one")
        await asyncio.sleep(1)
        world.server.die(power=False)
        world.server.thaw()
        await asyncio.sleep(1)
        assert world.ears[0].heard == []
        assert world.near.lost

    play(story)
