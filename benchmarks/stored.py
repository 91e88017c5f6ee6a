"""A store like after long use, without the disk space: segments of full length with holes for bodies.

Records as a broker writes them, 4 000 000 bytes of zeros each, so that a segment of 1 GiB holds 268; a page with the
head and one with the end of each is all that takes disk space (about 2 MiB a segment). The state per segment, which a
broker reads during its start, is complete. The state per message is smaller: 100 GiB are 26 800 messages here and 90
million of 1 KiB. The queues' units are written too, the index is not: both brokers start from the same files.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path

from tianzhou.records.codec import encode_blank
from tianzhou.records.layout import BLANK_SIZE, HEADS, LENGTH, MAGIC_V1

GIB = 1 << 30
BODY = 4_000_000
TOPIC = b"Stored"
QUEUES = 8
UNITS_FILE = 6_000_000
HEAD = HEADS[0]
UNIT = struct.Struct(">qiq")
"""An entry of a consume queue: position, size and tags code."""
LOOPBACK = bytes((127, 0, 0, 1))


def fill(store: Path, segments: int, length: int = GIB, body: int = BODY) -> int:
    """Write full segments and the queues of their messages.

    Args:
        store: the root folder of a store that is empty.
        segments: number of segments.
        length: bytes of a segment.
        body: bytes of each message.

    Returns:
        Number of messages in the store.
    """
    log = store / "commitlog"
    log.mkdir(parents=True)
    crc = zlib.crc32(bytes(body)) & 0x7FFFFFFF
    properties = b"UNIQ_KEY\x01%032X\x02WAIT\x01true\x02"
    topic = bytes([len(TOPIC)]) + TOPIC + LENGTH.pack(len(properties % 0))
    total = HEAD.size + body + len(topic) + len(properties % 0)
    began_ms = int(time.time() * 1000) - 60_000
    units: list[list[bytes]] = [[] for _ in range(QUEUES)]
    number = 0
    for segment in range(segments):
        start = segment * length
        with (log / f"{start:020}").open("wb") as file:
            file.truncate(length)
            position = 0
            while position + total + BLANK_SIZE <= length:
                queue, at_ms = number % QUEUES, began_ms + number
                head = HEAD.pack(
                    total, MAGIC_V1, crc, queue, 0, len(units[queue]), start + position, 0,
                    at_ms, LOOPBACK, 40000, at_ms, LOOPBACK, 10911, 0, 0, body,
                )  # fmt: skip
                os.pwrite(file.fileno(), head, position)
                os.pwrite(file.fileno(), topic + properties % number, position + HEAD.size + body)
                units[queue].append(UNIT.pack(start + position, total, 0))
                position += total
                number += 1
            os.pwrite(file.fileno(), encode_blank(length - position), position)
            os.fdatasync(file.fileno())
    for queue, entries in enumerate(units):
        folder = store / "consumequeue" / TOPIC.decode() / str(queue)
        folder.mkdir(parents=True)
        content = b"".join(entries)
        for first in range(0, len(content), UNITS_FILE):
            with (folder / f"{first:020}").open("wb") as file:
                file.truncate(UNITS_FILE)
                file.write(content[first : first + UNITS_FILE])
                os.fsync(file.fileno())
    return number
