"""`tianzhou` as processes: started in a folder of the test, watched with a time limit, ended by their own id."""

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

from forked_commands import Forked, Forker
from waiting import WITHIN_S, until

ROOT = Path(__file__).resolve().parents[2]
CTRL_C_LIMIT_S = 5.0


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a `tianzhou` process of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("NAMESRV", "NAMESRV_ADDR"))}
    return kept | {"PYTHONPATH": str(ROOT / "src")} | more


def forked(
    args: list[str],
    folder: Path,
    environ: dict[str, str],
    stdin: int | None,
    stdout: int,
    stderr: int,
    program: str = "",
) -> Forked:
    """Start `tianzhou ARGS…`, or a program, in a child of an interpreter that has imported the package.

    Args:
        args: the command line.
        folder: the working directory.
        environ: the environment.
        stdin: a descriptor, or PIPE or DEVNULL of `subprocess`.
        stdout: a descriptor, or PIPE of `subprocess`.
        stderr: a descriptor.
        program: Python code to run in place of the command.
    """
    with contextlib.ExitStack() as stack:
        ours: list[IO[bytes] | None] = [None, None]

        def theirs(given: int | None, number: int) -> int:
            if given == subprocess.PIPE:
                read, write = os.pipe()
                ours[number] = os.fdopen(read, "rb") if number else os.fdopen(write, "wb")
                end = write if number else read
                stack.callback(os.close, end)
                return end
            if given == subprocess.DEVNULL:
                return stack.enter_context(open(os.devnull, "r+b", buffering=0)).fileno()
            return number if given is None else given

        descriptors = theirs(stdin, 0), theirs(stdout, 1), stderr
        process = Forker.for_environment(environ).fork(args, folder, environ, descriptors, program)
    process.stdin, process.stdout = ours
    return process


class Tianzhou:
    """One `tianzhou ARGS…` process; a context manager that ends the process.

    Args:
        folder: its working directory, which also gets its output.
        args: the command line.
        stdin: as for Popen; empty by default.
        stdout: as for Popen; a file by default, see `out`.
        namesrv: the address in its environment.
        program: Python code to run in place of the command, with `args` as its command line.
        fresh: whether a new interpreter runs the command, for tests of a start and of memory. Other processes are
            forked from an interpreter that has imported the package.
    """

    def __init__(
        self,
        folder: Path,
        *args: object,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
        namesrv: str = "",
        program: str = "",
        fresh: bool = False,
    ) -> None:
        number = len(list(folder.glob("*.err")))
        self._files = [folder / f"{number}.out", folder / f"{number}.err"]
        words = [str(arg) for arg in args]
        environ = environment(**({"NAMESRV_ADDR": namesrv} if namesrv else {}))
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            to = out.fileno() if stdout is None else stdout
            self.process: Forked | subprocess.Popen[bytes]
            if fresh:
                what = ["-c", program] if program else ["-m", "tianzhou"]
                self.process = subprocess.Popen(
                    [sys.executable, *what, *words], cwd=folder, env=environ, stdin=stdin, stdout=to,
                    stderr=err,
                )  # fmt: skip
            else:
                self.process = forked(words, folder, environ, stdin, to, err.fileno(), program)

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
        """Return the process id."""
        return self.process.pid

    @property
    def out(self) -> str:
        """Return the text that the process has written to stdout so far."""
        return self._files[0].read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        """Return the text that the process has written to stderr so far."""
        return self._files[1].read_text(encoding="utf-8", errors="replace")

    @property
    def stdin(self) -> IO[bytes]:
        """Return the pipe to its stdin."""
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
        """Wait for its end; return the exit code."""
        return self.process.wait(limit_s)

    def interrupt(self, number: int = signal.SIGINT, *, times: int = 1) -> tuple[int, float]:
        """Send a signal and wait for the end; return the exit code and the seconds it took."""
        began = time.monotonic()
        for _ in range(times):
            self.process.send_signal(number)
            time.sleep(0.01)
        code = self.wait()
        return code, time.monotonic() - began

    def figure(self, name: str) -> int:
        """Return a figure of /proc/PID/status, in bytes."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def cpu_s(self) -> float:
        """Return the processor time that the process has used, in seconds."""
        figures = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return sum(map(int, figures[11:13])) / os.sysconf("SC_CLK_TCK")

    def assert_no_traceback(self) -> None:
        """Check that no traceback contains our code; one during the start of the interpreter is allowed."""
        for trace in self.err.split("Traceback")[1:]:
            assert "tianzhou/" not in trace, self.err


def serve(folder: Path, *args: object, data: str = "data", fresh: bool = False) -> Tianzhou:
    """Start `tianzhou serve` on free ports, with a ready line in JSON.

    Args:
        folder: working directory of the server.
        args: further arguments of the command line.
        data: the folder of the server's data.
        fresh: see `Tianzhou`.
    """
    ports = [] if "--namesrv-port" in args else ["--namesrv-port", 0, "--broker-port", 0]
    return Tianzhou(folder, "serve", "--data", data, "-o", "json", *ports, *args, fresh=fresh)
