"""Slaves that begin with the last segment of Apache's log: our slave reports the same queues as Apache's slave."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import frames
import pytest
from apache import ApacheBroker
from own import OwnBroker, name_server
from toolchain import ToolchainMissingError

from tianzhou import sync
from tianzhou.model import Message, MessageQueue
from waiting import until

TOPIC = "orders"
QUEUES = 2
MESSAGES = 400
MIN_OFFSET, MAX_OFFSET, BY_TIME, FIRST_TIME = 31, 30, 29, 32
COMMON = {"mappedFileSizeCommitLog": 1 << 20, "haSendHeartbeatInterval": 1000}


def answers(address: str, times: tuple[int, ...] = ()) -> list[tuple[str, ...]]:
    """Return a broker's answers about each queue: its bounds, its first store time, and the offsets of some times."""
    found = []
    for queue in range(QUEUES):
        place = {"topic": TOPIC, "queueId": queue}
        asked = [(MIN_OFFSET, place), (MAX_OFFSET, place), (FIRST_TIME, place)]
        for at_ms in times:
            asked += [(BY_TIME, {**place, "timestamp": at_ms, "boundaryType": side}) for side in ("LOWER", "UPPER")]
        replies = [frames.call(address, code, fields) for code, fields in asked]
        assert {reply.code for reply in replies} == {0}
        found.append(tuple(reply.fields.get("offset") or reply.fields["timestamp"] for reply in replies))
    return found


@pytest.mark.slow
def test_queues_of_a_late_slave_begin_where_apaches_do(tmp_path: Path) -> None:
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(tmp_path))
        slave = {**COMMON, "brokerRole": "SLAVE"}
        try:
            master = ApacheBroker(namesrv, version="5.3.3", conf={**COMMON, "brokerRole": "ASYNC_MASTER"})
            theirs = ApacheBroker(namesrv, version="5.3.3", conf={**slave, "brokerId": 2})
            ours = OwnBroker(namesrv, tmp_path / "s", tmp_path / "sh", {**slave, "brokerId": 1})
            for broker in (master, theirs, ours):
                stack.callback(broker.kill)
            master.start()
            with sync.Producer("p", namesrv) as producer:
                for number in range(MESSAGES):
                    queue = MessageQueue(TOPIC, "broker-a", number % QUEUES)
                    if number < QUEUES:
                        producer.send(Message(TOPIC, b"first"))
                    producer.send(Message(TOPIC, random.randbytes(8_000)), queue)  # no compression helps
            ends = [row[1] for row in answers(master.address)]
            theirs.start()
            ours.start()
        except ToolchainMissingError as error:
            pytest.skip(str(error))
        for one in (theirs, ours):
            until(lambda one=one: [row[1] for row in answers(one.address)] == ends, "all is copied", within_s=60)
        first_ms = min(int(row[2]) for row in answers(theirs.address))
        times = (1, first_ms - 1, first_ms, first_ms + 5, first_ms + 10**9)
        expected = answers(theirs.address, times)
        assert all(0 < int(row[0]) < int(row[1]) for row in expected)
        assert answers(ours.address, times) == expected
        ours.stop()
        ours.start()
        assert answers(ours.address, times) == expected
