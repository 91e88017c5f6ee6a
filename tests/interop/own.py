"""Tianzhou's name server and broker as processes under our control, with the interface of those in `apache`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from apache import HOST, PATIENT
from frames import Account, accepts, call, members

from forked_commands import Forked, Forker
from server_ports import server_ports
from waiting import until

SOURCE = Path(__file__).resolve().parents[2] / "src"
START_TIMEOUT = 120
STOP_TIMEOUT = 90


def spawn(log: Path, *args: object) -> Forked:
    """Start the `tianzhou` command of this tree; append its output to a file."""
    with log.open("ab") as output:
        return _forked([*map(str, args)], output, output)


def asked(namesrv: str, *words: str) -> tuple[int, Any]:
    """Return the exit code of a command, and its JSON output."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = _forked([*words, "-n", namesrv, "-o", "json"], output, errors).wait(120)
        output.seek(0)
        return code, json.loads(output.read())


def _forked(args: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> Forked:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "PYTHONPATH": path}
    with Path(os.devnull).open() as nothing:
        descriptors = nothing.fileno(), output.fileno(), errors.fileno()
        return Forker.for_environment(environ).fork(args, Path.cwd(), environ, descriptors)


@contextmanager
def name_server(
    folder: Path, conf: Mapping[str, object] | None = None, account: Account | None = None
) -> Iterator[str]:
    """Run Tianzhou's name server with its files in a folder; yield its address.

    Args:
        folder: Folder of its configuration, state and output.
        conf: Further entries of its configuration.
        account: Account for the signed check that it is ready; None for an unsigned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = server_ports()
    file = folder / "namesrv.conf"
    entries = {"listenPort": port, "bindAddress": HOST, "kvConfigPath": folder / "kv.json", **(conf or {})}
    file.write_text("".join(f"{key}={value}\n" for key, value in entries.items()))
    process = spawn(folder / "namesrv.log", "namesrv", "-c", file)
    try:
        address = f"{HOST}:{port}"
        until(
            lambda: call(address, 106, account=account).code == 0,
            "the name server answers",
            within_s=START_TIMEOUT,
            every_s=0.1,
        )
        yield address
    finally:
        process.kill()
        process.wait(10)


class OwnBroker:
    """`tianzhou broker -c FILE`, registered with a name server.

    Args:
        namesrv: Address of the name server.
        store_dir: The store root.
        home: Folder of configuration and output.
        conf: Entries of the configuration that override ours.
        port: The port to listen on; a free one when None.
    """

    def __init__(
        self,
        namesrv: str,
        store_dir: Path,
        home: Path,
        conf: Mapping[str, object] | None = None,
        port: int | None = None,
    ) -> None:
        self.port = server_ports(4) + 2 if port is None else port
        self.address = f"{HOST}:{self.port}"
        self.namesrv = namesrv
        self.store_dir = store_dir
        self.home = home
        self.conf: dict[str, object] = {
            "brokerName": "broker-a",
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": self.port,
            "namesrvAddr": namesrv,
            "storePathRootDir": store_dir,
            "brokerConfigPath": home / "broker.conf",
            "diskMaxUsedSpaceRatio": 99,
            **PATIENT,
            **(conf or {}),
        }
        self._process: Forked | None = None
        self._printed_before = 0

    def start(self) -> None:
        """Start it and wait until the name server routes to it."""
        self.launch()
        self.await_registered()

    def launch(self) -> None:
        """Start it without waiting."""
        self.home.mkdir(parents=True, exist_ok=True)
        config_file = self.home / "broker.conf"
        config_file.write_text("".join(f"{key}={value}\n" for key, value in self.conf.items()))
        log = self.home / "console.log"
        self._printed_before = log.stat().st_size if log.exists() else 0
        self._process = spawn(self.home / "console.log", "broker", "-c", config_file)

    def await_registered(self) -> None:
        """Wait until the name server routes to it."""
        process = self._process
        assert process is not None

        def registered() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"tianzhou ended with {process.returncode}: {self.console()[-3000:]}")
            # The name server may still have a route to the address, from a broker that was just killed.
            return self.address in members(self.namesrv, "TBW102") and accepts(self.address)

        until(registered, "tianzhou is registered", within_s=START_TIMEOUT, every_s=0.1)

    def _is_ready(self) -> bool:
        ended = self._process is None or self._process.poll() is not None
        return ended or b"ready: " in (self.home / "console.log").read_bytes()[self._printed_before :]

    def console(self) -> str:
        """Return the output of all its processes: a line of interest may be followed by many others."""
        return (self.home / "console.log").read_text(errors="replace")

    def stop(self) -> None:
        """Stop it cleanly; fail if it leaves its store open."""
        if self._process is not None:
            # The broker registers before it is ready. A signal between the two would end it without closing its store.
            until(self._is_ready, "tianzhou is ready", within_s=START_TIMEOUT, every_s=0.1)
            self._process.terminate()
            code = self._process.wait(STOP_TIMEOUT)
            self._process = None
            assert code in (0, -15), f"tianzhou ended with {code}: {self.console()[-3000:]}"
            assert not (self.store_dir / "abort").exists(), self.console()[-3000:]

    def kill(self) -> None:
        """End the process by SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT)
            self._process = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
