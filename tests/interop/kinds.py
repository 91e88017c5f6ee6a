"""Messages of every kind that both versions of Apache's broker support, sent frame by frame."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field

from questions import Asker, Queue
from sends import PREPARED, Place, Refused, Sender

END_TRANSACTION = 37
CREATE_TOPIC = 17
CREATE_GROUP = 200
NOT_SERVED = 3
COMMIT, ROLLBACK = 8, 12
COMPRESSED = 0x1

PLAIN, LATER, DECIDED = "kinds_plain", "kinds_later", "kinds_decided"
GROUP, PRODUCER = "kinds_group", "kinds_producer"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
WAITING, HALF = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
QUEUES = 2
LEVELS = "1s 3s 1h"
"""Value of `messageDelayLevel`: delivered immediately, under the next broker, and never."""


@dataclass(frozen=True)
class Undecided:
    """A half message without a decision."""

    body: bytes
    place: Place


@dataclass
class Sent:
    """The sent messages, and their expected results.

    Attributes:
        plain: bodies by queue, in the order of their acknowledgements.
        later: bodies that are delivered after a delay, each once, by queue: 1 s later to queue 1, 3 s later to queue 0.
        decided: bodies of committed transactions, each once.
        retried: bodies that were sent back, each once.
        dead: bodies that were sent back for the last time.
        undecided: half messages.
        halves: log offsets of half messages, decided or not.
        never: bodies that must not reach any consumer.
        keys: topic and key of messages.
    """

    plain: dict[int, list[bytes]] = field(default_factory=lambda: {n: [] for n in range(QUEUES)})
    later: dict[int, list[bytes]] = field(default_factory=lambda: {n: [] for n in range(QUEUES)})
    decided: list[bytes] = field(default_factory=list)
    retried: list[bytes] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    halves: list[int] = field(default_factory=list)
    never: list[bytes] = field(default_factory=list)
    keys: list[tuple[str, str]] = field(default_factory=list)

    @property
    def tags(self) -> list[tuple[Queue, str]]:
        """Return queues and tag expressions for filtered pulls."""
        return [((PLAIN, n), tag) for n in range(QUEUES) for tag in ("tag0", "tag1 || 标签", "none")]


class Writer:
    """Sends messages of every kind to one broker.

    Args:
        asker: Connection to the broker.
        sent: Record of the sent messages.
        name: Name that distinguishes this round's messages.
    """

    def __init__(self, asker: Asker, sent: Sent, name: str) -> None:
        self._sender = Sender(asker, name)
        self._sent = sent
        self._name = name
        self._count = 0

    def create(self) -> None:
        """Create the topics and the group."""
        for topic in (PLAIN, LATER, DECIDED):
            self._sender.done(
                CREATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=QUEUES, writeQueueNums=QUEUES,
                perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False,
            )  # fmt: skip
        group = {"groupName": GROUP, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        self._sender.done(CREATE_GROUP, json.dumps(group).encode())

    def write(self) -> None:
        """Send one or more messages of every kind."""
        for number in range(24):
            properties = {"TAGS": f"tag{number % 3}"} if number % 4 else {"TAGS": "标签", "colour": "grün"}
            if number % 2:
                properties["KEYS"] = f"{self._name}-{number} every"
                self._sent.keys.append((PLAIN, f"{self._name}-{number}"))
            if number % 5 == 0:
                properties["WAIT"] = "false"
            body = self._body(f"plain {number} " * (1 + number * number))
            self._plain(number % QUEUES, body, properties, compress=number % 6 == 5)
        for size in (1, 3, 20):
            bodies = [self._body(f"batched {n} of {size}") for n in range(size)]
            self._sender.batch(PLAIN, 1, bodies)
            self._sent.plain[1] += bodies
        for level in (1, 2, 3):
            self._delayed(level)
        self._sent_back(level=1, into=self._sent.retried)
        self._sent_back(level=-1, into=self._sent.dead)
        self._sent.keys.append((PLAIN, "every"))

    def transactions(self) -> bool:
        """Send a committed, a rolled back and an undecided transaction; return whether the broker serves them."""
        for outcome in (COMMIT, ROLLBACK, None):
            body = self._body(f"transaction {outcome}")
            properties = {"TRAN_MSG": "true", "PGROUP": PRODUCER}
            try:
                half = Undecided(body, self._sender.send(DECIDED, 0, body, properties, PREPARED))
            except Refused as error:
                if "does not serve transactions" in str(error):
                    return False
                raise
            self._sent.halves.append(half.place.log_offset)
            if outcome is None:
                self._sent.undecided.append(half)
            else:
                assert self.decide(half, outcome)
        return True

    def decide(self, half: Undecided, outcome: int) -> bool:
        """Commit a transaction or roll it back; return whether the broker serves transactions."""
        unique = half.place.unique
        try:
            self._sender.done(
                END_TRANSACTION, topic=DECIDED, producerGroup=PRODUCER, tranStateTableOffset=half.place.queue_offset,
                commitLogOffset=half.place.log_offset, commitOrRollback=outcome, fromTransactionCheck=False,
                msgId=unique, transactionId=unique,
            )  # fmt: skip
        except Refused as error:
            if error.args[0] == NOT_SERVED:
                return False
            raise
        (self._sent.decided if outcome == COMMIT else self._sent.never).append(half.body)
        return True

    def _plain(self, queue_id: int, body: bytes, properties: dict[str, str], *, compress: bool = False) -> Place:
        stored = zlib.compress(body) if compress else body
        self._sent.plain[queue_id].append(stored)
        return self._sender.send(PLAIN, queue_id, stored, properties, COMPRESSED if compress else 0)

    def _delayed(self, level: int) -> None:
        """Send a delayed message; level 3 is not delivered during the test."""
        body = self._body(f"delayed by level {level}")
        key = f"{self._name}-late-{level}"
        self._sender.send(LATER, level % QUEUES, body, {"DELAY": str(level), "KEYS": key})
        (self._sent.never if level == 3 else self._sent.later[level % QUEUES]).append(body)
        self._sent.keys.append((WAITING, key))

    def _sent_back(self, *, level: int, into: list[bytes]) -> None:
        """Send back a message that its consumer could not handle."""
        body = self._body(f"handled in vain, level {level}")
        place = self._plain(0, body, {"TAGS": "tag0"})
        self._sender.send_back(place.log_offset, PLAIN, GROUP, level)
        into.append(body)

    def _body(self, text: str) -> bytes:
        self._count += 1
        return f"{self._name} {self._count}: {text}".encode()


def all_queues() -> list[Queue]:
    """Return every queue with messages."""
    queues = [(topic, n) for topic in (PLAIN, LATER) for n in range(QUEUES)]
    queues += [(WAITING, level) for level in range(3)] + [(RETRY, 0), (DEAD, 0), (DECIDED, 0)]
    return queues
