"""`tianzhou serve --brokers N` as real processes: one dies, all end, a folder grows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from processes import Tianzhou, serve

from process_tree import children
from tianzhou import sync
from tianzhou.broker.server import free_port_pair
from tianzhou.errors import TianzhouError
from tianzhou.model import Message, MessageQueue, SendStatus
from waiting import WITHIN_S, until


def alive(pid: int) -> bool:
    """Whether a process runs; an ended process that was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pids(ready: dict[str, Any]) -> dict[str, int]:
    return {broker["name"]: broker["pid"] for broker in ready["brokers"]}


def child(server: Tianzhou, name: str) -> int | None:
    """Return the current process of a broker."""
    for pid in children(server.pid):
        with contextlib.suppress(OSError):
            if f'"name":"{name}"'.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


@contextlib.contextmanager
def served(folder: Path, *args: object) -> Iterator[tuple[Tianzhou, dict[str, Any]]]:
    """Yield a server, whose brokers have ended at the end, too."""
    with serve(folder, *args) as server:
        ready: dict[str, Any] = {"brokers": []}
        try:
            ready = server.ready()
            yield server, ready
        finally:
            left = [child(server, name) for name in pids(ready)] if server.process.poll() is None else []
            server.process.kill()
            server.process.wait()
            until(lambda: not any(alive(pid) for pid in [*left, *pids(ready).values()] if pid))


def stored(namesrv: str, topic: str) -> dict[bytes, str]:
    """Return every message of a topic, and the broker that has it."""
    with sync.PullConsumer("reader", namesrv, auto_commit=False) as consumer:
        found: dict[bytes, str] = {}
        for queue in consumer.queues(topic):
            at, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while at < end:
                pulled = consumer.pull(queue, at)
                found |= {message.body: queue.broker_name for message in pulled.messages}
                at = pulled.next_offset
        return found


class Load(threading.Thread):
    """Sends without a pause; records acknowledged and failed messages."""

    def __init__(self, namesrv: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.namesrv = namesrv
        self.topic = topic
        self.acknowledged: list[tuple[bytes, str]] = []
        self.failed = 0
        self.over = threading.Event()

    def run(self) -> None:
        # Routes are refreshed every second, so that no test waits half a minute.
        with sync.Producer("load", self.namesrv, poll_name_server_interval_ms=1_000) as producer:
            number = 0
            while not self.over.is_set():
                body = b"%d" % number
                number += 1
                try:
                    result = producer.send(Message(self.topic, body))
                except TianzhouError:
                    self.failed += 1
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged.append((body, result.queue.broker_name))

    def on(self, broker: str, since: int = 0) -> int:
        return sum(name == broker for _, name in self.acknowledged[since:])


def test_a_broker_that_is_killed_under_load_comes_back_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with served(tmp_path, "--brokers", 2) as (server, ready):
        namesrv = ready["namesrv"]
        assert [broker["name"] for broker in ready["brokers"]] == ["broker-a", "broker-b"]
        first = pids(ready)
        with sync.Admin(namesrv) as admin:
            admin.topics.create("orders", read_queue_nums=2, write_queue_nums=2)
        seen: dict[bytes, float] = {}

        def handle(message: Any) -> None:
            seen.setdefault(message.body, time.monotonic())

        consumer = sync.PushConsumer("billing", namesrv, poll_name_server_interval_ms=1_000)
        consumer.subscribe("orders", handler=handle)
        load = Load(namesrv, "orders")
        with consumer:
            load.start()
            until(lambda: load.on("broker-a") > 50 and load.on("broker-b") > 50 and len(seen) > 50)
            os.kill(first["broker-b"], signal.SIGKILL)
            at, killed = len(load.acknowledged), time.monotonic()
            # Messages of the other broker are sent and consumed meanwhile.
            until(lambda: load.on("broker-a", at) > 50)
            until(lambda: sum(when > killed for when in list(seen.values())) > 50)
            # The broker returns, for producers and consumers.
            until(lambda: "broker-b serves again" in server.err)
            back = len(load.acknowledged)
            until(lambda: load.on("broker-b", back) > 50)
            load.over.set()
            load.join(WITHIN_S)
            sent = dict(load.acknowledged)
            until(lambda: len(seen.keys() & sent.keys()) == len(sent))
        assert sent.keys() <= stored(namesrv, "orders").keys()
        assert load.failed <= 5, "others were there to be sent to"
        assert f"broker-b: process {first['broker-b']} was ended by SIGKILL" in server.err
        assert child(server, "broker-a") == first["broker-a"]
        again = child(server, "broker-b")
        assert again not in (None, first["broker-b"])
        # Each line names its broker.
        assert all("broker-b" in line for line in server.err.splitlines()), server.err
        with Tianzhou(tmp_path, "status", "-o", "json", namesrv=namesrv) as asking:
            assert asking.wait() == 0
            document = json.loads(asking.out)
        assert {one["broker"]: one["address"] for one in document["brokers"]} == {
            one["name"]: one["address"] for one in ready["brokers"]
        }
        code, took = server.interrupt(signal.SIGTERM)
        assert (code, took < 6) == (0, True), server.err
        assert not any(alive(pid) for pid in (first["broker-a"], again) if pid)
        for home in (tmp_path / "data", tmp_path / "data" / "broker-b"):
            assert not (home / "store" / "abort").exists()
            assert list((home / "store" / "commitlog").iterdir())


def test_a_proof_goes_through_while_a_broker_is_killed(tmp_path: Path) -> None:
    with served(tmp_path, "--brokers", 2) as (server, ready):
        ledger = tmp_path / "ledger"
        prove = ("prove", "orders", "--seconds", 5, "--rate", 300, "--ledger", ledger, "-o", "json")
        with Tianzhou(tmp_path, *prove, namesrv=ready["namesrv"]) as proving:
            until(lambda: ledger.exists() and ledger.read_text().count("\n") > 200, "some are acknowledged")
            os.kill(pids(ready)["broker-b"], signal.SIGKILL)
            until(lambda: "broker-b serves again" in server.err)
            assert proving.wait() == 0, proving.out
            found = json.loads(proving.out)
        assert found["proven"]
        assert found["acknowledged"] == found["consumed"] == ledger.read_text().count("\n")
        assert {one["read_whole"] for one in found["replicas"]} == {True}


def test_brokers_end_in_order_when_the_command_is_killed_and_can_be_served_again_at_once(tmp_path: Path) -> None:
    with served(tmp_path, "--brokers", 2) as (server, ready):
        with sync.Producer("tests", ready["namesrv"]) as producer:
            # The first request creates the topic; soon all brokers have it.
            producer.send(Message("orders", b"first"))
            with sync.Admin(ready["namesrv"]) as admin:
                until(lambda: admin.topics.exists("orders") and len(admin.topics.describe("orders").configs) == 2)
            for number in range(40):
                name = ("broker-a", "broker-b")[number % 2]
                producer.send(Message("orders", b"%d" % number), queue=MessageQueue("orders", name, number % 4))
        server.process.kill()
        server.process.wait()
        with served(tmp_path) as (again, once_more):
            assert [broker["name"] for broker in once_more["brokers"]] == ["broker-a", "broker-b"]
            assert not any(alive(pid) for pid in pids(ready).values())
            found = stored(once_more["namesrv"], "orders")
            assert found.keys() == {b"first", *(b"%d" % number for number in range(40))}
            assert set(found.values()) == {"broker-a", "broker-b"}
            assert again.interrupt(signal.SIGINT)[0] == 0


def test_a_folder_of_one_broker_grows_keeps_its_messages_and_its_ports(tmp_path: Path) -> None:
    base = free_port_pair("127.0.0.1")
    with serve(tmp_path, "--namesrv-port", 0, "--broker-port", base) as one:
        namesrv = one.ready()["namesrv"]
        with sync.Producer("tests", namesrv) as producer:
            for number in range(20):
                producer.send(Message("orders", b"%d" % number))
        assert one.interrupt()[0] == 0
    with served(tmp_path, "--brokers", 2, "--namesrv-port", 0, "--broker-port", base) as (two, ready):
        addresses = {broker["name"]: broker["address"] for broker in ready["brokers"]}
        assert addresses["broker-a"] == f"127.0.0.1:{base}"
        assert int(addresses["broker-b"].rpartition(":")[2]) > base
        with sync.Admin(ready["namesrv"]) as admin:
            assert admin.topics.describe("orders").configs.keys() == {"broker-a", "broker-b"}
        with sync.Producer("tests", ready["namesrv"]) as producer:
            for number in range(20, 24):
                producer.send(Message("orders", b"%d" % number), queue=MessageQueue("orders", "broker-b", 0))
        assert len(stored(ready["namesrv"], "orders")) == 24
        assert two.interrupt()[0] == 0
    # Without the option, the folder's number of brokers starts, at the same addresses.
    with served(tmp_path, "--namesrv-port", 0, "--broker-port", base) as (again, ready):
        assert {broker["name"]: broker["address"] for broker in ready["brokers"]} == addresses
        found = stored(ready["namesrv"], "orders")
        assert sorted(map(int, found)) == list(range(24))
        assert again.interrupt()[0] == 0
    with serve(tmp_path, "--brokers", 1) as refused:
        assert refused.wait() == 2
        assert "--brokers 1: --data data also holds messages of broker-b, which nobody would serve" in refused.err
    with Tianzhou(tmp_path, "store", "check", "data") as checking:
        assert checking.wait() == 2
        assert "holds the stores of 2 brokers; name one: data/store, data/broker-b/store" in checking.err


@pytest.mark.parametrize("taken", ["port", pytest.param("store", marks=pytest.mark.slow)])
def test_a_broker_that_cannot_start_ends_the_command_with_its_reason(tmp_path: Path, taken: str) -> None:
    with serve(tmp_path, "--brokers", 2) as first:
        ready = first.ready()
        port = int(ready["brokers"][0]["address"].rpartition(":")[2])
        args = ["--namesrv-port", 0, "--broker-port", port if taken == "port" else 0]
        with serve(tmp_path, "--brokers", 2, *args, data="other" if taken == "port" else "data") as second:
            assert second.wait() == 2
            if taken == "port":
                assert f"cannot listen on 127.0.0.1:{port}: the port is taken" in second.err
                assert "set --broker-port to a free port" in second.err
            else:
                assert "is in use by process" in second.err
                assert "stop that server, or give another folder" in second.err
            assert second.out == ""
        assert first.interrupt()[0] == 0
