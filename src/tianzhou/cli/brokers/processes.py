"""Broker processes as seen from the one that starts them."""

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
        """Its answer when it serves or cannot start; None when it ended without one."""

    async def wait(self) -> int:
        """Wait for its end; returns the exit code, -N for signal N."""

    def terminate(self) -> None:
        """Have it end in order."""

    def kill(self) -> None:
        """End it at once; may be called in any thread."""


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
    """Start a process. Its standard input is a pipe that closes when this process is gone, in whatever way."""
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
            # A Ctrl-C at the terminal comes to this process alone, which then ends the others in order.
            start_new_session=True,
        )
    )


def ended_how(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
