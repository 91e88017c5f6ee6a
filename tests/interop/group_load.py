"""Load on a group while members join and leave, and the comparison of each member's messages."""

from __future__ import annotations

import itertools
import time
from threading import Event, Thread
from typing import Self

import frames
from apache import ApacheBroker
from groups import Group
from own import OwnBroker

from tianzhou import sync
from tianzhou.errors import TianzhouError
from tianzhou.model import Message, SendStatus
from waiting import until

TOPIC = "orders"
QUEUES = 4
PAUSE_S = 0.004
ALL_TOPICS = 21
"""GET_ALL_TOPIC_CONFIG"""


def create_topic(running: Group) -> None:
    """Create the topic, and wait until all members have it."""
    frames.create_topic(running.namesrv, running.members[running.leader()].address, TOPIC, QUEUES)
    for member in running.members:
        # Apache's followers copy the leader's table every ten seconds.
        until(lambda a=member.address: _queues(a) == QUEUES, "all know the topic", within_s=60)


def _queues(address: str) -> int:
    """Return the number of the topic's queues in a member's table; 0 without the topic."""
    table = frames.call(address, ALL_TOPICS).json()["topicConfigTable"]
    return int(table.get(TOPIC, {}).get("writeQueueNums", 0))


def ends(address: str) -> list[int] | None:
    """Return the end offset of each queue at a member; None while it does not have the topic."""
    replies = [frames.call(address, 30, {"topic": TOPIC, "queueId": queue}) for queue in range(QUEUES)]
    return [int(reply.fields["offset"]) for reply in replies] if all(reply.code == 0 for reply in replies) else None


def await_caught_up(running: Group, number: int) -> None:
    """Wait until a member has all messages that the leader has now."""
    wanted = ends(running.members[running.leader()].address)
    assert wanted is not None

    def caught_up() -> bool:
        have = ends(running.members[number].address)
        return have is not None and all(one >= other for one, other in zip(have, wanted, strict=True))

    until(caught_up, f"n{number} has what the leader has", within_s=120, every_s=0.1)


class Load:
    """Sends from a thread until it is stopped, and records the acknowledged messages.

    Args:
        namesrv: address of the name server.
        prefix: prefix of the bodies, so that loads have different ones.
        pause_s: seconds between two sends. Without a pause the load and the members use all processors, and elections
            are too slow for the tests.
    """

    def __init__(self, namesrv: str, prefix: str = "", pause_s: float = PAUSE_S) -> None:
        self._namesrv = namesrv
        self._prefix = prefix.encode()
        self._pause_s = pause_s
        self._stopped = Event()
        self._thread = Thread(target=self._run)
        self.acknowledged: list[bytes] = []
        self.acknowledged_s: list[float] = []
        self.failures: list[TianzhouError] = []

    def _run(self) -> None:
        with sync.Producer(
            "load", self._namesrv, poll_name_server_interval_ms=500, send_msg_timeout_ms=3000
        ) as producer:
            number = 0
            while not self._stopped.is_set():
                number += 1
                body = self._prefix + b"%d" % number
                try:
                    if producer.send(Message(TOPIC, body)).status is SendStatus.SEND_OK:
                        self.acknowledged.append(body)
                        self.acknowledged_s.append(time.monotonic())
                except TianzhouError as error:
                    self.failures.append(error)
                    self._stopped.wait(0.05)
                self._stopped.wait(self._pause_s)

    def longest_gap_s(self) -> float:
        """Return the longest time between two acknowledged sends, seconds."""
        return max(later - earlier for earlier, later in itertools.pairwise(self.acknowledged_s))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)


def stored(address: str) -> list[bytes]:
    """Return the bodies of all messages of the topic at a member, queue by queue; fail if an offset exists twice."""
    bodies = []
    for queue in range(QUEUES):
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


def entries_of(member: OwnBroker | ApacheBroker) -> bytes:
    """Return the bytes of a member's log, without the unwritten rest."""
    (folder,) = member.store_dir.glob("dledger-*/data")
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir())).rstrip(b"\0")


def equal_logs(running: Group) -> bool:
    """Whether all members have the same entries.

    Queues are not compared: those of Apache's members may have one offset for two messages after a change of leader
    (docs/adr/0015).
    """
    first, *others = map(entries_of, running.members)
    return all(other == first for other in others)
