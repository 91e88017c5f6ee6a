"""Pairs of real processes whose master loses messages, or dies while its slave lags; a ledger checks each message."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import frames
import pytest
from group_load import QUEUES, TOPIC, Load, ends, stored
from own import OwnBroker, name_server, spawn

from forked_commands import Forked
from tianzhou import sync
from tianzhou.model import ConsumeFromWhere, Message, MessageExt, SendStatus
from waiting import until

HA_STATUS, RUNTIME_INFO = 907, 28
COMMON = {"mappedFileSizeCommitLog": 1 << 20, "haSendHeartbeatInterval": 500}
BEFORE, AFTER = 200, 160
"""Acknowledged messages before the backup of the master, and after it."""


def send_all(namesrv: str, first: int, count: int) -> list[bytes]:
    """Send messages, check that each is acknowledged, and return their bodies."""
    bodies = [b"%d" % number for number in range(first, first + count)]
    with sync.Producer("p", namesrv, durable=True) as producer:
        for body in bodies:
            assert producer.send(Message(TOPIC, body)).status is SendStatus.SEND_OK
    return bodies


def consumed(namesrv: str, wanted: int) -> Counter[bytes]:
    """Return the messages and their counts that a new group consumes until it has `wanted` different messages."""
    found: Counter[bytes] = Counter()
    with sync.PullConsumer(
        "readers", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.assign(consumer.queues(TOPIC))
        until(lambda: found.update(one.body for one in consumer.poll(500)) or len(found) >= wanted, "consumed")
        found.update(one.body for one in consumer.poll(500))
    return found


def halted(slave: OwnBroker) -> str:
    """Return the reason why a slave has halted, from code 907; empty while it copies."""
    return str(frames.call(slave.address, HA_STATUS).json()["haClientRuntimeInfo"].get("haHalted", ""))


@dataclass
class Restored:
    """A pair whose master was restored from an older backup."""

    namesrv: str
    master: OwnBroker
    slave: OwnBroker
    acknowledged: list[bytes]


def restored(folder: Path, stack: ExitStack, conf: dict[str, object]) -> Restored:
    """Let a pair store messages, and restore the master's folder from a backup without the last of them."""
    namesrv = stack.enter_context(name_server(folder))
    master = OwnBroker(namesrv, folder / "m", folder / "mh", {**COMMON, **conf})
    slave_conf = {key: value for key, value in conf.items() if key != "brokerRole"}
    slave = OwnBroker(
        namesrv, folder / "s", folder / "sh", {**COMMON, **slave_conf, "brokerRole": "SLAVE", "brokerId": 1}
    )
    for broker in (master, slave):
        stack.callback(broker.kill)
        broker.start()
    until(lambda: _in_sync(master), "the slave is in sync")
    frames.create_topic(namesrv, master.address, TOPIC, QUEUES)
    acknowledged = send_all(namesrv, 0, BEFORE)
    master.stop()
    shutil.copytree(folder / "m", folder / "backup")
    master.start()
    until(lambda: _in_sync(master), "the slave is in sync")
    acknowledged += send_all(namesrv, BEFORE, AFTER)
    until(lambda: sum(ends(slave.address) or []) == BEFORE + AFTER, "copied")
    master.stop()
    shutil.rmtree(folder / "m")
    shutil.move(folder / "backup", folder / "m")
    master.start()
    return Restored(namesrv, master, slave, acknowledged)


def _in_sync(master: OwnBroker) -> bool:
    return bool(frames.call(master.address, HA_STATUS).json()["inSyncSlaveNums"])


def restart(broker: OwnBroker, *options: str) -> Forked:
    """Start a stopped broker with the options of its log line, with its existing configuration file."""
    return spawn(broker.home / "console.log", "broker", "-c", broker.home / "broker.conf", *options)


def exported(folder: Path) -> list[bytes]:
    """Return the bodies that `tianzhou store export` prints for a folder."""
    command = [sys.executable, "-m", "tianzhou", "store", "export", str(folder)]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    return [str(json.loads(line)["body"]).encode() for line in lines]


@pytest.mark.parametrize("choice", ["--promote", pytest.param("--allow-cut", marks=pytest.mark.slow)])
def test_a_zero_loss_slave_keeps_what_its_restored_master_lost(tmp_path: Path, choice: str) -> None:
    with ExitStack() as stack:
        pair = restored(tmp_path, stack, {"durability": "zero-loss"})
        slave, acknowledged = pair.slave, pair.acknowledged
        reason = until(lambda: halted(slave), "halted")
        assert f"{AFTER} messages" in reason
        assert frames.call(slave.address, RUNTIME_INFO).json()["table"]["haHalted"] == reason
        log = (slave.home / "console.log").read_text()
        (line,) = [one for one in log.splitlines() if "durability=zero-loss: this slave" in one and "ERROR" in one]
        assert f"tianzhou broker -c {slave.home / 'broker.conf'} {choice}" in line
        assert sorted(stored(slave.address)) == sorted(acknowledged)
        if choice == "--promote":
            # The former master still runs, so the slave refuses and changes no file.
            refused = restart(slave, choice)
            assert refused.wait(60) != 0
            assert "still answers" in slave.console()
            pair.master.stop()
        slave.stop()
        running = restart(slave, choice)
        stack.callback(running.wait)
        stack.callback(running.kill)
        if choice == "--promote":
            until(
                lambda: frames.masters(pair.namesrv, TOPIC) == [slave.address] and frames.accepts(slave.address),
                "the slave is the master",
            )
            assert sorted(stored(slave.address)) == sorted(acknowledged)
            assert consumed(pair.namesrv, BEFORE + AFTER) == Counter(acknowledged)
            return
        until(lambda: sum(ends(slave.address) or [-1]) == BEFORE, "cut")
        until(lambda: not halted(slave), "copying again")
        acknowledged = acknowledged[:BEFORE] + send_all(pair.namesrv, 10_000, 50)
        assert sorted(stored(slave.address)) == sorted(stored(pair.master.address)) == sorted(acknowledged)
        (folder,) = (slave.store_dir / "cut").iterdir()
        assert sorted(exported(folder)) == sorted(pair.acknowledged[BEFORE:])


@pytest.mark.slow
def test_another_slave_keeps_copies_of_what_it_cuts(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pair = restored(tmp_path, stack, {"brokerRole": "SYNC_MASTER"})
        slave = pair.slave
        until(lambda: sum(ends(slave.address) or [-1]) == BEFORE, "cut")
        (folder,) = (slave.store_dir / "cut").iterdir()
        assert sorted(exported(folder)) == sorted(pair.acknowledged[BEFORE:])
        log = (slave.home / "console.log").read_text()
        assert f"{AFTER} messages from" in log
        assert str(folder) in log
        assert halted(slave) == ""
        acknowledged = pair.acknowledged[:BEFORE] + send_all(pair.namesrv, 10_000, 50)
        assert sorted(stored(slave.address)) == sorted(acknowledged)


@dataclass
class Ledger:
    """The consumed messages of a group, with their counts."""

    counts: Counter[bytes] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def take(self, message: MessageExt) -> None:
        """Record a message."""
        with self.lock:
            self.counts[message.body] += 1


@pytest.mark.slow
def test_a_late_slave_repeats_no_messages_while_its_master_is_dead(tmp_path: Path) -> None:
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(tmp_path))
        master = OwnBroker(namesrv, tmp_path / "m", tmp_path / "mh", {**COMMON, "brokerRole": "ASYNC_MASTER"})
        slave = OwnBroker(namesrv, tmp_path / "s", tmp_path / "sh", {**COMMON, "brokerRole": "SLAVE", "brokerId": 1})
        for broker in (master, slave):
            stack.callback(broker.kill)
            broker.start()
        frames.create_topic(namesrv, master.address, TOPIC, QUEUES)
        until(lambda: (ends(slave.address) or [-1])[0] == 0, "the slave knows the topic")
        ledger = Ledger()
        consumer = sync.PushConsumer(
            "readers", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            poll_name_server_interval_ms=500, persist_consumer_offset_interval_ms=500,
        )  # fmt: skip
        consumer.subscribe(TOPIC, handler=ledger.take)
        stack.enter_context(consumer)
        with Load(namesrv, pause_s=0) as load:
            until(lambda: len(load.acknowledged) > 300, "sent")
            until(lambda: sum(ends(slave.address) or []) > 300, "copied")
            slave.stop()
            late = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > late + 600, "sent while the slave is away")
        until(lambda: len(ledger.counts) == len(load.acknowledged), "all is consumed")
        master.kill()
        slave.start()
        repeated = sum((ledger.counts - Counter(load.acknowledged)).values())
        # The consumer pulls from the slave, whose queues end hundreds of messages before the consumer's offsets.
        until(
            lambda: frames.call(slave.address, RUNTIME_INFO).json()["table"]["getMissTps"].split()[0] != "0.0", "asked"
        )
        master.start()
        with Load(namesrv, "more ") as more:
            until(lambda: len(more.acknowledged) > 50, "sent to the master that is back")
        sent = Counter(load.acknowledged) + Counter(more.acknowledged)
        until(lambda: sent.keys() <= ledger.counts.keys(), "all is consumed")
        assert Counter(stored(master.address)).keys() >= sent.keys()
        assert sum((ledger.counts - sent).values()) == repeated == 0
