"""Records of messages that a broker set aside because it cannot deliver them (docs/adr/0029).

A record in queue 0 of the topic `rmq_sys_UNDELIVERABLE` has the message, in the form to be stored, as its body, and the
reason in its properties. A record in queue 1 marks queue offsets of queue 0 as delivered.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

QUEUE: Final = 0
MARK_QUEUE: Final = 1
QUEUES: Final = 2
MAX_REASON: Final = 500
"""Maximum characters of a stored reason."""
MAX_MARKS: Final = 1_000
"""Maximum queue offsets in one mark."""

LEDGER: Final = "UNDELIVERABLE_LEDGER"
REASON: Final = "UNDELIVERABLE_REASON"
TARGET: Final = "UNDELIVERABLE_TOPIC"
TARGET_QUEUE: Final = "UNDELIVERABLE_QUEUE"
PLACE: Final = "UNDELIVERABLE_LOG_OFFSET"
"""Commit-log offset of the record that could not be delivered, or of the record that the message is a copy of."""
NO_BODY: Final = "UNDELIVERABLE_BODY_LEFT"
"""Present when the body was too large to be copied; only the record at `PLACE` has the body."""
MARK_TAG: Final = "d"


class UndeliverableWalk(enum.StrEnum):
    """Task of a broker that set a message aside."""

    DELAY = "delay"
    RETRY = "retry"
    TRANSACTION = "transaction"
    STAGED = "staged batch"


class SetAsideMessage(msgspec.Struct, omit_defaults=True):
    """A message that was set aside, in the form to be stored.

    Attributes:
        topic: its topic; empty when the message names none.
        queue: queue of the topic.
        body: body as stored; empty when it was too large to be copied.
        properties: property text as stored.
        flag: the producer's flag.
        sys_flag: system flag.
        born_timestamp: the producer's time, ms.
        born_host: the producer's address, 4 or 16 bytes.
        born_port: the producer's port.
        reconsume_times: number of earlier deliveries.
        half_offset: log offset of the half message, or of the staged unit; 0 for none.
        raw: bytes of a record that could not be decoded; the other fields are empty then.
    """

    topic: str = ""
    queue: int = 0
    body: bytes = b""
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = b"\x00\x00\x00\x00"
    born_port: int = 0
    reconsume_times: int = 0
    half_offset: int = 0
    raw: bytes = b""


def kept_message(body: bytes) -> SetAsideMessage:
    """Decode the message of a record's body.

    Raises:
        ValueError: the body does not hold a message that was set aside.
    """
    try:
        return msgspec.msgpack.decode(body, type=SetAsideMessage)
    except msgspec.DecodeError as error:
        raise ValueError(f"the record keeps no message: {error}") from error


def marked(body: bytes) -> list[int]:
    """Return the queue offsets of a mark."""
    texts = body.decode("ascii", "replace").split(",")
    return [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 20]
