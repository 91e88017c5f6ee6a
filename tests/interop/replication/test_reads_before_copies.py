"""A master of ours with zero loss and Apache's slave: consumers get only messages that the slave has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import frames
import pytest
from apache import ApacheBroker
from own import OwnBroker, name_server
from toolchain import SERVERS, ToolchainMissingError

from tianzhou import sync
from tianzhou.model import Message, MessageQueue, SendStatus
from waiting import until

TOPIC, EARLY, LATE = "orders", 20, 200
COMMON = {"mappedFileSizeCommitLog": 1 << 20, "haSendHeartbeatInterval": 1000}
PULL = {
    "consumerGroup": "g", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
}  # fmt: skip


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "version", [SERVERS[0], *(pytest.param(version, marks=pytest.mark.slow) for version in SERVERS[1:])]
)
def test_consumers_read_what_apaches_slave_has(version: str, tmp_path: Path, stack: ExitStack) -> None:
    namesrv = stack.enter_context(name_server(tmp_path))
    master = OwnBroker(namesrv, tmp_path / "m", tmp_path / "mh", {**COMMON, "durability": "zero-loss"})
    stack.callback(master.kill)
    master.start()
    frames.create_topic(namesrv, master.address, TOPIC, 1)

    def end() -> int:
        return int(frames.call(master.address, 30, {"topic": TOPIC, "queueId": 0}).fields["offset"])

    with sync.Producer("p", namesrv) as producer:
        queue = MessageQueue(TOPIC, "broker-a", 0)
        for number in range(EARLY):
            message = Message(TOPIC, b"%d" % number, wait_store_ok=False)
            assert producer.send(message, queue=queue).status is SendStatus.SEND_OK
        assert end() == 0
        assert frames.call(master.address, 11, PULL).code == 19
        conf = {**COMMON, "brokerRole": "SLAVE", "brokerId": 1, "flushDiskType": "SYNC_FLUSH"}
        try:
            slave = ApacheBroker(namesrv, store_dir=tmp_path / "s", home=tmp_path / "sh", version=version, conf=conf)
        except ToolchainMissingError as error:
            pytest.skip(str(error))
        stack.callback(slave.kill)
        slave.start()
        until(lambda: end() == EARLY, "the slave has the messages, and consumers read them", within_s=60)
        assert frames.call(master.address, 11, PULL).code == 0
        for number in range(EARLY, LATE):
            assert producer.send(Message(TOPIC, b"%d" % number), queue=queue).status is SendStatus.SEND_OK
            assert end() == number + 1
