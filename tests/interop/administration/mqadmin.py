"""Apache's mqadmin, 5.3.3 or 4.9.7, or ours: one process that runs command after command against a server."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import IO, Self

from frames import Account
from toolchain import SERVERS, SHORT_LIVED, environment, mqadmin_runner, tool

MARK, LAST_MARK = "=== end of command", "=== end of process"
START_TIMEOUT = 180
COMMAND_TIMEOUT = 180
LIMIT = "limit="
"""Prefix of a command: seconds that it may take, for Apache's tool."""
OURS = "ours"


def _ours() -> list[str]:
    return [sys.executable, "-u", str(Path(__file__).with_name("own_mqadmin.py")), MARK]


def _apaches(version: str, logback: Path, home: Path) -> list[str]:
    return [
        tool("java"),
        "-Xms64m",
        "-Xmx256m",
        *SHORT_LIVED,
        "-Dfile.encoding=UTF-8",
        f"-Drmq.logback.configurationFile={logback}",
        f"-Drocketmq.home.dir={home}",
        f"-Duser.home={home}",
        "-cp",
        mqadmin_runner(version),
        "Mqadmin",
    ]


class Mqadmin:
    """The process; `run` sends it one command and returns the output.

    Args:
        version: of Apache's tool, or `OURS`.

    Attributes:
        exit_code: exit code of the process after the last command; 0 when the process continues.
    """

    def __init__(self, version: str = SERVERS[0]) -> None:
        self.exit_code = 0
        self._home = tempfile.TemporaryDirectory(prefix="mqadmin-")
        home = Path(self._home.name)
        # 4.9.7 needs the file there, and ends without it.
        logback = home / "conf" / "logback_tools.xml"
        logback.parent.mkdir()
        logback.write_text("<configuration/>")
        self._command = _ours() if version == OURS else _apaches(version, logback, home)
        self._launch()

    def _launch(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self.home,
            env={**environment(), "HOME": str(self.home), "ROCKETMQ_HOME": str(self.home)},
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()
        self._started = False

    @property
    def home(self) -> Path:
        """Return the folder for files of commands."""
        return Path(self._home.name)

    def sign(self, account: Account | None) -> None:
        """Sign the following commands; all tools read `conf/tools.yml` for each."""
        file = self.home / "conf" / "tools.yml"
        if account is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n")

    def run(self, *arguments: str, limit_s: int = 0) -> str:
        """Return the output of a command. A wrong command ends the process, so the next one gets a new process.

        Args:
            arguments: the command.
            limit_s: seconds after which Apache's tool is interrupted; 0 for the limit of all commands.
        """
        if not self._started:
            # Output during class loading belongs to no command.
            self._started = True
            self._ask(["help", "topicList"], START_TIMEOUT)
        return self._ask([*([f"{LIMIT}{limit_s}"] if limit_s else ()), *arguments], COMMAND_TIMEOUT)

    def begin_afresh(self) -> None:
        """Continue in a new process: some of Apache's commands work only once per process."""
        if self._command[0] != sys.executable:
            self._close()
            self._launch()

    def _ask(self, arguments: list[str], seconds: float) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(arguments) + "\n")
        self._process.stdin.flush()
        printed: list[str] = []
        self.exit_code = 0
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except Empty:
                raise AssertionError(f"mqadmin {' '.join(arguments)}: no end after {seconds} s") from None
            if line in (MARK, LAST_MARK):
                if line == LAST_MARK:
                    self._close()
                    self.exit_code = self._process.returncode
                    self._launch()
                return "\n".join(printed).strip("\n")
            printed.append(line)

    @staticmethod
    def _read(printed: IO[str], lines: Queue[str]) -> None:
        for line in printed:
            lines.put(line.rstrip("\n"))
        lines.put(MARK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._home.cleanup()

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(5)
        self._process.stdout.close()
