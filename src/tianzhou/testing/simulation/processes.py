"""Simulated processes: each callback of the loop belongs to one, and a dead process runs no callbacks."""

from __future__ import annotations

from asyncio import Handle
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Protocol

PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("tianzhou_simulated_process", default=None)
"""The process of the running code; tasks and callbacks inherit it."""


class Host(Protocol):
    """The machine of a process."""

    @property
    def name(self) -> str:
        """Name of the machine."""
        ...

    @property
    def address(self) -> str:
        """Its IP address."""
        ...


class SimulatedProcess:
    """One life of a program on a simulated machine.

    Args:
        host: the machine.
        pid: its process number there.
        boot: id of the machine's life, as in `/proc/sys/kernel/random/boot_id`.

    Attributes:
        ended: whether it has died; none of its callbacks run after that, not even a `finally` block.
        steps: number of callbacks run.
        held: callbacks that wait while the process is stopped; None while it runs.
        on_vote: called with the id of the group's member that this one has just voted for; None without a callback.
        on_step: called before each callback; None without one.
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
    """Return the process whose code runs now; None for code outside of the cluster."""
    return PROCESS.get()
