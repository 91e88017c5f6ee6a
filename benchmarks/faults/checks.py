"""Comparison of a group's stores with its acknowledgements and with each other."""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from struct import Struct

from frames import Connection  # of the tests

from tianzhou.records.entry import HEADER_SIZE, MAGIC, MAGIC_END, decode_header

PULL = 11
ACKNOWLEDGED = Struct("<dQHHq")
ENTRY = Struct(">ii")
PLACE = Struct(">i4xq")
"""Queue, flag, offset of a record, from byte 12 on."""
LENGTH = Struct(">i")
KEY = Struct(">Q")
BODY_AT = 88
CHUNK = 1 << 22


@dataclass
class Findings:
    """The results of a comparison.

    Attributes:
        acknowledged: number of acknowledged messages.
        stored: messages in the log, including repeated sends.
        lost: keys that were acknowledged and are not stored.
        misplaced: keys stored at another queue or offset than acknowledged.
        doubled: queue and offset of records that the log has twice.
        missing: queue and offset of gaps in the log.
        different: differences between members.
        unreadable: messages that the leader does not serve as its log has them.
    """

    acknowledged: int = 0
    stored: int = 0
    lost: list[int] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)
    doubled: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether no check failed."""
        return not (self.lost or self.misplaced or self.doubled or self.missing or self.different or self.unreadable)


def acknowledgements(file: Path, begin: int = 0) -> Iterator[tuple[float, int, int, int, int]]:
    """Return the records that `load.py` wrote: time, key of the first message, count, queue, offset of the first
    message.
    """
    with file.open("rb") as opened:
        opened.seek(begin)
        content = opened.read()
    return ACKNOWLEDGED.iter_unpack(content[: len(content) // ACKNOWLEDGED.size * ACKNOWLEDGED.size])


def records(folder: Path) -> Iterator[tuple[mmap.mmap, int]]:
    """Yield every record of a member's log as the mapped segment and the record's position in it."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            at = 0
            while at + HEADER_SIZE < len(memory):
                magic, size = ENTRY.unpack_from(memory, at)
                if magic != MAGIC:
                    if magic != MAGIC_END:
                        return
                    break
                yield memory, at + HEADER_SIZE
                at += size


def read_log(folder: Path, topic: str, queues: int, findings: Findings) -> list[array[int]]:
    """Return the keys of a topic's messages in each queue, in the order of their offsets."""
    found = [array("Q") for _ in range(queues)]
    name = topic.encode()
    label = bytes([len(name)]) + name
    for memory, at in records(folder):
        (size,) = LENGTH.unpack_from(memory, at + BODY_AT - 4)
        behind = at + BODY_AT + size
        if memory[behind : behind + len(label)] != label:
            continue
        queue, offset = PLACE.unpack_from(memory, at + 12)
        keys = found[queue]
        (key,) = KEY.unpack_from(memory, at + BODY_AT)
        if offset < len(keys):
            findings.doubled.append((queue, offset))
            continue
        while offset > len(keys):
            findings.missing.append((queue, len(keys)))
            keys.append(0)
        keys.append(key)
    findings.stored = sum(map(len, found))
    return found


def compare_acknowledged(file: Path, keys: list[array[int]], findings: Findings) -> None:
    """Search every acknowledged message at the queue and offset of its acknowledgement."""
    misplaced: list[int] = []
    for _, first, count, queue, offset in acknowledgements(file):
        findings.acknowledged += count
        there = keys[queue][offset : offset + count]
        wanted = array("Q", range(first, first + count))
        if there != wanted:
            there.extend([0] * (count - len(there)))
            misplaced += [key for key, found in zip(wanted, there, strict=True) if key != found]
    if misplaced:
        anywhere = set().union(*keys)
        findings.lost += [key for key in misplaced if key not in anywhere]
        findings.misplaced += [key for key in misplaced if key in anywhere]


def compare_served(address: str, topic: str, keys: list[array[int]], findings: Findings) -> None:
    """Pull everything from a member, and compare it with the log."""
    with Connection(address, 60) as connection:
        for queue, wanted in enumerate(keys):
            served = array("Q")
            while len(served) < len(wanted):
                fields = {
                    "consumerGroup": "failover", "topic": topic, "queueId": queue, "queueOffset": len(served),
                    "maxMsgNums": 2000, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                    "subscription": "*", "subVersion": 0,
                }  # fmt: skip
                reply = connection.call(PULL, fields)
                if reply.code != 0 or not reply.body:
                    findings.unreadable.append(f"queue {queue} at {len(served)}: {reply.code} {reply.remark}")
                    break
                at, body = 0, reply.body
                while at < len(body):
                    _, offset = PLACE.unpack_from(body, at + 12)
                    if offset != len(served):
                        findings.unreadable.append(f"queue {queue}: {offset} in the place of {len(served)}")
                    served.append(KEY.unpack_from(body, at + BODY_AT)[0])
                    at += LENGTH.unpack_from(body, at)[0]
            if served != wanted:
                findings.unreadable.append(f"queue {queue}: {len(served)} of {len(wanted)} served, or others")


def compare_members(stores: list[Path], topic: str, findings: Findings) -> None:
    """Compare the bytes of logs and queues; zeros at the end of a file are ignored.

    The leader stops last. An entry that it appends after the others stopped, such as the list of groups, is not
    committed. Such entries are ignored, too.
    """
    committed = max(map(_committed_end, stores))
    for pattern in ("dledger-*/data", f"consumequeue/{topic}/*"):
        files = [_files(store, pattern) for store in stores]
        for name in sorted(set().union(*files)):
            paths = [one.get(name) for one in files]
            first, *others = paths
            for number, other in enumerate(others, 1):
                at = _first_difference(first, other)
                if at is not None and not (name.startswith("data/") and int(name[5:]) + at >= committed):
                    findings.different.append(f"{name}: members 0 and {number} differ at byte {at}")


def _committed_end(store: Path) -> float:
    """Return the log position behind the last entry that a member knew to be committed; infinite without its note."""
    note = next(store.glob("dledger-*/checkpoint"), None)
    if note is None:
        return inf
    values = dict(line.split("=", 1) for line in note.read_text().splitlines())
    end, committed = 0, int(values["committedIndex"])
    for path in sorted(next(store.glob("dledger-*/data")).iterdir()):
        data, at = path.read_bytes(), 0
        while at + HEADER_SIZE <= len(data) and ENTRY.unpack_from(data, at)[0] == MAGIC:
            header = decode_header(data, at)
            if header.index > committed:
                return end
            at += header.size
            end = int(path.name) + at
    return end


def _files(store: Path, pattern: str) -> dict[str, Path]:
    found = {}
    for folder in store.glob(pattern):
        for path in folder.iterdir():
            found[f"{folder.name}/{path.name}"] = path
    return found


def _first_difference(one: Path | None, other: Path | None) -> int | None:
    at = 0
    with open(one or os.devnull, "rb") as first, open(other or os.devnull, "rb") as second:
        while True:
            left, right = first.read(CHUNK), second.read(CHUNK)
            if not left and not right:
                return None
            if left != right:
                longest = max(len(left), len(right))
                left, right = left.ljust(longest, b"\0"), right.ljust(longest, b"\0")
                if left != right:
                    return at + next(i for i in range(longest) if left[i] != right[i])
            at += CHUNK
