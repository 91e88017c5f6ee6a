"""A server's notifications to systemd, and its operation without a listener."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from pathlib import Path

import pytest

from tianzhou.cli.serving.service_manager import READY, SOCKET_ENV, ServiceManager

LIMIT_S = 20.0


def address(kind: str, folder: Path) -> str:
    return f"@tianzhou-{uuid.uuid4()}" if kind == "abstract" else str(folder / "notify")


@pytest.mark.parametrize(
    "kind",
    ["path", pytest.param("abstract", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux has them"))],
)
def test_a_notice_reaches_the_socket_that_the_environment_names(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"@tianzhou-{uuid.uuid4()}" if kind == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(LIMIT_S)
        systemd.bind(where.replace("@", "\0"))
        monkeypatch.setenv(SOCKET_ENV, where)
        manager = ServiceManager.of_environment()
        assert SOCKET_ENV not in os.environ, "children would speak for the server"
        manager.notify(READY, "STATUS=serving")
        assert systemd.recv(4096) == b"READY=1\nSTATUS=serving"


@pytest.mark.parametrize(
    ("interval", "pid", "seconds"),
    [
        ("60000000", None, 60.0), ("60000000", "own", 60.0), ("60000000", "1", 0.0), ("", None, 0.0),
        ("soon", None, 0.0), ("-5", None, 0.0),
    ],
)  # fmt: skip
def test_the_watchdog_is_that_of_this_process(
    interval: str, pid: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", interval)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    assert ServiceManager.of_environment()._watchdog_s == seconds
    assert not {"WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()


@pytest.mark.parametrize("where", ["", "/nowhere/at/all"])
def test_a_server_without_a_service_manager_that_listens_goes_on(where: str) -> None:
    ServiceManager(where).notify("READY=1")
