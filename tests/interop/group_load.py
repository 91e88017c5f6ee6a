"""What is sent to a group while members come and go, and what each of them has of it then."""

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
    """Make the topic, and wait until all members know it."""
    frames.create_topic(running.namesrv, running.members[running.leader()].address, TOPIC, QUEUES)
    for member in running.members:
        # Apache's followers look at the leader's table every ten seconds.
        until(lambda a=member.address: _queues(a) == QUEUES, "all know the topic", within_s=60)


def _queues(address: str) -> int:
    """How many queues a member's table has of the topic; 0 without it."""
    table = frames.call(address, ALL_TOPICS).json()["topicConfigTable"]
    return int(table.get(TOPIC, {}).get("writeQueueNums", 0))


def ends(address: str) -> list[int] | None:
    """Offsets behind the last message of each queue at a member; None while it does not know the topic."""
    replies = [frames.call(address, 30, {"topic": TOPIC, "queueId": queue}) for queue in range(QUEUES)]
    return [int(reply.fields["offset"]) for reply in replies] if all(reply.code == 0 for reply in replies) else None


def await_caught_up(running: Group, number: int) -> None:
    """Wait until a member has what the leader has now."""
    wanted = ends(running.members[running.leader()].address)
    assert wanted is not None

    def caught_up() -> bool:
        have = ends(running.members[number].address)
        return have is not None and all(one >= other for one, other in zip(have, wanted, strict=True))

    until(caught_up, f"n{number} has what the leader has", within_s=120, every_s=0.1)


class Load:
    """Sends from a thread until it is stopped, and remembers what was acknowledged.

    Args:
        namesrv: address of the name server.
        prefix: of the bodies, so that none is another load's.
        pause_s: seconds between two sends. Without a pause the load and the members take all processors, of which the
            elections that tests wait for need a part.
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
    """Bodies of all messages of the topic at a member, queue by queue; no offset may be there twice."""
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
    """The bytes of a member's log, without what is not written yet."""
    (folder,) = member.store_dir.glob("dledger-*/data")
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir())).rstrip(b"\0")


def equal_logs(running: Group) -> bool:
    """Whether all members have the same entries. What Apache's serve of them is another matter: its queues may have
    one offset for two messages after a change of leader (docs/adr/0015)."""
    first, *others = map(entries_of, running.members)
    return all(other == first for other in others)
