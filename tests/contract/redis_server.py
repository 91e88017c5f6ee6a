"""A redis-server of the tests, on a free port of its own."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from waiting import until

HOST = "127.0.0.1"
START_WITHIN_S = 20


def run_in_real_time(test: Coroutine[Any, Any, None]) -> None:
    """Run an async test in real time, for a minute at most: a redis-server answers in real time."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(limited())


class RedisServer:
    """A redis-server; a context manager that stops it.

    Args:
        folder: folder of its files.
        is_logged: whether it logs its writes (`appendonly yes`), so that data survive a restart.

    Attributes:
        url: its first database.
    """

    def __init__(self, folder: Path, *, is_logged: bool = False) -> None:
        self._redis = pytest.importorskip("redis")
        binary = shutil.which("redis-server")
        if binary is None:
            pytest.skip("redis-server is not on the path (Debian: apt-get install redis-server)")
        with socket.create_server((HOST, 0)) as probe:
            port = probe.getsockname()[1]
        self._folder = folder
        self._command = [
            binary, "--bind", HOST, "--port", str(port), "--save", "", "--dir", str(folder),
            "--appendonly", "yes" if is_logged else "no", "--appendfsync", "no",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://{HOST}:{port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        until(self._answers, "redis-server answers", within_s=START_WITHIN_S)

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError((self._folder / "log").read_text())
        with self.client() as client, suppress(self._redis.ConnectionError):
            return bool(client.ping())
        return False

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def stop(self) -> None:
        """Stop it by SIGTERM, like its service."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def client(self) -> Any:
        """Return a blocking client; a context manager that closes it."""
        return self._redis.Redis.from_url(self.url)
