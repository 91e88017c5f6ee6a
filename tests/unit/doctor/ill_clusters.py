"""Clusters that fall ill, and the names of what the doctor finds."""

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
    """Run a test with a cluster whose time is virtual."""

    async def main() -> None:
        async with AsyncCluster(virtual=True, **options) as cluster:
            await make(cluster)

    run_virtual(main())


async def report(cluster: AsyncCluster, subject: str, name: str | None = None, **options: Any) -> Report:
    """The report of a subject."""
    async with cluster.admin() as admin:
        return await diagnose(admin, subject, name, **options)


async def names(cluster: AsyncCluster, subject: str, name: str | None = None, **options: Any) -> set[str]:
    """The names of its findings."""
    return set((await report(cluster, subject, name, **options)).names)


async def finding(cluster: AsyncCluster, illness: str, subject: str, name: str | None = None) -> Finding:
    """One finding of it."""
    found = await report(cluster, subject, name)
    assert illness in found.names, found.names
    return next(one for one in found.findings if one.name == illness)


async def consume(_message: MessageExt) -> None:
    """A handler that is content with everything."""


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
        """Its time."""
        return self._clock.now_ms() + 3_600_000

    def monotonic(self) -> float:
        """Seconds that pass as elsewhere."""
        return self._clock.monotonic()
