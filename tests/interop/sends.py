"""Messages sent to a broker frame by frame, in the ways of every version."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frames import SUCCESS, Reply
from questions import Asker

SEND = 10
BATCH = 320
SEND_BACK = 36
PREPARED = 0x4


@dataclass(frozen=True)
class Place:
    """The position of a message at a broker.

    Attributes:
        queue_offset: in its queue.
        log_offset: in the commit log.
        unique: the unique key from its producer.
    """

    queue_offset: int
    log_offset: int
    unique: str


class Refused(Exception):
    """A broker refused a request; code and remark."""


class Sender:
    """Sends to one broker, one message after the other.

    Args:
        asker: The connection.
        name: Name that distinguishes its unique keys from another sender's.
    """

    def __init__(self, asker: Asker, name: str) -> None:
        self._asker = asker
        self._name = name
        self._count = 0

    def done(self, code: int, body: bytes = b"", /, **fields: object) -> Reply:
        """Send a request that must succeed.

        Raises:
            Refused: It failed.
        """
        reply = self._asker.ask(code, body, **fields)
        if reply.code != SUCCESS:
            raise Refused(reply.code, reply.remark)
        return reply

    def unique(self) -> str:
        """A key that no other message has."""
        self._count += 1
        return f"{self._name.upper()}{self._count:08d}"

    def send(
        self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str] | None = None, sys_flag: int = 0
    ) -> Place:
        """Send one message."""
        own = {"UNIQ_KEY": self.unique(), **(properties or {})}
        return self._send(SEND, topic, queue_id, body, own, sys_flag)

    def batch(self, topic: str, queue_id: int, bodies: Iterable[bytes]) -> Place:
        """Send several messages in one request, tagged `tag0`, `tag1`, `tag2`, `tag0` and so on."""
        entries = b""
        for number, body in enumerate(bodies):
            properties = f"TAGS\x01tag{number % 3}\x02UNIQ_KEY\x01{self.unique()}\x02".encode()
            entry = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
            entries += struct.pack(">i", len(entry) + 4) + entry
        return self._send(BATCH, topic, queue_id, entries, {"UNIQ_KEY": self.unique()}, 0)

    def send_back(self, log_offset: int, topic: str, group: str, level: int) -> None:
        """Send back a message that a consumer of a group could not handle; a negative level makes it a dead letter."""
        self.done(
            SEND_BACK, offset=log_offset, group=group, delayLevel=level, originMsgId=self.unique(), originTopic=topic,
            unitMode=False, maxReconsumeTimes=16,
        )  # fmt: skip

    def _send(
        self, code: int, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], sys_flag: int
    ) -> Place:
        fields: dict[str, object] = {
            "producerGroup": "frames_producer", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 2,
            "queueId": queue_id, "sysFlag": sys_flag, "bornTimestamp": int(time.time() * 1000), "flag": self._count,
            "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
            "reconsumeTimes": 0, "unitMode": False, "batch": code == BATCH,
        }  # fmt: skip
        if code == BATCH:
            # Batches have the short names only.
            fields = dict(zip("abcdefghijkm", fields.values(), strict=True))
        reply = self.done(code, body, **fields)
        # Records of one millisecond would be found by their time in more than one way.
        time.sleep(0.002)
        first = reply.fields["msgId"].partition(",")[0]
        return Place(int(reply.fields["queueOffset"]), int(first[-16:], 16), properties["UNIQ_KEY"])
