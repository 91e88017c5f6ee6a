"""Simulated machines: a clock, a disk that may lose data, and a process that can die in any step and restart."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from tianzhou.testing.disk import ForgetfulDisk, PowerLostError
from tianzhou.testing.simulation.clocks import MachineClock
from tianzhou.testing.simulation.loop import SimulationLoop
from tianzhou.testing.simulation.network import Network
from tianzhou.testing.simulation.processes import SimulatedProcess

FIRST_PID = 1000


class MachineDisk(ForgetfulDisk):
    """The disk of one life of a machine's process; when it fails, the process dies in the middle of its step."""

    def __init__(self, root: Path, rng: Random, died: Callable[[], None]) -> None:
        super().__init__(root, rng)
        self._died = died

    def cut(self) -> None:
        """Kill the process now.

        Raises:
            PowerLostError: always.
        """
        self._died()
        raise PowerLostError


class Machine:
    """A computer of the cluster.

    Args:
        name: its name.
        address: its IP address.
        root: gets a folder for each of its lives.
        loop: event loop of its processes.
        network: the network of the cluster.
        rng: decides which data its disk keeps.
        forgets: whether its disk may lose data.

    Attributes:
        clock: its clock.
        process: the running process; None without one.
        disk: of the present life; None without a process, or when the disk loses no data.
        folder: files of the present, or next, life.
        on_death: called when the process has died.
    """

    def __init__(
        self,
        name: str,
        address: str,
        root: Path,
        loop: SimulationLoop,
        network: Network,
        rng: Random,
        *,
        forgets: bool = False,
    ) -> None:
        self.name = name
        self.address = address
        self.clock = MachineClock(loop, rng.randrange(-200, 200))
        self.process: SimulatedProcess | None = None
        self.disk: MachineDisk | None = None
        self.on_death: Callable[[], None] = lambda: None
        self._root = root / name
        self._loop = loop
        self._network = network
        self._rng = rng
        self._forgets = forgets
        self._lives = self._boots = 0
        self.dead_tasks: list[asyncio.Task[Any]] = []
        """Tasks of dead processes. This list prevents their collection, which would run their remaining cleanup."""
        self._main: asyncio.Task[None] | None = None
        self.folder = self._place()
        self.folder.mkdir(parents=True)

    def _place(self) -> Path:
        self._lives += 1
        return self._root / f"life-{self._lives}"

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Start a process.

        Args:
            main: its main coroutine function.
        """
        assert self.process is None, f"{self.name} runs already"
        self._network.plug_in(self)
        process = self.process = SimulatedProcess(self, FIRST_PID + self._lives, f"{self.name}-boot-{self._boots}")
        if self._forgets:
            self.disk = MachineDisk(self.folder, self._rng, lambda: self.die(power=True))
        task = process.context.run(lambda: self._loop.create_task(main(), name=f"{self.name} main"))
        # A task that waits forever would be collected without this reference.
        self._main = task
        return task

    def die(self, *, power: bool) -> None:
        """Kill the process in its present step; it writes, sends and runs nothing more.

        Args:
            power: whether the machine loses its power, with all data not synced.
        """
        process, self.process = self.process, None
        if process is None or process.ended:
            return
        process.ended = True
        disk, self.disk = self.disk, None
        if disk is not None:
            disk.forgets = power
            disk.lost = True
            target = self._place()
            disk.image(target)
            self.folder = target
        if power:
            self._boots += 1
        self._network.died(process, power=power)
        # Other pending objects are referenced by their waiters.
        self.dead_tasks += asyncio.all_tasks(self._loop)
        self.on_death()

    def freeze(self) -> None:
        """Stop the process as SIGSTOP does: it gets no steps, and its connections stay."""
        if self.process is not None and self.process.held is None:
            self.process.held = []

    def thaw(self) -> None:
        """Resume the stopped process."""
        if self.process is not None:
            self._loop.resume(self.process)

    def spare(self) -> None:
        """Cancel all faults that are set for later."""
        if self.process is not None:
            self.process.on_step = self.process.on_vote = None
        if self.disk is not None:
            self.disk.fail_at = self.disk.before_sync = None

    def empty(self) -> None:
        """Start the next life with an empty folder."""
        assert self.process is None, f"{self.name} runs"
        self.folder = self._place()
        self.folder.mkdir(parents=True)

    def exchange(self, source: Path) -> None:
        """Start the next life with a copy of another folder."""
        assert self.process is None, f"{self.name} runs"
        self.folder = self._place()
        shutil.copytree(source, self.folder)

    def stopped(self) -> None:
        """Record the normal end of the process; the machine stays up."""
        process, self.process = self.process, None
        if process is not None:
            process.ended = True
            self.disk = None
            self._network.died(process, power=False)
