"""Notices to the service manager that started this process: systemd's `Type=notify` protocol, `sd_notify(3)`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Final, Self

SOCKET_ENV: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"
_INTERVAL_ENV: Final = "WATCHDOG_USEC"
_PROCESS_ENV: Final = "WATCHDOG_PID"


class ServiceManager:
    """Says to the service manager what this process is doing; nothing happens when there is none.

    Args:
        address: path of its datagram socket, or with `@` in front a name in Linux's abstract space; empty: none.
        watchdog_s: seconds after which a process that has not said that it is alive is ended; 0 where nobody waits.
    """

    def __init__(self, address: str, watchdog_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._next: asyncio.TimerHandle | None = None

    @classmethod
    def of_environment(cls) -> Self:
        """The one that the environment names. Child processes must not speak for this one: the names are taken out."""
        address, interval, pid = (os.environ.pop(name, "") for name in (SOCKET_ENV, _INTERVAL_ENV, _PROCESS_ENV))
        watched = interval.isascii() and interval.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(interval) / 1e6 if watched else 0.0)

    def watch(self) -> None:
        """Say from now on that this process is alive, as often as the loop turns in time, until `unwatch`."""
        if self._watchdog_s > 0:
            self.notify(ALIVE)
            self._next = asyncio.get_running_loop().call_later(self._watchdog_s / 2, self.watch)

    def unwatch(self) -> None:
        """End what `watch` began."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def notify(self, *assignments: str) -> None:
        """Send a notice.

        Args:
            assignments: as in `READY=1` and `STATUS=text`.
        """
        if not self._address:
            return
        # Who does not listen is not to end a server, nor to hold it up.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(assignments).encode(), self._address)
