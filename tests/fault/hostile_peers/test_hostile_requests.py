"""Every request code with every field hostile, against a broker and a name server that other clients use meanwhile.

Other clients are served, memory stays bounded, no file outside the store changes, state is still written, and the next
start is clean with all acknowledged messages. A seed, which is printed, determines the order; set HOSTILE_SEED to
repeat it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hostile
import pytest
from processes import Tianzhou, serve

from tianzhou import sync
from tianzhou.model import Message, MessageQueue
from tianzhou.wire.codes import RequestCode, ResponseCode
from waiting import until

AIM_S = 0.05
"""Target of the wait of other clients in seconds; only printed, because a busy machine alone takes longer."""
MOST_WAIT_S = 1.0
"""Maximum wait of other clients in seconds, if it is exceeded twice in a row for the same code."""
MOST_MEMORY = 100 << 20
PATIENCE_S = 0.02
"""Seconds after which a request without a reply counts as waiting by design, like pulls."""
MOST_CPU_S = 120.0
"""Maximum processor time in seconds of servers and test together: ten times the usual, for a busy machine."""
KEPT = "kept-topic"
READER = "kept-reader"
SHARE = 3
"""Send one in `SHARE` requests of each code per commit. The seed chooses them in each run. With `--slow`, all requests
are sent. `tests/unit/broker/test_broker_hostile.py` sends all small requests to the handlers per commit.
"""
SAMPLE = 12
"""Number of requests of each code that are repeated in a mixed order; divided by the share."""
BURSTS = 3
UNSERVED = 40
"""Number of requests of a code that a server does not know; divided by the share."""


class Line:
    """A connection with one request in flight, which is replaced when the server has closed it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._socket: socket.socket | None = None
        self._opaque = 0

    def ask(self, request: hostile.Hostile, patience_s: float = PATIENCE_S) -> int | None:
        """Return the code of the reply; None without one."""
        self._opaque += 1
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, 5)
            self._socket.settimeout(5)
            self._socket.sendall(request.frame(self._opaque))
            return self._answer(patience_s)
        except OSError:
            self.close()
            return None

    def _answer(self, patience_s: float) -> int | None:
        assert self._socket is not None
        self._socket.settimeout(patience_s)
        while True:
            try:
                first = self._socket.recv(4)
            except TimeoutError:
                return None
            self._socket.settimeout(5)
            (size,) = struct.unpack(">i", first + self._exactly(4 - len(first)) if first else self._closed())
            frame = self._exactly(size)
            head = int.from_bytes(frame[:4])
            header = frame[4 : 4 + (head & 0xFFFFFF)]
            if head >> 24:
                code, _, _, opaque, flag = struct.unpack_from(">hBhii", header)
            else:
                read = json.loads(header)
                code, opaque, flag = read["code"], read["opaque"], read["flag"]
            if flag & 1 and opaque == self._opaque:
                return int(code)
            self._socket.settimeout(patience_s)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        parts = []
        while size:
            part = self._socket.recv(size)
            parts.append(part or self._closed())
            size -= len(part)
        return b"".join(parts)

    @staticmethod
    def _closed() -> bytes:
        raise ConnectionError("closed")

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Others:
    """Another client, which sends small requests to both servers all the time and records their times.

    The time that the machine kept the server from running does not count, because other processes cause it.
    """

    def __init__(self, server: Tianzhou, broker: str, namesrv: str) -> None:
        self._kept_waiting = Path(f"/proc/{server.pid}/schedstat")
        self._questions = (
            (Line(broker), hostile.Hostile(RequestCode.GET_MAX_OFFSET, "small", {"topic": KEPT, "queueId": "0"})),
            (Line(namesrv), hostile.Hostile(RequestCode.GET_ROUTEINFO_BY_TOPIC, "small", {"topic": KEPT})),
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._longest = 0.0
        self.wrong: list[str] = []
        self.asked = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        for line, _ in self._questions:
            line.close()

    def _run(self) -> None:
        while not self._stopped.wait(0.005):
            for line, question in self._questions:
                began = time.monotonic() - self._starved_s()
                code = line.ask(question, 30)
                self._longest = max(self._longest, time.monotonic() - self._starved_s() - began)
                self.asked += 1
                if code != ResponseCode.SUCCESS:
                    self.wrong.append(f"{question.code} answered {code}")

    def _starved_s(self) -> float:
        """Return the total time that the server has been ready to run without a core."""
        try:
            return int(self._kept_waiting.read_text(encoding="ascii").split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def longest_s(self) -> float:
        """Return the longest wait since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest


def census(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the contents of a folder: paths, times and hashes."""
    return {
        str(path): (path.lstat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in sorted(folder.rglob("*"))
    }


def resident(server: Tianzhou) -> int:
    """Return the anonymous memory, because the system can evict mapped files of the store."""
    return server.figure("RssAnon")


def send_kept(namesrv: str, bodies: list[bytes]) -> None:
    """Send messages that must not be lost."""
    with sync.Producer("kept-producer", namesrv) as producer:
        for body in bodies:
            producer.send(Message(KEPT, body))


def read_kept(namesrv: str) -> list[bytes]:
    """Return the bodies of these messages, and commit the end offset."""
    found = []
    with sync.PullConsumer(READER, namesrv, auto_commit=False) as consumer:
        for queue in consumer.queues(KEPT):
            at, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while at < end:
                pulled = consumer.pull(queue, at)
                found += [message.body for message in pulled.messages]
                at = pulled.next_offset
    return sorted(found)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[Tianzhou, str, str]]:
    """Yield a process with a broker and a name server, and their addresses."""
    with serve(folder) as server:
        ready = server.ready()
        yield server, ready["broker"], ready["namesrv"]


@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.slow)])
def test_nothing_a_stranger_sends_breaks_the_servers(tmp_path: Path, share: int) -> None:
    seed = int(os.environ.get("HOSTILE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HOSTILE_SEED={seed}")
    outside = tmp_path / "outside"
    (outside / "deeper").mkdir(parents=True)
    for name in ("precious", "deeper/0", "deeper/00000000000000000000"):
        (outside / name).write_text("not the store's")
    place = tmp_path / "place"
    place.mkdir()
    before = census(outside)
    bodies = [b"kept %d" % number for number in range(50)]
    began = time.process_time()
    with running(place) as (server, broker, namesrv):
        send_kept(namesrv, bodies[:25])
        assert read_kept(namesrv) == sorted(bodies[:25])
        calm = resident(server)
        with Others(server, broker, namesrv) as others:
            waits = {}
            for code in RequestCode:
                for where, address in (("broker", broker), ("name server", namesrv)):
                    waits[f"{where} {code.name}"] = attack(address, code, str(outside), seed, share, others)
                    assert server.process.poll() is None, f"{where}: {code.name}; {server.err[-2000:]}"
                    assert server.cpu_s() + time.process_time() - began < MOST_CPU_S, f"{where}: {code.name}"
            mixed(broker, namesrv, str(outside), seed, share)
            waits["everything, mixed"] = others.longest_s()
        send_kept(namesrv, bodies[25:])
        assert others.wrong == []
        grown = resident(server) - calm
        worst = sorted(waits.items(), key=lambda item: -item[1])[:5]
        print(f"{others.asked} small requests beside; longest waits {worst}, aim {AIM_S} s; {grown >> 20} MiB more")
        assert grown <= MOST_MEMORY
        assert census(outside) == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "place"]
        assert sorted(path.name for path in place.iterdir()) == ["0.err", "0.out", "data"]
        state_is_written(broker, namesrv, place)
        assert server.interrupt(signal.SIGINT)[0] == 0, server.err[-2000:]
        server.assert_no_traceback()
        assert "Task exception" not in server.err
    with running(place) as (server, broker, namesrv):
        assert read_kept(namesrv) == sorted(bodies)
        assert committed(namesrv) == 7
        assert server.interrupt(signal.SIGINT)[0] == 0
        server.assert_no_traceback()
    assert census(outside) == before
    print(f"{time.process_time() - began:.1f} s of the test's own processor time")


def attack(address: str, code: RequestCode, outside: str, seed: int, share: int, others: Others) -> float:
    """Send all hostile requests of a code; return the longest wait of other clients, if it repeats."""
    others.longest_s()
    send_all(address, code, outside, seed, share)
    wait_s = others.longest_s()
    if wait_s > MOST_WAIT_S:
        # A busy machine stops all processes sometimes, but not twice at the same request.
        send_all(address, code, outside, seed, share)
        wait_s = min(wait_s, others.longest_s())
    assert wait_s <= MOST_WAIT_S, f"{code.name} stops others for {wait_s:.2f} s"
    return wait_s


def mixed(broker: str, namesrv: str, outside: str, seed: int, share: int) -> None:
    """Send some requests of every code in the order of the seed; then many at once, without reading the replies."""
    chance = random.Random(seed)
    some = [
        request
        for code in RequestCode
        for request in chance.sample(hostile.requests(code, outside, seed), SAMPLE // share)
        if len(request.body) < hostile.MEBIBYTE
    ]
    chance.shuffle(some)
    few_bytes = [one for one in some if hostile.small(one)]
    for address in (broker, namesrv):
        line = Line(address)
        for request in some:
            line.ask(request)
        line.close()
        host, _, port = address.rpartition(":")
        for _ in range(BURSTS):
            with socket.create_connection((host, int(port)), 5) as burst, contextlib.suppress(OSError):
                burst.settimeout(5)
                burst.sendall(b"".join(one.frame(1) for one in chance.choices(few_bytes, k=1_000)))


def send_all(address: str, code: RequestCode, outside: str, seed: int, share: int) -> None:
    """Send one in `share` hostile requests of a code and each one with a big body, one after the other."""
    line = Line(address)
    made = [
        request
        for number, request in enumerate(hostile.requests(code, outside, seed))
        if number % share == 0 or request.what.startswith("big body")
    ]
    probe = line.ask(hostile.Hostile(code, "usual", hostile.usual_fields(code)))
    if probe == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        del made[UNSERVED // share :]
    for request in made:
        line.ask(request)
    line.close()


def state_is_written(broker: str, namesrv: str, place: Path) -> None:
    """Check that topics created and offsets committed now reach the files."""
    queue = MessageQueue(KEPT, "", 0)
    with sync.Admin(namesrv) as admin:
        admin.topics.create("made-after")
    line = Line(broker)
    fields = {"consumerGroup": READER, "topic": KEPT, "queueId": str(queue.queue_id), "commitOffset": "7"}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    assert line.ask(hostile.Hostile(code, "commit", fields), 5) == ResponseCode.SUCCESS
    line.close()

    def text(name: str) -> str:
        return "".join(path.read_text() for path in place.joinpath("data").rglob(name))

    until(lambda: "made-after" in text("topics.json"))
    until(lambda: f"{KEPT}@{READER}" in text("consumerOffset.json"))


def committed(namesrv: str) -> Any:
    """Return the reader's committed offset of the first queue."""
    with sync.PullConsumer(READER, namesrv, auto_commit=False) as consumer:
        return consumer.committed(consumer.queues(KEPT)[0])
