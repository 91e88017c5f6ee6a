"""What a server says to systemd, and that it goes on where nobody listens."""

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


@pytest.mark.parametrize("where", ["", "/nowhere/at/all"])
def test_a_server_without_a_service_manager_that_listens_goes_on(where: str) -> None:
    ServiceManager(where).notify("READY=1")
