"""The console of `tianzhou serve`: a separate process, which ends with the servers."""

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
"""Packages of the extra `console` that it needs to start."""
_log = logging.getLogger(__name__)


def check_installed() -> None:
    """Check that a console can be started, without importing its packages.

    Raises:
        ConfigError: the packages are not installed.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--console needs {' and '.join(missing)}: {HOW_TO_INSTALL}")


def port_of(console: bool, port: int | None) -> int | None:
    """Return the port of the console; None without a console.

    Args:
        console: whether to start one (`--console`).
        port: value of `--console-port`.

    Raises:
        ConfigError: the packages are not installed, or the port is out of range.
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
        port: port to listen on, 0 for any free one.
        data: folder of its accounts and audit log.
        tls: whether servers accept connections with TLS only.
        logs: form and levels of its log.

    Attributes:
        url: URL of the console, once it serves.
        pid: id of its process.
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
                # Ctrl-C at the terminal must reach the servers' process only, which then ends this one.
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
    """A console beside servers, or none.

    Args:
        console: the running console; None for none.
    """

    def __init__(self, console: ConsoleProcess | None) -> None:
        self._console = console

    @property
    def fields(self) -> dict[str, object]:
        """Its fields in the ready line."""
        return {} if self._console is None else {"console": self._console.url, "console_pid": self._console.pid}

    async def stop(self) -> None:
        """Stop the console."""
        if self._console is not None:
            await self._console.__aexit__()


async def start_beside(
    server: Any, port: int | None, folder: Path, tls: TlsSettings, logs: ServerLogs | None = None
) -> Beside:
    """Start a console beside servers. Stop the servers if it cannot be started.

    Args:
        server: the running servers, an async context manager.
        port: port of the console; None for no console.
        folder: data folder of the servers.
        tls: TLS settings of the servers.
        logs: logs of the servers.

    Raises:
        ConfigError: the console cannot be started.
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
