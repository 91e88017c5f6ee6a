"""`tianzhou` commands as children of an interpreter that has imported the package.

The import of the package takes half a second of processor time, most of a server's start. Tests start hundreds of
servers and commands. Here an interpreter imports the package once and forks a child per command. The child has its own
process id, descriptors, memory, working directory, environment and exit code, and tests may kill it like any process.
Tests of a start, of imports and of memory start a new interpreter (`processes.Tianzhou(…, fresh=True)`).
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, ClassVar

from steady_disk import have_half_empty_disk

IMPORTED = (
    "tianzhou.cli.main", "tianzhou.cli.app", "tianzhou.cli.gc_freeze", "tianzhou.cli.signals", "tianzhou.cli.servers",
    "tianzhou.cli.cluster.brokers", "tianzhou.cli.cluster.status", "tianzhou.cli.config", "tianzhou.cli.consume",
    "tianzhou.cli.groups", "tianzhou.cli.produce", "tianzhou.cli.prove", "tianzhou.cli.store.store_files",
    "tianzhou.cli.topics", "tianzhou.embedded", "tianzhou.broker.server", "tianzhou.namesrv.server",
    "tianzhou.admin.admin", "tianzhou.admin.cluster", "tianzhou.admin.groups", "tianzhou.admin.messages",
    "tianzhou.admin.topics", "tianzhou.bench.proof", "tianzhou.client.consumer.pull.pull_consumer",
    "tianzhou.client.consumer.push.push_consumer", "tianzhou.client.producer.producer", "uvloop",
)  # fmt: skip
"""Modules to import before the first fork. None of them starts a thread."""
MAX_REQUEST_BYTES = 1 << 20


def _kept(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that an interpreter reads when it starts or imports the package."""
    return tuple(sorted(item for item in environ.items() if item[0].startswith(("PYTHON", "LD_", "TIANZHOU_PURE"))))


class Forker:
    """The interpreter that forks, with one environment of its own.

    Args:
        environ: environment of the interpreter.
    """

    _running: ClassVar[dict[tuple[tuple[str, str], ...], Forker]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()
    """Tests may start servers in several threads."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(other.fileno())]
        with other:
            self._process = subprocess.Popen(
                command, env=dict(environ), stdin=subprocess.DEVNULL, pass_fds=[other.fileno()]
            )

    @classmethod
    def for_environment(cls, environ: Mapping[str, str]) -> Forker:
        """Return the interpreter for an environment. Start one when none has the same variables of `_kept`."""
        kept = _kept(environ)
        with cls._lock:
            found = cls._running.get(kept)
            if found is None or found.has_ended:
                found = cls._running[kept] = Forker(environ)
                atexit.register(found.close)
        return found

    def fork(
        self,
        args: Sequence[str],
        cwd: Path,
        environ: Mapping[str, str],
        descriptors: tuple[int, int, int],
        program: str = "",
    ) -> Forked:
        """Start `tianzhou ARGS…`, or a program, in a child.

        Args:
            args: the command line.
            cwd: the working directory.
            environ: the environment.
            descriptors: stdin, stdout and stderr.
            program: Python code to run in place of the command; empty for the command.
        """
        status, write_end = os.pipe()
        try:
            request = json.dumps(
                {"args": list(args), "cwd": str(cwd), "environ": dict(environ), "program": program}
            ).encode()
            with self._lock:
                socket.send_fds(self._control, [request], [*descriptors, write_end])
                pid = int(self._control.recv(100) or b"0")
        finally:
            os.close(write_end)
        assert pid, "the interpreter that forks has ended"
        return Forked(pid, status)

    @property
    def has_ended(self) -> bool:
        """Whether the interpreter has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the interpreter. Its children continue."""
        self._control.close()
        self._process.wait(60)


class Forked:
    """A child of the interpreter that forks, with the part of `Popen` that tests use.

    Args:
        pid: process id of the child.
        status: pipe that receives the wait status of the child.

    Attributes:
        pid: process id of the child.
        stdin: pipe to the child's stdin; None without a pipe.
        stdout: pipe from the child's stdout; None without a pipe.
        returncode: None while the process runs; then its exit code, or the negative number of the signal that ended it.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit code.

        Args:
            timeout: maximum time to wait, in seconds; None for no limit.

        Raises:
            TimeoutExpired: the process still runs.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            status = array.array("i", os.read(self._status, 4))
            os.close(self._status)
            assert status, f"the interpreter that forked process {self.pid} has ended"
            self.returncode = os.waitstatus_to_exitcode(status[0])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end by SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self.send_signal(signal.SIGKILL)


# --- the interpreter that forks ------------------------------------------------------------------------------


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork a child per request; return the request in the child. End this process when the tests have ended."""
    ends: dict[int, int] = {}
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ctrl-C reaches this process too. It ignores the signal, because the tests handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready = select.select([control, reader], [], [])[0]
        if reader in ready:
            os.read(reader, 4096)
            _tell_ends(ends)
        if control not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 4)
        if not message:
            os._exit(0)
        request: dict[str, Any] = json.loads(message)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            control.close()
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
            for descriptor in (*descriptors, *ends.values(), reader, writer):
                os.close(descriptor)
            return request
        ends[pid] = descriptors[3]
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        control.send(b"%d" % pid)


def _tell_ends(ends: dict[int, int]) -> None:
    """Send the wait status of each child that has ended to the test that started the child."""
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        descriptor = ends.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # the test no longer waits for the child
            os.write(descriptor, array.array("i", [status]).tobytes())
        os.close(descriptor)


def _become(request: dict[str, Any]) -> None:
    """Set the folder, environment and arguments of this process as `python -m tianzhou ARGS…` has them."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    sys.argv = ["tianzhou", *request["args"]]
    sys.path[0] = request["cwd"]


if __name__ == "__main__":
    for _name in IMPORTED:
        import_module(_name)
    have_half_empty_disk()
    _request = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(_request)
    if _request["program"]:
        exec(_request["program"], {"__name__": "__main__"})
        sys.exit()
    runpy.run_module("tianzhou", run_name="__main__", alter_sys=True)
