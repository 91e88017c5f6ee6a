"""A broker for one run: `tianzhou serve` as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tianzhou.errors import TianzhouError

STOP_LIMIT_S = 2.0
READY_LIMIT_S = 60.0
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Request SIGTERM from the kernel when the parent ends for any reason. Called in the child."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def end_in_order(process: asyncio.subprocess.Process | None, limit_s: float) -> None:
    """End a process by SIGTERM, and by SIGKILL if it does not end within `limit_s` seconds.

    Do nothing for None or a process that has ended.
    """
    if process is None or process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(limit_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class LocalServer:
    """A name server and broker in a separate process. Their folder is deleted at the end.

    Args:
        folder: parent of the store's folder; None for the system's temporary directory.
        flush: ASYNC_FLUSH or SYNC_FLUSH.

    Attributes:
        namesrv: the name server's address.
        mode: "compiled" or "pure": the implementation of the server's hot functions.
        pid: the process id.
    """

    def __init__(self, folder: Path | None, flush: str) -> None:
        self._folder = folder
        self._flush = flush
        self._process: asyncio.subprocess.Process | None = None
        self.namesrv = ""
        self.mode = ""
        self.pid = 0

    async def __aenter__(self) -> Self:
        try:
            self._data = tempfile.mkdtemp(prefix="tianzhou-bench-", dir=self._folder)
        except OSError as error:
            raise TianzhouError(f"--embedded-dir {self._folder}: {error.strerror}; give a folder to write to") from None
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tianzhou", "serve", "--data", self._data, "--flush", self._flush,
                "--namesrv-port", "0", "--broker-port", "0", "-o", "json",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # Ctrl-C must reach only the parent, which ends the server after the last request.
                start_new_session=True,
                preexec_fn=end_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
            assert self._process.stdout is not None
            self.pid = self._process.pid
            async with asyncio.timeout(READY_LIMIT_S):
                line = await self._process.stdout.readline()
            if not line:
                raise TianzhouError("the embedded server has not started; its own words are above")
            ready = json.loads(line)
            self.namesrv, self.mode = ready["namesrv"], ready["mode"]
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        await end_in_order(self._process, STOP_LIMIT_S)
        shutil.rmtree(self._data, ignore_errors=True)

    def cpu_s(self) -> float | None:
        """Return the processor time of the server in seconds; None if the system does not provide it."""
        return process_cpu_s(self.pid)


def process_cpu_s(pid: int) -> float | None:
    """Return the processor time of a process in seconds; None if the process or the figure does not exist."""
    try:
        # The process's name, in brackets, may contain spaces.
        values = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
