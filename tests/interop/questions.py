"""Queries to a broker about its store. Two brokers on one store must give the same answers.

The queries use `frames` and compare bytes, so that no code is shared with the package under test. Only the returned
records are decoded by the package, and the golden records prove that decoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from frames import SUCCESS, Connection, Reply

from tianzhou.records.codec import Record, decode_records
from waiting import until

PULL = 11
QUERY = 12
OFFSET_BY_TIME = 29
MAX_OFFSET = 30
MIN_OFFSET = 31
VIEW = 33
FOUND_NOTHING = 22
ANY_TIME = (1 << 63) - 1
MOST = 64

Queue = tuple[str, int]


class Asker:
    """A connection to one broker for queries; `with Asker(address) as asker`.

    Args:
        address: Address of the broker.
    """

    def __init__(self, address: str) -> None:
        self._connection = Connection(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.__exit__()

    def ask(self, code: int, body: bytes = b"", /, **fields: object) -> Reply:
        """Send a request and return the reply."""
        return self._connection.call(code, fields, body)

    def _offset(self, code: int, queue: Queue, more: dict[str, object] | None = None) -> int:
        reply = self._connection.call(code, {"topic": queue[0], "queueId": queue[1]} | (more or {}))
        assert reply.code == SUCCESS, (queue, reply.code, reply.remark)
        return int(reply.fields["offset"])

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the minimum and maximum offset of a queue."""
        return self._offset(MIN_OFFSET, queue), self._offset(MAX_OFFSET, queue)

    def at_time(self, queue: Queue, timestamp: int, boundary: str) -> int:
        """Return the offset of a queue at a time."""
        return self._offset(OFFSET_BY_TIME, queue, {"timestamp": timestamp, "boundaryType": boundary})

    def keyed(self, topic: str, key: str, *, end: int = ANY_TIME) -> list[bytes]:
        """Return the records that have a key or a unique key."""
        reply = self.ask(QUERY, topic=topic, key=key, maxNum=MOST, beginTimestamp=0, endTimestamp=end)
        assert reply.code in (SUCCESS, FOUND_NOTHING), (topic, key, reply.code, reply.remark)
        return raw(reply.body)

    def view(self, offset: int) -> bytes:
        """Return the record at a position of the log."""
        reply = self.ask(VIEW, offset=offset)
        assert reply.code == SUCCESS, (offset, reply.code, reply.remark)
        return reply.body

    def pull(self, queue: Queue, first: int, end: int, tags: str = "*") -> list[bytes]:
        """Return the records of a queue from `first` up to `end`, with as many pulls as necessary."""
        found: list[bytes] = []
        while first < end:
            reply = self.ask(
                PULL, consumerGroup="questions", topic=queue[0], queueId=queue[1], queueOffset=first,
                maxMsgNums=min(32, end - first),
                sysFlag=4, commitOffset=0, suspendTimeoutMillis=0, subscription=tags, subVersion=0,
                expressionType="TAG",
            )  # fmt: skip
            following = int(reply.fields.get("nextBeginOffset", first))
            assert following > first, (queue, first, end, reply.code, reply.remark)
            first = following
            found += raw(reply.body)
        return found


@dataclass
class Answers:
    """A broker's answers about some queues.

    Attributes:
        bounds: minimum and maximum of each queue.
        records: the records of each queue, as bytes.
        tagged: records that a tag of the queue selects.
        times: `(queue, timestamp, boundary)` and the offset.
        keys: `(topic, key)` and the records.
        views: a position in the log and the record there.
    """

    bounds: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    records: dict[Queue, list[bytes]] = field(default_factory=dict)
    tagged: dict[tuple[Queue, str], list[bytes]] = field(default_factory=dict)
    times: dict[tuple[Queue, int, str], int] = field(default_factory=dict)
    keys: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    views: dict[int, bytes] = field(default_factory=dict)

    def decoded(self, queue: Queue) -> list[Record]:
        """Return the records of a queue."""
        return [record for one in self.records[queue] for record in decode_records(one)]

    def bodies(self, topic: str) -> list[bytes]:
        """Return the stored bodies of all records of a topic."""
        return [bytes(record.body) for queue in self.records if queue[0] == topic for record in self.decoded(queue)]


def everything(
    asker: Asker,
    queues: Iterable[Queue],
    keys: Iterable[tuple[str, str]] = (),
    tags: Iterable[tuple[Queue, str]] = (),
    places: Iterable[int] = (),
) -> Answers:
    """Query all values that must be equal."""
    answers = Answers()
    for queue in queues:
        answers.bounds[queue] = first, end = asker.bounds(queue)
        answers.records[queue] = asker.pull(queue, first, end)
        stored = [record.store_timestamp for record in answers.decoded(queue)]
        for timestamp in sorted(
            {moment + by for moment in stored[:1] + stored[::7] + stored[-1:] for by in (-1, 0, 1)}
        ):
            for boundary in ("LOWER", "UPPER"):
                answers.times[queue, timestamp, boundary] = asker.at_time(queue, timestamp, boundary)
    for topic, key in keys:
        answers.keys[topic, key] = asker.keyed(topic, key)
    for queue, tag in tags:
        answers.tagged[queue, tag] = asker.pull(queue, *answers.bounds[queue], tag)
    answers.views = {place: asker.view(place) for place in places}
    return answers


def raw(body: bytes) -> list[bytes]:
    """Return the encoded records of a body of consecutive records."""
    found = []
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        assert 0 < size <= len(body) - at, (at, size, len(body))
        found.append(body[at : at + size])
        at += size
    return found


def await_maximum(asker: Asker, wanted: dict[Queue, int]) -> None:
    """Wait until queues reach these offsets, by dispatch or delivery after a start or a send."""

    def reached() -> bool:
        return all(asker.bounds(queue)[1] >= offset for queue, offset in wanted.items())

    until(reached, f"maximum offsets {wanted}", every_s=0.1)


def await_bodies(asker: Asker, queue: Queue, bodies: Iterable[bytes]) -> None:
    """Wait until a queue has messages of these bodies, among any others."""
    wanted = set(bodies)

    def there() -> bool:
        found = asker.pull(queue, *asker.bounds(queue))
        return wanted <= {bytes(record.body) for one in found for record in decode_records(one)}

    until(there, f"all of {wanted} in {queue}", every_s=0.1)
