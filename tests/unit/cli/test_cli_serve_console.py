"""`serve --console`: messages before the first process starts."""

from __future__ import annotations

import importlib.util
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from processes import Tianzhou, serve
from typer.testing import CliRunner

from tianzhou.cli.app import whole_app
from tianzhou.cli.brokers.console_process import DEFAULT_PORT, Beside, ConsoleProcess, port_of, start_beside
from tianzhou.errors import ConfigError
from tianzhou.remoting.tls import TlsSettings


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Patch the set of installed packages; a test may change it."""
    found = {"nicegui", "argon2"}
    real = importlib.util.find_spec

    def find_spec(name: str, *more: Any) -> Any:
        return (object() if name in found else None) if name in ("nicegui", "argon2") else real(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return found


@pytest.mark.parametrize(
    ("console", "port", "is_at"), [(False, None, None), (True, None, DEFAULT_PORT), (False, 0, 0), (True, 9000, 9000)]
)
def test_ports(installed: set[str], console: bool, port: int | None, is_at: int | None) -> None:
    assert port_of(console, port) == is_at


def test_a_port_there_cannot_be(installed: set[str]) -> None:
    with pytest.raises(ConfigError, match="--console-port"):
        port_of(True, 70_000)


def test_without_its_packages_nothing_is_started(installed: set[str], tmp_path: Path) -> None:
    installed.clear()
    result = CliRunner().invoke(whole_app(), ["serve", "--data", str(tmp_path / "data"), "--console"])
    assert isinstance(result.exception, ConfigError)
    remedy = "pip install 'tianzhou[console]'; an image with it is built by --target console"
    assert str(result.exception) == f"--console needs nicegui and argon2: {remedy}"
    assert not (tmp_path / "data").exists()


async def test_without_a_console_the_ready_line_is_as_it_was(tmp_path: Path) -> None:
    nothing = await start_beside(None, None, tmp_path, TlsSettings())
    assert nothing.fields == {}
    await nothing.stop()


def test_the_ready_line_has_its_address() -> None:
    console = ConsoleProcess("a:1", 0, Path("data/console"))
    console.url, console.pid = "http://127.0.0.1:1", 7
    beside = Beside(console)
    assert beside.fields == {"console": "http://127.0.0.1:1", "console_pid": 7}


def try_to_log_in(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{url}/login", b"name=mallory&password=wrong", timeout=30)


def wrong_password(err: str) -> str:
    """Return the logger of the password line; every line must be a JSON object."""
    lines = [json.loads(line) for line in err.splitlines()]
    (found,) = [line for line in lines if line["message"].startswith("wrong password for mallory")]
    return str(found["logger"])


def test_a_console_logs_an_object_a_line(tmp_path: Path) -> None:
    pytest.importorskip("nicegui", reason="the console's packages are not installed")
    with Tianzhou(tmp_path, "console", "--port", 0, "-o", "json", "--login", "--log-format", "json") as console:
        try_to_log_in(console.ready()["url"])
        assert wrong_password(console.err) == "tianzhou.console.login"
        assert json.loads(console.err.splitlines()[0])["level"] == "WARNING"  # passwords are sent unencrypted
        assert console.interrupt()[0] == 0


def test_a_console_beside_servers_logs_as_they_do(tmp_path: Path) -> None:
    pytest.importorskip("nicegui", reason="the console's packages are not installed")
    with serve(
        tmp_path, "--console-port", 0, "--log-format", "json", "--log-level", "tianzhou.console=ERROR"
    ) as server:
        url = server.ready()["console"]
        try_to_log_in(url)
        assert server.interrupt()[0] == 0
        assert [json.loads(line) for line in server.err.splitlines() if "wrong password" in line] == []
        assert all(line.startswith("{") for line in server.err.splitlines())
