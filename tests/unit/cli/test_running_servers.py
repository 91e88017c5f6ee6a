"""Servers under a service manager and a log collector: JSON lines, log levels changed at run time, notifications."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import pytest
from processes import Tianzhou, serve

from tianzhou import sync
from tianzhou.errors import BrokerError
from tianzhou.model import Message

LIMIT_S = 30.0
PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "backup.md"
STOPPED = " stopped"


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_server_logs_json_takes_levels_and_tells_systemd(
    brokers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(LIMIT_S)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("TIANZHOU_LOG_FORMAT", "json")
        with serve(tmp_path, "--brokers", brokers, "--log-level", "INFO,tianzhou.broker.server=ERROR") as server:
            assert systemd.recv(4096) == b"STATUS=starting"
            ready = server.ready()
            assert systemd.recv(4096) == b"READY=1\nSTATUS=serving"
            assert "listens on port" not in server.err, "less is logged where less is asked for"
            with sync.Admin(ready["namesrv"]) as admin:
                for broker in ready["brokers"]:
                    with pytest.raises(BrokerError, match=r"logLevels=tianzhou\.broker=LOUD: 'LOUD' is no level"):
                        admin.cluster.update_broker_config(broker["address"], {"logLevels": "tianzhou.broker=LOUD"})
                    admin.cluster.update_broker_config(broker["address"], {"logLevels": "tianzhou.broker.server=INFO"})
            assert server.interrupt(signal.SIGTERM)[0] == 0
            assert systemd.recv(4096) == b"STOPPING=1\nSTATUS=stopping"
            records = [json.loads(line) for line in server.err.splitlines()]
            assert all({"time", "level", "logger", "message", "process"} <= record.keys() for record in records)
            stopped = {(record.get("broker"), record["process"]) for record in records if STOPPED in record["message"]}
            names = {broker["name"] if brokers > 1 else None: broker["pid"] for broker in ready["brokers"]}
            assert stopped == set(names.items())


def test_what_keeps_a_server_from_starting_is_json_too(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-format", "json", "--set", "logLevels=tianzhou.remoting=LOUD") as server:
        assert server.wait() == 2
        (record,) = [json.loads(line) for line in server.err.splitlines()]
        assert "logLevels=tianzhou.remoting=LOUD: 'LOUD' is no level" in record["message"]


def store(folder: Path, *words: object) -> None:
    """Run a `store` command in a folder to its end."""
    with Tianzhou(folder, "store", *words) as command:
        assert command.wait() == 0, command.err


def read(namesrv: str) -> list[tuple[str, bytes]]:
    """Return broker and body of each message of the topic."""
    found = []
    with sync.PullConsumer("reader", namesrv) as consumer:
        for queue in consumer.queues("orders"):
            offset = consumer.min_offset(queue)
            while messages := consumer.pull(queue, offset, max_messages=32).messages:
                found += [(queue.broker_name, message.body) for message in messages]
                offset = messages[-1].queue_offset + 1
    return found


def test_a_broker_that_is_copied_while_it_runs_has_what_was_stored_before(tmp_path: Path) -> None:
    assert "tianzhou store backup" in PAGE.read_text(encoding="utf-8")
    done = threading.Event()

    def send(namesrv: str) -> None:
        with sync.Producer("later", namesrv) as producer:
            while not done.is_set():
                producer.send(Message("orders", b"later"))

    with serve(tmp_path) as server:
        namesrv = server.ready()["namesrv"]
        with sync.Producer("first", namesrv) as producer:
            for number in range(500):
                producer.send(Message("orders", b"%d" % number))
        sending = threading.Thread(target=send, args=(namesrv,))
        sending.start()
        try:
            store(tmp_path, "backup", tmp_path / "data", "--to", tmp_path / "backup")
        finally:
            done.set()
            sending.join(LIMIT_S)
        server.interrupt(signal.SIGTERM)
    store(tmp_path, "restore", tmp_path / "backup", "--to", tmp_path / "copy")
    with serve(tmp_path, "--data", tmp_path / "copy") as server:
        bodies = [body for _, body in read(server.ready()["namesrv"])]
        assert {b"%d" % number for number in range(500)} <= set(bodies)
        assert len(bodies) == len([body for body in bodies if body == b"later"]) + 500


def test_several_brokers_are_copied_together_while_they_run(tmp_path: Path) -> None:
    with serve(tmp_path, "--brokers", 2) as server:
        namesrv = server.ready()["namesrv"]
        with sync.Admin(namesrv) as admin, sync.Producer("first", namesrv) as producer:
            admin.topics.create("orders", read_queue_nums=1, write_queue_nums=1)
            for number in range(200):
                producer.send(Message("orders", b"%d" % number))
        store(tmp_path, "backup", tmp_path / "data", "--to", tmp_path / "backup")
        server.interrupt(signal.SIGTERM)
    store(tmp_path, "restore", tmp_path / "backup", "--to", tmp_path / "copy")
    with serve(tmp_path, "--data", tmp_path / "copy") as server:
        found = read(server.ready()["namesrv"])
    assert {broker for broker, _ in found} == {"broker-a", "broker-b"}
    assert sorted(body for _, body in found) == sorted(b"%d" % number for number in range(200))
