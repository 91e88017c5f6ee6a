"""What runs where: each callback of the loop belongs to a process, and one that has died runs nothing any more."""

from __future__ import annotations

from asyncio import Handle
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Protocol

PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("tianzhou_simulated_process", default=None)
"""The process that the running code belongs to; tasks and callbacks inherit it."""


class Host(Protocol):
    """The machine a process runs on."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def address(self) -> str:
        """Its IP address."""
        ...


class SimulatedProcess:
    """One life of a program on a simulated machine.

    Args:
        host: the machine.
        pid: its number there.
        boot: the life of the machine, as `/proc/sys/kernel/random/boot_id` names it.

    Attributes:
        ended: whether it has died; none of its callbacks run after that, not even what a `finally` would do.
        steps: callbacks it has run.
        held: callbacks that wait while the process is stopped; None while it runs.
        on_vote: called with the id of the member of a group that this one has just given its vote; None for nobody.
        on_step: called before each callback; None for nobody.
    """

    def __init__(self, host: Host, pid: int, boot: str) -> None:
        self.host = host
        self.pid = pid
        self.boot = boot
        self.ended = False
        self.steps = 0
        self.held: list[Handle] | None = None
        self.on_vote: Callable[[str], None] | None = None
        self.on_step: Callable[[], None] | None = None
        self.context = self._own_context()

    def _own_context(self) -> Context:
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def __repr__(self) -> str:
        return f"{self.host.name}#{self.pid}"


def here() -> SimulatedProcess | None:
    """The process whose code runs now; None for who looks at the cluster from outside."""
    return PROCESS.get()
