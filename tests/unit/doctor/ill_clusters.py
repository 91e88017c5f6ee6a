"""Clusters with faults, and the names of the doctor's findings."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tianzhou.clock import Clock
from tianzhou.doctor import Finding, Report, diagnose
from tianzhou.model import MessageExt
from tianzhou.testing import AsyncCluster, run_virtual


def ill(make: Callable[[AsyncCluster], Awaitable[None]], **options: Any) -> None:
    """Run a test with a cluster in virtual time."""

    async def main() -> None:
        async with AsyncCluster(virtual=True, **options) as cluster:
            await make(cluster)

    run_virtual(main())


async def report(cluster: AsyncCluster, subject: str, name: str | None = None, **options: Any) -> Report:
    """Return the doctor's report on a subject."""
    async with cluster.admin() as admin:
        return await diagnose(admin, subject, name, **options)


async def names(cluster: AsyncCluster, subject: str, name: str | None = None, **options: Any) -> set[str]:
    """Return the names of the report's findings."""
    return set((await report(cluster, subject, name, **options)).names)


async def finding(cluster: AsyncCluster, illness: str, subject: str, name: str | None = None) -> Finding:
    """Return one finding of the report."""
    found = await report(cluster, subject, name)
    assert illness in found.names, found.names
    return next(one for one in found.findings if one.name == illness)


async def consume(_message: MessageExt) -> None:
    """Handle a message successfully."""


def named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have a host name lead to this machine's own address: it reads as that of another one."""
    real = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == name else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


class Ahead:
    """A clock that is an hour ahead of another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """Return the time in ms since the epoch, an hour ahead of the clock."""
        return self._clock.now_ms() + 3_600_000

    def monotonic(self) -> float:
        """Return monotonic seconds that pass as usual."""
        return self._clock.monotonic()
