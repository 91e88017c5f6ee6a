"""Notices to the service manager that started this process: systemd's `Type=notify` protocol, `sd_notify(3)`."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final, Self

SOCKET_ENV: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


class ServiceManager:
    """Says to the service manager what this process is doing; nothing happens when there is none.

    Args:
        address: path of its datagram socket, or with `@` in front a name in Linux's abstract space; empty: none.
    """

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address

    @classmethod
    def of_environment(cls) -> Self:
        """The one that the environment names. Child processes must not speak for this one: the name is taken out."""
        return cls(os.environ.pop(SOCKET_ENV, ""))

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
