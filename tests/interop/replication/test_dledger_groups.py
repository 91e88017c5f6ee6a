"""DLedger groups of ours, of Apache's and mixed: they elect, copy, fail over and lose nothing (broker.md §19)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Self

import frames
import pytest
from apache import ApacheBroker
from groups import OURS, Group, group
from own import OwnBroker
from toolchain import SERVERS, ToolchainMissingError

from tianzhou import sync
from tianzhou.errors import TianzhouError
from tianzhou.model import Message, SendStatus
from waiting import until

TOPIC = "orders"
MIXTURES = {
    "ours": (OURS, OURS, OURS),
    f"two-of-ours-{SERVERS[0]}": (OURS, OURS, SERVERS[0]),
    f"one-of-ours-{SERVERS[1]}": (OURS, SERVERS[1], SERVERS[1]),
}
SLOW_MIXTURES = {
    f"two-of-ours-{SERVERS[1]}": (OURS, OURS, SERVERS[1]),
    f"one-of-ours-{SERVERS[0]}": (OURS, SERVERS[0], SERVERS[0]),
}


class Load:
    """Sends from a thread until it is stopped, and remembers what was acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._stopped = Event()
        self._thread = Thread(target=self._run)
        self.acknowledged: list[bytes] = []

    def _run(self) -> None:
        with sync.Producer(
            "load", self._namesrv, poll_name_server_interval_ms=500, send_msg_timeout_ms=3000
        ) as producer:
            number = 0
            while not self._stopped.is_set():
                number += 1
                body = b"%d" % number
                try:
                    if producer.send(Message(TOPIC, body)).status is SendStatus.SEND_OK:
                        self.acknowledged.append(body)
                except TianzhouError:
                    self._stopped.wait(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)


def stored(address: str) -> list[bytes]:
    """Bodies of all messages of the topic at a member, queue by queue; no offset may be there twice."""
    bodies = []
    for queue in range(4):
        end = int(frames.call(address, 30, {"topic": TOPIC, "queueId": queue}).fields["offset"])
        offset = 0
        while offset < end:
            fields = {
                "consumerGroup": "g", "topic": TOPIC, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
                "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            }  # fmt: skip
            reply = frames.call(address, 11, fields)
            assert reply.code == 0, (address, queue, offset, reply)
            body = reply.body
            while body:
                size = int.from_bytes(body[:4], "big")
                assert int.from_bytes(body[20:28], "big") == offset
                at = 84
                length = int.from_bytes(body[at : at + 4], "big")
                bodies.append(body[at + 4 : at + 4 + length])
                offset += 1
                body = body[size:]
    return bodies


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param(kinds, id=name) for name, kinds in MIXTURES.items()),
        *(pytest.param(kinds, id=name, marks=pytest.mark.slow) for name, kinds in SLOW_MIXTURES.items()),
    ],
)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder: Path = tmp_path_factory.mktemp("group")
    try:
        with group(folder, request.param) as found:
            yield found
    except ToolchainMissingError as error:
        pytest.skip(str(error))


def entries_of(member: OwnBroker | ApacheBroker) -> bytes:
    """The bytes of a member's log, without what is not written yet."""
    (folder,) = member.store_dir.glob("dledger-*/data")
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir())).rstrip(b"\0")


def equal_logs(running: Group) -> bool:
    """Whether all members have the same entries. What Apache's serve of them is another matter: its queues may have
    one offset for two messages after a change of leader (docs/adr/0015)."""
    first, *others = map(entries_of, running.members)
    return all(other == first for other in others)


def test_each_leader_in_turn_dies_and_nothing_acknowledged_is_lost(running: Group) -> None:
    """Everyone who becomes the leader is killed under load and comes back; ours and Apache's get their turn."""
    leader = running.members[running.leader()].address
    frames.create_topic(running.namesrv, leader, TOPIC, 4)
    for member in running.members:
        # Apache's followers look at the leader's table every ten seconds.
        until(
            lambda m=member: frames.call(m.address, 30, {"topic": TOPIC, "queueId": 3}).code == 0,
            "all know",
            within_s=60,
        )
    with Load(running.namesrv) as load:
        until(lambda: len(load.acknowledged) > 100, "messages are acknowledged", within_s=60)
        for _ in range(3):
            leader = running.leader()
            running.members[leader].kill()
            before = len(load.acknowledged)
            running.leader(other_than=leader)
            until(lambda n=before: len(load.acknowledged) > n + 100, "it goes on", within_s=60)
            running.members[leader] = running.member(leader, running.kinds[leader])
            running.members[leader].launch()
            until(
                lambda n=leader: running.members[n].address in running.registered().values(), "it is back", within_s=90
            )
    until(lambda: equal_logs(running), "all members have the same log", within_s=60)
    for member in running.members:
        if isinstance(member, OwnBroker):
            until(lambda a=member.address: set(load.acknowledged) <= set(stored(a)), "all is served", within_s=60)
