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
    """A sender of notices to the service manager. Without a manager it does nothing.

    Args:
        address: path of the manager's datagram socket, or with a leading `@` a name in Linux's abstract space; empty
            for none.
        watchdog_s: seconds without a sign of life after which the manager ends the process; 0 for no watchdog.
    """

    def __init__(self, address: str, watchdog_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._next: asyncio.TimerHandle | None = None

    @classmethod
    def of_environment(cls) -> Self:
        """Return the service manager of the environment.

        The variables are removed, because child processes must not send notices for this process.
        """
        address, interval, pid = (os.environ.pop(name, "") for name in (SOCKET_ENV, _INTERVAL_ENV, _PROCESS_ENV))
        watched = interval.isascii() and interval.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(interval) / 1e6 if watched else 0.0)

    def watch(self) -> None:
        """Send signs of life at half the watchdog's interval until `unwatch`. A blocked loop sends none."""
        if self._watchdog_s > 0:
            self.notify(ALIVE)
            self._next = asyncio.get_running_loop().call_later(self._watchdog_s / 2, self.watch)

    def unwatch(self) -> None:
        """Stop the signs of life of `watch`."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def notify(self, *assignments: str) -> None:
        """Send a notice to the manager.

        Args:
            assignments: texts like `READY=1` and `STATUS=text`.
        """
        if not self._address:
            return
        # A manager that does not listen must neither stop nor delay the server.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(assignments).encode(), self._address)
