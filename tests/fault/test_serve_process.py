"""`tianzhou` processes from outside: ready soon, small, ended by Ctrl-C within 5 s, never with a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import CTRL_C_LIMIT_S, Tianzhou, serve

from process_tree import descendants
from tianzhou import sync
from tianzhou.broker.addresses import first_address
from tianzhou.model import Message
from waiting import until

START_LIMIT_S = 20.0  # the target of 1 s is checked by a benchmark
RSS_ANON_LIMIT = 120 * 1024 * 1024
PRODUCE_LIMIT = 160 * 1024 * 1024
LINES = 100_000
JOB_LIMIT_S = 300.0
"""Long, because the main job starts Java and Spark while other processes may use the same core."""


@dataclass
class Place:
    """A running server, and a folder for further processes."""

    folder: Path
    server: Tianzhou
    namesrv: str

    def start(
        self, *args: object, stdin: int = subprocess.DEVNULL, stdout: int | None = None, fresh: bool = False
    ) -> Tianzhou:
        return Tianzhou(self.folder, *args, namesrv=self.namesrv, stdin=stdin, stdout=stdout, fresh=fresh)

    def bodies(self, topic: str) -> list[bytes]:
        with sync.PullConsumer("tests", self.namesrv, auto_commit=False) as consumer:
            found: list[bytes] = []
            for queue in consumer.queues(topic):
                at, end = consumer.min_offset(queue), consumer.max_offset(queue)
                while at < end:
                    pulled = consumer.pull(queue, at)
                    found += [message.body for message in pulled.messages]
                    at = pulled.next_offset
            return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    with serve(folder) as server:
        yield Place(folder, server, server.ready()["namesrv"])


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


BROKER_CONF = "listenPort=0\nstorePathRootDir=store\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"


def send(namesrv: str, topic: str, *bodies: bytes) -> None:
    with sync.Producer("tests", namesrv) as producer:
        for body in bodies:
            producer.send(Message(topic, body))


# --- start ---------------------------------------------------------------------------------------------------


def test_a_server_that_says_ready_takes_a_message_at_once_and_is_small(tmp_path: Path) -> None:
    began = time.monotonic()
    with serve(tmp_path, fresh=True) as server:
        address = server.ready()["namesrv"]
        ready_s = time.monotonic() - began
        send(address, "orders", b"first")
        acknowledged_s = time.monotonic() - began
        time.sleep(1)
        rss = server.figure("RssAnon")
        print(f"ready {ready_s:.2f} s, acknowledged {acknowledged_s:.2f} s, idle RssAnon {rss / 1e6:.1f} MB")
        assert acknowledged_s < START_LIMIT_S
        assert rss <= RSS_ANON_LIMIT
        assert server.err == ""


def test_it_listens_on_loopback_only_by_default(place: Place) -> None:
    address = first_address()
    if address == "127.0.0.1":
        pytest.skip("this machine has no address besides loopback")
    port = int(place.namesrv.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, port), 5)


def test_an_address_nobody_answers_at_is_warned_of_and_served_all_the_same(tmp_path: Path) -> None:
    with serve(tmp_path, "--advertise", "127.0.0.9") as server:
        assert server.ready()["broker"].startswith("127.0.0.9:")
        until(lambda: "--advertise" in server.err)
        assert "warning: the advertised address is 127.0.0.9:" in server.err
        assert "outside address of a container" in server.err
        assert server.process.poll() is None


def test_a_killed_server_comes_back_with_everything_it_acknowledged(tmp_path: Path) -> None:
    bodies = [str(number).encode() for number in range(500)]
    with serve(tmp_path) as server:
        send(server.ready()["namesrv"], "orders", *bodies)
        server.process.kill()
    with serve(tmp_path) as server:
        found = Place(tmp_path, server, server.ready()["namesrv"]).bodies("orders")
        assert sorted(found) == sorted(bodies)
        assert server.interrupt()[0] == 0


# --- Ctrl-C --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_with_clients_ends_cleanly_within_five_seconds(tmp_path: Path, number: int) -> None:
    with serve(tmp_path) as server:
        address = server.ready()["namesrv"]
        send(address, "orders", b"one")
        with Tianzhou(tmp_path, "consume", "orders", "--from-beginning", namesrv=address) as looking:
            until(lambda: "one" in looking.out)
            code, took = server.interrupt(number)
        assert (code, server.err) == (0, "")
        assert took < CTRL_C_LIMIT_S
        assert not (tmp_path / "data" / "store" / "abort").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("consume", "orders", "--from-beginning"),
        ("consume", "orders", "--from-beginning", "--group", "interrupted"),
        ("consume", "orders", "--from-beginning", "-o", "json"),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_consuming_ends_cleanly(place: Place, args: tuple[str, ...], times: int) -> None:
    send(place.namesrv, "orders", b"one")
    group = [*args, *(["--group", f"again-{times}"] if "--group" in args else [])]
    with place.start(*group) as consuming:
        until(lambda: "one" in consuming.out)
        code, took = consuming.interrupt(times=times)
        assert code in ({130} if times == 1 else {130, -signal.SIGINT})  # it may end before the second signal
        assert took < CTRL_C_LIMIT_S
        consuming.assert_no_traceback()
        if times == 1 and "json" not in args:
            assert "message" in consuming.err


def test_consuming_with_sql_shows_what_it_selects(place: Place) -> None:
    with sync.Producer("tests", place.namesrv) as producer:
        for n in range(10):
            producer.send(Message("priced", b"price %d" % n, properties={"price": str(n)}))
    for group in ([], ["--group", "choosy"]):
        with place.start("consume", "priced", "--sql", "price > 7", "--from-beginning", "--max", "2", *group) as shown:
            assert shown.wait() == 0
            assert sorted(line.rsplit(" ", 1)[1] for line in shown.out.splitlines()) == ["8", "9"]


def test_producing_from_a_silent_pipe_ends_cleanly_and_says_what_was_acknowledged(place: Place) -> None:
    with place.start("produce", "piped", stdin=subprocess.PIPE) as producing:
        producing.stdin.write(b"one\n")
        producing.stdin.flush()
        until(lambda: _exists(place, "piped") and place.bodies("piped"))
        code, took = producing.interrupt()
        assert code == 130
        assert took < CTRL_C_LIMIT_S
        assert producing.err == "1 message acknowledged\n"


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "list"),
        ("group", "lag", "g"),
        ("produce", "orders", "--body", "x"),
        ("consume", "orders"),
        ("consume", "orders", "--group", "g"),
    ],
)
def test_waiting_for_a_silent_server_can_be_interrupted(tmp_path: Path, silent: str, args: tuple[str, ...]) -> None:
    with Tianzhou(tmp_path, *args, namesrv=silent) as waiting:
        until(lambda: _sockets(waiting.pid))
        code, took = waiting.interrupt()
        assert code == 130
        assert took < CTRL_C_LIMIT_S
        waiting.assert_no_traceback()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_broker_that_waits_for_its_name_server_closes_its_store_when_interrupted(tmp_path: Path, number: int) -> None:
    (tmp_path / "b.conf").write_text(BROKER_CONF)
    with Tianzhou(tmp_path, "broker", "-c", "b.conf", "-n", "127.0.0.1:1") as broker:
        until(lambda: "waits for a name server" in broker.err)
        assert list(tmp_path.rglob("abort"))
        code, took = broker.interrupt(number)
        assert (code, broker.out) == (0, "")
        assert not list(tmp_path.rglob("abort"))
        assert took < CTRL_C_LIMIT_S
        broker.assert_no_traceback()


@pytest.mark.parametrize("moments", [5, pytest.param(9, marks=pytest.mark.slow)])
def test_a_server_can_be_interrupted_at_any_moment_of_its_start_and_started_again(tmp_path: Path, moments: int) -> None:
    for step in range(moments):
        with serve(tmp_path, fresh=True) as server:
            time.sleep(0.48 * step / (moments - 1))
            code, took = server.interrupt(times=1 + step % 2)
            # Before our first line, the interpreter handles Ctrl-C; after it, a second Ctrl-C ends the process
            # immediately.
            assert code in {0, 1, 130, -signal.SIGINT}
            assert took < CTRL_C_LIMIT_S
            server.assert_no_traceback()
    with serve(tmp_path) as server:
        send(server.ready()["namesrv"], "orders", b"still works")


MOMENTS = {
    "a server": lambda pid, _: any(b"serve" in command_line(one).split(b"\0") for one in descendants(pid)),
    "Java": lambda pid, _: any(command_line(one).partition(b"\0")[0].endswith(b"java") for one in descendants(pid)),
    "Parquet": lambda _, out: any(out.rglob("*.parquet")),
}
"""Conditions on which the test interrupts the main job: functions of the job's process id and folder."""


def command_line(pid: int) -> bytes:
    """Return the command line of a process; empty when the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("a server", signal.SIGTERM),
        ("Java", signal.SIGINT),
        pytest.param("a server", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("Java", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("Parquet", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("Parquet", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_the_main_job_can_be_interrupted_and_leaves_no_process(tmp_path: Path, moment: str, number: int) -> None:
    pytest.importorskip("pyspark")
    out = tmp_path / "flights"
    with Tianzhou(tmp_path, "flights", "--rows", 50_000, "--out", out, fresh=True) as job:
        until(lambda: MOMENTS[moment](job.pid, out), moment, within_s=JOB_LIMIT_S)
        code, took = job.interrupt(number)
        assert code in {130, 143}
        assert took < CTRL_C_LIMIT_S
        job.assert_no_traceback()
        until(lambda: not _processes_with(str(out).encode()))


def _processes_with(text: bytes) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text in path.read_bytes():
                found.append(path.parent.name)
    return found


# --- pipes and files -----------------------------------------------------------------------------------------


def test_lines_are_sent_as_they_come(place: Place) -> None:
    with place.start("produce", "lines", stdin=subprocess.PIPE) as producing:
        for number in range(3):
            producing.stdin.write(b"%d\r\n\n" % number)
            producing.stdin.flush()
            wanted = number + 1
            until(lambda: _exists(place, "lines") and len(place.bodies("lines")) == wanted)  # noqa: B023
        producing.stdin.write(b"last, without an end")
        producing.stdin.close()
        assert producing.wait() == 0
        assert producing.err == "4 messages acknowledged\n"
    assert sorted(place.bodies("lines")) == [b"0", b"1", b"2", b"last, without an end"]


def test_a_hundred_thousand_lines_cost_bounded_memory(place: Place) -> None:
    with place.start("produce", "many", stdin=subprocess.PIPE, fresh=True) as producing:
        producing.stdin.write(b"".join(b"%d\n" % number for number in range(LINES)))
        # At this point all but the contents of a pipe has been read. ru_maxrss would be of this process, before the
        # exec.
        most = producing.figure("VmHWM")
        producing.stdin.close()
        assert producing.wait() == 0
        print(f"{LINES} lines, {most / 1e6:.0f} MB at most")
        assert most <= PRODUCE_LIMIT
        assert producing.err == f"{LINES} messages acknowledged\n"
    with sync.PullConsumer("tests", place.namesrv) as consumer:
        assert sum(consumer.max_offset(queue) for queue in consumer.queues("many")) == LINES


@pytest.mark.parametrize("group", [[], ["--group", "reader-went-away"]])
def test_a_reader_that_goes_away_ends_consuming(place: Place, group: list[str]) -> None:
    send(place.namesrv, "pipe", b"one")
    with place.start("consume", "pipe", "--from-beginning", *group, stdout=subprocess.PIPE) as consuming:
        assert consuming.process.stdout is not None
        assert b"one" in consuming.process.stdout.readline()
        consuming.process.stdout.close()
        # No more lines will be printed, so that only watching the pipe can detect the end.
        assert consuming.wait() == 1
        assert "Traceback" not in consuming.err


def test_output_that_cannot_be_written_is_one_line(place: Place) -> None:
    with open("/dev/full", "wb") as full, place.start("topic", "list", "--system", stdout=full.fileno()) as listing:
        assert listing.wait() == 1
        assert listing.err == "tianzhou: standard output: No space left on device\n"


# --- silent servers ------------------------------------------------------------------------------------------


def test_commands_without_a_server_that_answers_end_within_ten_seconds(tmp_path: Path, silent: str) -> None:
    commands = [
        ("topic", "list"),
        ("topic", "create", "orders"),
        ("group", "lag", "g"),
        ("produce", "orders", "--body", "x"),
        ("consume", "orders"),
        ("consume", "orders", "--group", "g"),
    ]
    began = time.monotonic()
    running = [Tianzhou(tmp_path, *command, namesrv=silent) for command in commands]
    for command, process in zip(commands, running, strict=True):
        with process:
            assert process.wait() == 1, command
            assert process.err.startswith(f"tianzhou: no name server answers: no reply from {silent} within"), command
            assert "tianzhou serve" in process.err
    assert time.monotonic() - began < 30  # on an idle machine, within ten


# --- name server and broker as RocketMQ starts them ----------------------------------------------------------


def test_a_broker_is_ready_when_a_name_server_knows_it_and_stores_what_it_gets(tmp_path: Path) -> None:
    (tmp_path / "n.conf").write_text("listenPort = 0\nkvConfigPath=kv.json\nbindAddress=127.0.0.1\n")
    conf = tmp_path / "b.conf"
    conf.write_text(f"# a comment\nbrokerName = b\n{BROKER_CONF}")
    with Tianzhou(tmp_path, "namesrv", "-c", "n.conf", "-o", "json") as namesrv:
        address = f"127.0.0.1:{namesrv.ready()['port']}"
        with Tianzhou(tmp_path, "broker", "-c", "b.conf", "-n", address, "-o", "json") as broker:
            told = broker.ready()["address"]
            send(address, "orders", b"one")
            with sync.Admin(address) as admin:
                admin.cluster.update_broker_config(told, {"fileReservedTime": "11"})
            assert broker.interrupt()[0] == 0
        assert "fileReservedTime=11\n" in conf.read_text()
        assert "# a comment" in conf.with_name("b.conf.bak").read_text()
        # The file now has every existing key, and the next start accepts all of them.
        with Tianzhou(tmp_path, "broker", "-c", "b.conf", "-o", "json") as broker:
            told = broker.ready()["address"]
            with sync.Admin(address) as admin:
                assert admin.cluster.broker_config(told)["fileReservedTime"] == "11"
            assert broker.err == ""
            assert Place(tmp_path, broker, address).bodies("orders") == [b"one"]
            assert broker.interrupt()[0] == 0
        assert namesrv.interrupt()[0] == 0
        assert namesrv.err == ""
    assert (tmp_path / "store" / "commitlog").is_dir()


def _exists(place: Place, topic: str) -> bool:
    with sync.Admin(place.namesrv) as admin:
        return bool(admin.topics.exists(topic))


def _sockets(pid: int) -> bool:
    """Whether a process holds a connection."""
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return sum(link.startswith("socket:") for link in links) > 2  # the loop has a pair of its own
