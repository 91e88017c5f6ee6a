"""Every row of `bad_input_rows` at a running server: the expected answers, and no acknowledged message is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bad_input_rows as rows
import pytest
from processes import Tianzhou, environment

from tianzhou import sync
from tianzhou.cli import main as cli
from tianzhou.cli import servers
from tianzhou.model import Message, MessageQueue, SendStatus
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.sync.background import background
from tianzhou.wire import command as wire

ROOT = Path(__file__).resolve().parents[3]
PROCESS_LIMIT_S = 60
ANSWER_LIMIT_S = 10

FILES: dict[str, bytes] = {
    "binary": bytes(range(256)) * 4,
    "lines": b"a\nb\n",
    "long-line": b"x" * (rows.BODY_LIMIT + 1),
    "word-port.conf": b"listenPort=many\n",
    "high-port.conf": b"listenPort=70000\n",
    "word.yaml": b"topics: many\ntestDurationMinutes: 1\n",
    "no-payload.yaml": b"payloadFile: payload/100b\ntestDurationMinutes: 1\n",
    "no-key.conf": b"brokerName=b\n= 5\n",
    "trust-nobody.tls": b"tls.server.need.client.auth=sometimes\n",
    "role.conf": b"brokerRole=MASTER\n",
    "slave.conf": b"brokerRole = SLAVE\n",
    "acl.conf": b"authorizationEnabled=true\n",
    "variable.conf": b"storePathRootDir=${ROCKETMQ_HOME}/store\n",
    "nowhere.conf": b"brokerIP1=0.0.0.0\n",
    "unknown-key.conf": b"brokerNam=b\n",
    "no-effect.conf": b"sendMessageThreadPoolNums=99\n",
    "future/tianzhou.json": b'{"layout": 99}\n',
    "damaged/tianzhou.json": b"\xff\xfe\0",
    "theirs/thesis.txt": b"years of work\n",
    "grown/tianzhou.json": b'{"layout": 2}\n',
    "grown/broker-b/store/lock": b"",
}


@dataclass
class Server:
    """A `tianzhou serve` process that holds one acknowledged message."""

    folder: Path
    process: subprocess.Popen[str]
    namesrv: int
    broker: int
    log: Path
    producer: sync.Producer
    consumer: sync.PullConsumer
    kept: MessageQueue

    def ports(self) -> dict[str, int]:
        return {"namesrv": self.namesrv, "broker": self.broker}

    def check(self) -> None:
        """Check that the server serves, and that the messages acknowledged first are still stored."""
        assert self.process.poll() is None, self.log.read_text()
        assert self.producer.send(Message("orders", b"alive")).status is SendStatus.SEND_OK
        assert self.consumer.pull(self.kept, 0, 1).messages[0].body == b"kept"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("edges")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    log = folder / "serve.log"
    argv = [sys.executable, "-m", "tianzhou", "serve", "--data", "data", "-o", "json"]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*argv, "--namesrv-port", "0", "--broker-port", "0"],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline() or log.read_text())
        address = ready["namesrv"]
        (folder / "same-store.conf").write_text(
            f"listenPort=0\nstorePathRootDir={folder}/data/store\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"
        )
        with sync.Admin(address) as admin:
            admin.topics.create("orders", read_queue_nums=2, write_queue_nums=2)
        with sync.Producer("tests", address) as producer, sync.PullConsumer("tests", address) as consumer:
            kept = producer.send(Message("orders", b"kept")).queue
            namesrv, broker = (int(ready[name].rpartition(":")[2]) for name in ("namesrv", "broker"))
            yield Server(folder, process, namesrv, broker, log, producer, consumer, kept)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def name_server(folder: Path, mode: str) -> Iterator[int]:
    """The port of a name server in this process, with that mode of TLS."""
    home = folder / mode
    settings = dataclasses.replace(
        NamesrvSettings(),
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(home / "kv.json"),
        config_store_path=str(home / "namesrv.properties"),
    )
    loop = background()
    server = NameServer(settings, tls=TlsSettings(mode))
    loop.run(server.__aenter__())
    try:
        yield server.port
    finally:
        loop.run(server.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def places(server: Server) -> Iterator[dict[str, object]]:
    with (
        socket.socket() as dead,
        name_server(server.folder, "enforcing") as tls,
        name_server(server.folder, "disabled") as plain,
    ):
        dead.bind(("127.0.0.1", 0))  # and does not listen
        yield {
            "namesrv": server.namesrv,
            "broker": server.broker,
            "above_broker": server.broker + 2,
            "dead": dead.getsockname()[1],
            "tls_only": tls,
            "tls_never": plain,
            "data": server.folder / "data",
        }


def assert_answer(row: rows.Row, answer: str) -> None:
    text = answer.strip("\n").removeprefix("tianzhou: ")
    assert row.pattern.fullmatch(text), f"{row.what}\nexpected: {row.answer}\nanswered: {text}"


@pytest.mark.parametrize("row", rows.COMMANDS, ids=lambda row: row.what)
def test_a_wrong_command_is_answered_with_the_fix(
    row: rows.Command,
    server: Server,
    places: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def started(_: object) -> None:
        pytest.fail("a server was started")

    # In this process, because a process each would take a minute: main() is the whole command.
    monkeypatch.setattr(servers, "run_server", started)
    monkeypatch.delenv("TIANZHOU_NAMESRV", raising=False)
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{server.namesrv}")
    monkeypatch.chdir(server.folder)
    monkeypatch.setattr(sys, "argv", ["tianzhou", *row.argv(places)])
    began = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert time.monotonic() - began < ANSWER_LIMIT_S
    assert_answer(row, capsys.readouterr().err)
    assert (ended.value.code or 0) == row.code
    server.check()


@pytest.mark.parametrize("row", rows.SERVERS, ids=lambda row: row.what)
def test_a_server_that_cannot_start_says_why(row: rows.Command, server: Server, places: dict[str, object]) -> None:
    with Tianzhou(server.folder, *row.argv(places)) as started:
        code = started.wait(PROCESS_LIMIT_S)
    assert_answer(row, started.err)
    assert (code, started.out) == (row.code, "")
    server.check()


def converse(port: int, data: bytes) -> tuple[wire.Command | None, int]:
    """Return the server's reply, None when it closes the connection instead; and the source port of the request."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_LIMIT_S) as peer:
        peer.settimeout(ANSWER_LIMIT_S)
        own_port = peer.getsockname()[1]
        peer.sendall(data)
        received = b""
        try:
            while piece := peer.recv(65_536):
                received += piece
                if len(received) >= 4 and len(received) >= 4 + struct.unpack_from(">I", received)[0]:
                    return wire.decode(received[4:]), own_port
        except ConnectionResetError:
            pass
        return None, own_port


@pytest.mark.parametrize("row", rows.FRAMES, ids=lambda row: row.what)
def test_bytes_that_are_no_frame_close_the_connection_and_are_logged(row: rows.Frame, server: Server) -> None:
    answer, own_port = converse(server.ports()[row.to], row.data)
    assert answer is None
    said = None
    for _ in range(50):
        said = re.search(rf"closing 127\.0\.0\.1:{own_port}: (.*)", server.log.read_text())
        if said is not None:
            break
        time.sleep(0.05)
    assert said is not None
    assert_answer(row, said[1])
    server.check()


@pytest.mark.parametrize("row", rows.REQUESTS, ids=lambda row: row.what)
def test_a_wrong_request_is_answered_with_code_and_reason(row: rows.Request, server: Server) -> None:
    request = wire.Command(row.request, opaque=7, fields=dict(row.fields), body=row.body)
    answer, _ = converse(server.ports()[row.to], wire.encode(request))
    assert answer is not None
    assert (answer.code, answer.opaque) == (row.code, 7)
    assert_answer(row, answer.remark or "")
    server.check()


def test_nothing_of_all_this_left_a_traceback_in_the_servers_log(server: Server) -> None:
    assert "Traceback" not in server.log.read_text()


def test_the_reference_page_says_what_is_tested() -> None:
    written = (ROOT / "docs" / "reference" / "bad-input.md").read_text(encoding="utf-8")
    assert written == rows.page(), "print it again: python tests/fault/bad_input_rows.py > docs/reference/bad-input.md"
