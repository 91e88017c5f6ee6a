"""`tianzhou` as processes: started in a folder of the test, watched with a limit, ended by their own id."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from waiting import WITHIN_S, until

ROOT = Path(__file__).resolve().parents[2]
CTRL_C_LIMIT_S = 5.0


def environment(**more: str) -> dict[str, str]:
    """What a `tianzhou` process of the tests runs with."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("NAMESRV", "NAMESRV_ADDR"))}
    return kept | {"PYTHONPATH": str(ROOT / "src")} | more


class Tianzhou:
    """One `tianzhou ARGS…` process; a context manager that leaves no process behind.

    Args:
        folder: its working directory, which also gets its output.
        args: the command line.
        stdin: as for Popen; nothing by default.
        stdout: as for Popen; a file by default, see `out`.
        namesrv: the address in its environment.
    """

    def __init__(
        self,
        folder: Path,
        *args: object,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
        namesrv: str = "",
    ) -> None:
        number = len(list(folder.glob("*.err")))
        self._files = [folder / f"{number}.out", folder / f"{number}.err"]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tianzhou", *map(str, args)],
                cwd=folder,
                env=environment(**({"NAMESRV_ADDR": namesrv} if namesrv else {})),
                stdin=stdin,
                stdout=out if stdout is None else stdout,
                stderr=err,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def out(self) -> str:
        """What it wrote to stdout so far."""
        return self._files[0].read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        """What it wrote to stderr so far."""
        return self._files[1].read_text(encoding="utf-8", errors="replace")

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe to its stdin."""
        assert self.process.stdin is not None
        return self.process.stdin

    def ready(self) -> dict[str, Any]:
        """Wait for a server's one JSON line, and return it."""
        try:
            until(lambda: "\n" in self.out or self.process.poll() is not None, "its ready line")
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise
        assert "\n" in self.out, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document

    def wait(self, limit_s: float = WITHIN_S) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(limit_s)

    def interrupt(self, number: int = signal.SIGINT, *, times: int = 1) -> tuple[int, float]:
        """Send a signal and wait for the end; returns the exit code and the seconds it took."""
        began = time.monotonic()
        for _ in range(times):
            self.process.send_signal(number)
            time.sleep(0.01)
        code = self.wait()
        return code, time.monotonic() - began

    def figure(self, name: str) -> int:
        """A figure of /proc/PID/status, in bytes."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def assert_no_traceback(self) -> None:
        """Nothing of ours shows in a traceback; one of the interpreter's own first moments is not ours to stop."""
        for trace in self.err.split("Traceback")[1:]:
            assert "tianzhou/" not in trace, self.err


def serve(folder: Path, *args: object, data: str = "data") -> Tianzhou:
    """`tianzhou serve` on free ports, its ready line as JSON."""
    ports = [] if "--namesrv-port" in args else ["--namesrv-port", 0, "--broker-port", 0]
    return Tianzhou(folder, "serve", "--data", data, "-o", "json", *ports, *args)
