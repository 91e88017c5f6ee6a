"""Apache's mqadmin, 5.3.3 or 4.9.7: one JVM that runs command after command against a server."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Self

from frames import Account
from toolchain import HERE, SERVERS, environment, server_classpath, tool

MARK = "=== end of command"
START_TIMEOUT = 180
COMMAND_TIMEOUT = 180


class Mqadmin:
    """The process; `run` gives it one command and returns what that printed.

    Args:
        version: Which of `toolchain.SERVERS`.
    """

    def __init__(self, version: str = SERVERS[0]) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="mqadmin-")
        home = Path(self._home.name)
        logback = home / "logback.xml"
        logback.write_text("<configuration/>")
        (home / "conf").mkdir()
        # 4.9.7 looks for its own file, and ends without.
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
        command = [
            tool("java"),
            "-Xms64m",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dfile.encoding=UTF-8",
            f"-Drmq.logback.configurationFile={logback}",
            f"-Drocketmq.home.dir={home}",
            f"-Duser.home={home}",
            "-cp",
            server_classpath(version),
            str(HERE / "java" / "mqadmin" / "Mqadmin.java"),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=home,
            env={**environment(), "HOME": str(home)},
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._started = False

    @property
    def home(self) -> Path:
        """Where commands leave files."""
        return Path(self._home.name)

    def sign(self, account: Account | None) -> None:
        """Sign the following commands; both versions read `conf/tools.yml` for each."""
        file = self.home / "conf" / "tools.yml"
        if account is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n")

    def run(self, *arguments: str) -> str:
        """What a command prints."""
        if not self._started:
            # Whatever is printed while classes are loaded belongs to no command.
            self._started = True
            self._ask(["help", "topicList"], START_TIMEOUT)
        return self._ask(list(arguments), COMMAND_TIMEOUT)

    def _ask(self, arguments: list[str], seconds: float) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(arguments) + "\n")
        self._process.stdin.flush()
        printed: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except Empty:
                raise AssertionError(f"mqadmin {' '.join(arguments)}: no end after {seconds} s") from None
            if line == MARK:
                return "\n".join(printed).strip("\n")
            printed.append(line)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(MARK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        self._home.cleanup()
