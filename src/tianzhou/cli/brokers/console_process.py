"""The console beside `tianzhou serve`: a process of its own, which ends with the servers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tianzhou.bench.local_server import end_in_order, end_with_parent
from tianzhou.cli.conf_files import check_port
from tianzhou.cli.console import HOW_TO_INSTALL
from tianzhou.cli.serving.server_logs import ServerLogs
from tianzhou.errors import ConfigError
from tianzhou.supervision import start_owned

if TYPE_CHECKING:
    from tianzhou.remoting.tls import TlsSettings


DEFAULT_PORT: Final = 8080
READY_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 3.0
NEEDED: Final = ("nicegui", "argon2")
"""Packages of the extra `console` without which it does not start."""
_log = logging.getLogger(__name__)


def check_installed() -> None:
    """Check that a console can be started, without importing what it needs.

    Raises:
        ConfigError: its packages are not installed.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--console needs {' and '.join(missing)}: {HOW_TO_INSTALL}")


def port_of(console: bool, port: int | None) -> int | None:
    """The port of the console that is served beside servers; None without one.

    Args:
        console: whether there is to be one, as `--console` says.
        port: of `--console-port`.

    Raises:
        ConfigError: its packages are not installed, or there is no such port.
    """
    if port is None and not console:
        return None
    check_installed()
    if port is not None:
        check_port("--console-port", port)
    return DEFAULT_PORT if port is None else port


class ConsoleProcess:
    """A console on loopback; an async context manager.

    Args:
        namesrv: name server of the cluster.
        port: where it listens, 0 for any free one.
        data: folder of its accounts and audit log.
        tls: whether servers take connections by TLS only.
        logs: its form and levels.

    Attributes:
        url: of the console, once it serves.
        pid: of its process.
    """

    def __init__(
        self, namesrv: str, port: int, data: Path, *, tls: bool = False, logs: ServerLogs | None = None
    ) -> None:
        logs = logs or ServerLogs()
        self._arguments = ["-n", namesrv, "--port", str(port), "--data", str(data), *(["--tls"] if tls else [])]
        self._arguments += ["--log-format", logs.form, *(part for one in logs.levels for part in ("--log-level", one))]
        self._port = port
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self.url = ""
        self.pid = 0

    async def __aenter__(self) -> Self:
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tianzhou", "console", *self._arguments, "-o", "json",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # A Ctrl-C at the terminal comes to the servers' process alone, which then ends this one.
                start_new_session=True,
                preexec_fn=end_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
            assert process.stdout is not None
            self.pid = process.pid
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READY_LIMIT_S):
                    if line := await process.stdout.readline():
                        self.url = json.loads(line)["url"]
            if not self.url:
                raise ConfigError(
                    f"the console has not started on port {self._port}; its own words are above. Give --console-port "
                    "another port, 0 for any free one, or leave --console out"
                )
        except BaseException:
            await end_in_order(self._process, STOP_LIMIT_S)
            raise
        self._watching = start_owned(self._watch(process), "serve")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await end_in_order(self._process, STOP_LIMIT_S)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        _log.error("the console ended with code %d; brokers serve without it. `tianzhou console` starts one", code)


class Beside:
    """What is served beside servers: a console, or nothing.

    Args:
        console: it serves; None for nothing.
    """

    def __init__(self, console: ConsoleProcess | None) -> None:
        self._console = console

    @property
    def fields(self) -> dict[str, object]:
        """Its part of the ready line."""
        return {} if self._console is None else {"console": self._console.url, "console_pid": self._console.pid}

    async def stop(self) -> None:
        """End it."""
        if self._console is not None:
            await self._console.__aexit__()


async def start_beside(
    server: Any, port: int | None, folder: Path, tls: TlsSettings, logs: ServerLogs | None = None
) -> Beside:
    """Start a console beside servers, which are stopped when it cannot be started.

    Args:
        server: serves, and is an async context manager.
        port: of the console; None for none.
        folder: of the servers' data.
        tls: of the servers.
        logs: of the servers.

    Raises:
        ConfigError: it cannot be started.
    """
    if port is None:
        return Beside(None)
    only_tls = tls.server_mode.lower() == "enforcing"
    console = ConsoleProcess(server.namesrv_address, port, folder / "console", tls=only_tls, logs=logs)
    try:
        return Beside(await console.__aenter__())
    except BaseException:
        await server.__aexit__(None, None, None)
        raise
