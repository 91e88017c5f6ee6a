"""Broker processes, as their parent controls them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from tianzhou.cli.brokers.child import BrokerOrder, BrokerReady, Failed, answer_of


class BrokerProcess(Protocol):
    """A broker process that was started.

    Attributes:
        pid: its process id.
    """

    pid: int

    async def answer(self) -> BrokerReady | Failed | None:
        """Return the answer when the process serves or cannot start; None if it ended without an answer."""

    async def wait(self) -> int:
        """Wait for the end. Return the exit code, -N for signal N."""

    def terminate(self) -> None:
        """Request a clean end."""

    def kill(self) -> None:
        """Kill the process. May be called in any thread."""


Launch = Callable[[BrokerOrder], Awaitable[BrokerProcess]]
_ROOT = str(Path(__file__).resolve().parents[3])


class _Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process

    async def answer(self) -> BrokerReady | Failed | None:
        assert self._process.stdout is not None
        return answer_of(await self._process.stdout.readline())

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


async def launch(order: BrokerOrder) -> BrokerProcess:
    """Start a process. Its standard input is a pipe that closes when this process ends for any reason."""
    path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    return _Process(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tianzhou.cli.brokers.child",
            order.text(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **order.environment(), "PYTHONPATH": path},
            # Ctrl-C at the terminal must reach this process only, which then ends the others cleanly.
            start_new_session=True,
        )
    )


def ended_how(code: int) -> str:
    """Return text for the end of a process."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
