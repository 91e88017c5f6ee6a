"""A redis-server of the tests, on a free port of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

HOST = "127.0.0.1"
START_WITHIN_S = 20


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
        with self.client() as client:
            deadline = time.monotonic() + START_WITHIN_S
            while True:
                try:
                    client.ping()
                    return
                except self._redis.ConnectionError:
                    assert self._process.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, "redis-server does not answer"
                    time.sleep(0.02)

    def stop(self) -> None:
        """Stop it as its service does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def client(self) -> Any:
        """Return a blocking client; a context manager that closes it."""
        return self._redis.Redis.from_url(self.url)
