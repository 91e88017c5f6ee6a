"""Notifications of server processes to systemd: ready, alive, stopping."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Tianzhou

LIMIT_S = 30.0
ALIVE = b"WATCHDOG=1"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield the socket of a unit with `Type=notify` and `WatchdogSec=0.2`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        yield listening


def until_silence(systemd: socket.socket) -> Iterator[bytes]:
    systemd.settimeout(1.0)
    with contextlib.suppress(TimeoutError):
        for _ in range(100):
            yield systemd.recv(4096)
        raise AssertionError("it went on")


@pytest.mark.parametrize("command", ["namesrv", "broker", "serve"])
def test_a_server_serves_is_alive_and_stops(command: str, tmp_path: Path, systemd: socket.socket) -> None:
    if command == "namesrv":
        arguments: list[object] = ["namesrv", "--port", 0]
    elif command == "serve":
        arguments = ["serve", "--data", tmp_path / "data", "--namesrv-port", 0, "--broker-port", 0]
    else:
        conf = tmp_path / "broker.conf"
        conf.write_text(f"listenPort=0\nbrokerIP1=127.0.0.1\nstorePathRootDir={tmp_path / 'store'}\n")
        arguments = ["broker", "-c", conf]
    with Tianzhou(tmp_path, *arguments) as server:
        assert systemd.recv(4096) == b"STATUS=starting"
        assert systemd.recv(4096) == b"READY=1\nSTATUS=serving"
        for _ in range(3):
            assert systemd.recv(4096) == ALIVE
        # A stopped process is not alive, although it still exists.
        os.kill(server.pid, signal.SIGSTOP)
        assert set(until_silence(systemd)) <= {ALIVE}
        os.kill(server.pid, signal.SIGCONT)
        systemd.settimeout(LIMIT_S)
        assert systemd.recv(4096) == ALIVE
        server.process.send_signal(signal.SIGTERM)
        while (said := systemd.recv(4096)) == ALIVE:
            pass
        assert said == b"STOPPING=1\nSTATUS=stopping"
        assert server.process.wait(LIMIT_S) == 0
