"""Messages of every kind that both versions of Apache's broker know, sent frame by frame."""

from __future__ import annotations

import json
import struct
import time
import zlib
from dataclasses import dataclass, field

from frames import SUCCESS, Reply
from questions import Asker, Queue

SEND = 10
BATCH = 320
SEND_BACK = 36
END_TRANSACTION = 37
CREATE_TOPIC = 17
CREATE_GROUP = 200
NOT_SERVED = 3
COMMIT, ROLLBACK = 8, 12
COMPRESSED, PREPARED = 0x1, 0x4

PLAIN, LATER, DECIDED = "kinds_plain", "kinds_later", "kinds_decided"
GROUP = "kinds_group"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
WAITING, HALF = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
QUEUES = 2
LEVELS = "1s 3s 1h"
"""What `messageDelayLevel` has to be: delivered at once, in the next broker's time, and never."""


@dataclass(frozen=True)
class Undecided:
    """A half message that nobody has decided on yet."""

    body: bytes
    unique: str
    commit_log_offset: int
    queue_offset: int


@dataclass
class Sent:
    """What was sent, and what has to come of it.

    Attributes:
        plain: bodies by queue, in the order of their acknowledgements.
        later: bodies that are delivered after a delay, each once, by queue: 1 s later to queue 1, 3 s later to queue 0.
        decided: bodies of committed transactions, each once.
        retried: bodies that were sent back, each once.
        dead: bodies that were sent back for the last time.
        undecided: half messages.
        halves: where half messages are in the log, decided or not.
        never: bodies that must not be seen by any consumer.
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
        """What is asked for by tag."""
        return [((PLAIN, n), tag) for n in range(QUEUES) for tag in ("tag0", "tag1 || 标签", "none")]


class Writer:
    """Sends messages of every kind to one broker.

    Args:
        asker: The connection.
        sent: The book to enter them in.
        name: Makes this round's messages different from another's.
    """

    def __init__(self, asker: Asker, sent: Sent, name: str) -> None:
        self._asker = asker
        self._sent = sent
        self._name = name
        self._count = 0

    def create(self) -> None:
        """Create topics and group."""
        for topic in (PLAIN, LATER, DECIDED):
            self._done(
                self._asker.ask(
                    CREATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=QUEUES, writeQueueNums=QUEUES,
                    perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False,
                )
            )  # fmt: skip
        group = {"groupName": GROUP, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        self._done(self._asker.ask(CREATE_GROUP, json.dumps(group).encode()))

    def write(self) -> None:
        """One message, or some, of every kind."""
        for number in range(24):
            properties = {"TAGS": f"tag{number % 3}"} if number % 4 else {"TAGS": "标签", "colour": "grün"}
            if number % 2:
                properties["KEYS"] = f"{self._name}-{number} every"
                self._sent.keys.append((PLAIN, f"{self._name}-{number}"))
            if number % 5 == 0:
                properties["WAIT"] = "false"
            body = self._body(f"plain {number} " * (1 + number * number))
            self.plain(number % QUEUES, body, properties, compress=number % 6 == 5)
        for size in (1, 3, 20):
            self.batch(size)
        for level in (1, 2, 3):
            self.delayed(level)
        self.sent_back(level=1, into=self._sent.retried)
        self.sent_back(level=-1, into=self._sent.dead)
        self._sent.keys.append((PLAIN, "every"))

    def plain(self, queue_id: int, body: bytes, properties: dict[str, str], *, compress: bool = False) -> int:
        """One ordinary message; its place in the log."""
        stored = zlib.compress(body) if compress else body
        reply = self._send(PLAIN, queue_id, stored, properties, COMPRESSED if compress else 0)
        self._sent.plain[queue_id].append(stored)
        return int(reply.fields["msgId"][-16:], 16)

    def batch(self, size: int) -> None:
        """Several messages in one request."""
        bodies = [self._body(f"batched {n} of {size}") for n in range(size)]
        entries = b""
        for number, body in enumerate(bodies):
            properties = f"TAGS\x01tag{number % 3}\x02UNIQ_KEY\x01{self._unique()}\x02".encode()
            entry = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
            entries += struct.pack(">i", len(entry) + 4) + entry
        self._send(PLAIN, 1, entries, {}, code=BATCH, batch=True)
        self._sent.plain[1] += bodies

    def delayed(self, level: int) -> None:
        """A message for later; level 3 is not delivered while the test runs."""
        body = self._body(f"delayed by level {level}")
        self._send(LATER, level % QUEUES, body, {"DELAY": str(level), "KEYS": f"{self._name}-late-{level}"})
        (self._sent.never if level == 3 else self._sent.later[level % QUEUES]).append(body)
        self._sent.keys.append((WAITING, f"{self._name}-late-{level}"))

    def sent_back(self, *, level: int, into: list[bytes]) -> None:
        """A message that its consumer could not handle."""
        body = self._body(f"handled in vain, level {level}")
        place = self.plain(0, body, {"TAGS": "tag0"})
        self._done(
            self._asker.ask(
                SEND_BACK, offset=place, group=GROUP, delayLevel=level, originMsgId=self._unique(), originTopic=PLAIN,
                unitMode=False, maxReconsumeTimes=16,
            )
        )  # fmt: skip
        into.append(body)

    def transactions(self) -> bool:
        """A committed, a rolled back and an undecided transaction; whether the broker serves them."""
        for outcome in (COMMIT, ROLLBACK, None):
            half = self._half(f"transaction {outcome}")
            if half is None:
                return False
            if outcome is None:
                self._sent.undecided.append(half)
            else:
                assert self.decide(half, outcome)
        return True

    def decide(self, half: Undecided, outcome: int) -> bool:
        """Commit a transaction or roll it back; whether the broker serves transactions."""
        reply = self._asker.ask(
            END_TRANSACTION, topic=DECIDED, producerGroup="kinds_producer", tranStateTableOffset=half.queue_offset,
            commitLogOffset=half.commit_log_offset, commitOrRollback=outcome, fromTransactionCheck=False,
            msgId=half.unique, transactionId=half.unique,
        )  # fmt: skip
        if reply.code == NOT_SERVED:
            return False
        self._done(reply)
        (self._sent.decided if outcome == COMMIT else self._sent.never).append(half.body)
        return True

    def _half(self, text: str) -> Undecided | None:
        body, unique = self._body(text), self._unique()
        properties = {"TRAN_MSG": "true", "PGROUP": "kinds_producer", "UNIQ_KEY": unique}
        reply = self._send(DECIDED, 0, body, properties, PREPARED, optional=True)
        if reply.code != SUCCESS:
            assert "does not serve transactions" in reply.remark, (reply.code, reply.remark)
            return None
        self._sent.halves.append(int(reply.fields["msgId"][-16:], 16))
        return Undecided(body, unique, self._sent.halves[-1], int(reply.fields["queueOffset"]))

    def _send(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        sys_flag: int = 0,
        *,
        code: int = SEND,
        batch: bool = False,
        optional: bool = False,
    ) -> Reply:
        own = {"UNIQ_KEY": self._unique()} | properties
        fields: dict[str, object] = {
            "producerGroup": "kinds_producer", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 2,
            "queueId": queue_id, "sysFlag": sys_flag, "bornTimestamp": int(time.time() * 1000), "flag": self._count,
            "properties": "".join(f"{name}\x01{value}\x02" for name, value in own.items()), "reconsumeTimes": 0,
            "unitMode": False, "batch": batch,
        }  # fmt: skip
        if code == BATCH:
            # Batches have the short names only.
            fields = dict(zip("abcdefghijkm", fields.values(), strict=True))
        reply = self._asker.ask(code, body, **fields)
        # Records of one millisecond would be found by their time in more than one way.
        time.sleep(0.002)
        return reply if optional else self._done(reply)

    def _body(self, text: str) -> bytes:
        self._count += 1
        return f"{self._name} {self._count}: {text}".encode()

    def _unique(self) -> str:
        self._count += 1
        return f"{self._name.upper()}{self._count:08d}"

    @staticmethod
    def _done(reply: Reply) -> Reply:
        assert reply.code == SUCCESS, (reply.code, reply.remark)
        return reply


def all_queues() -> list[Queue]:
    """Every queue that something has been sent to."""
    queues = [(topic, n) for topic in (PLAIN, LATER) for n in range(QUEUES)]
    queues += [(WAITING, level) for level in range(3)] + [(RETRY, 0), (DEAD, 0), (DECIDED, 0)]
    return queues
