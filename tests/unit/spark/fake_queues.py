"""An in-memory `QueueReader` that replies like a broker (wire.md §6.2)."""

from __future__ import annotations

from tianzhou.errors import BrokerError, ClientError, ConnectFailed
from tianzhou.filter import parse_sql
from tianzhou.model import MessageQueue, PullStatus
from tianzhou.records.codec import Record, encode_record
from tianzhou.spark.source.offsets import QueueBounds
from tianzhou.spark.source.span_reader import Ask, Pulled
from tianzhou.wire.properties import decode_properties, encode_properties, get_property


class FakeQueues:
    """Queues in memory; `limit_count` and `limit_bytes` are the broker's limits of one reply."""

    def __init__(self, limit_count: int = 32, limit_bytes: int = 256 << 10) -> None:
        self.limit_count, self.limit_bytes = limit_count, limit_bytes
        self.records: dict[MessageQueue, dict[int, Record]] = {}
        self.minimum: dict[MessageQueue, int] = {}
        self.maximum: dict[MessageQueue, int] = {}
        self.failures: list[Exception] = []
        self.away: set[str] = set()
        self.unregistered: set[str] = set()
        self.unreadable: set[MessageQueue] = set()
        self.sql_off = False
        self.asked_times: list[int] = []
        self.times_asked: list[dict[MessageQueue, int]] = []
        self.sent_ahead: list[tuple[MessageQueue, list[Ask]]] = []
        self.published: dict[MessageQueue, int] = {}
        self.now = 0.0
        self.rounds: list[list[Ask]] = []
        self.replied_bytes = 0
        self.on_wait = lambda: None

    # --- what a test does

    def add(self, queue: MessageQueue, count: int, body=None, tag=None, at_ms: int = 1000) -> None:
        start = self.maximum.setdefault(queue, 0)
        self.minimum.setdefault(queue, start)
        stored = self.records.setdefault(queue, {})
        for offset in range(start, start + count):
            content = body(offset) if callable(body) else body or f"{queue.queue_id}:{offset}".encode()
            properties = {"UNIQ_KEY": f"id-{queue.queue_id}-{offset}", "n": str(offset)}
            if tag is not None:
                properties["TAGS"] = tag(offset) if callable(tag) else tag
            stored[offset] = Record(
                queue.topic, queue.queue_id, offset, offset * 100, 0, 0, at_ms, bytes([10, 0, 0, 1]), 1,
                at_ms + offset, bytes([127, 0, 0, 1]), 10911, 0, 0, content, encode_properties(properties),
            )  # fmt: skip
        self.maximum[queue] = start + count

    def expire(self, queue: MessageQueue, minimum: int) -> None:
        self.minimum[queue] = minimum
        self.maximum[queue] = max(self.maximum[queue], minimum)

    def truncate(self, queue: MessageQueue, maximum: int) -> None:
        self.maximum[queue] = maximum

    def delete(self, topic: str) -> None:
        for queue in [queue for queue in self.maximum if queue.topic == topic]:
            del self.records[queue], self.minimum[queue], self.maximum[queue]

    # --- QueueReader

    def topics(self, selection):
        return selection.topics_among({queue.topic for queue in self.maximum}, ["broker-a", "DefaultCluster"])

    def serving(self):
        return {"broker-a", "broker-b"} - self.unregistered

    def check_sql(self, queues, sql):
        if self.sql_off:
            raise BrokerError(1, "the broker does not filter by SQL92", hint="set enablePropertyFilter=true")

    def queues(self, topics):
        found = sorted(queue for queue in self.maximum if queue.topic in topics and queue not in self.unreadable)
        for topic in topics:
            if not any(queue.topic == topic for queue in found):
                raise ClientError(f"topic {topic} does not exist")
        return found

    def _answer(self, queues):
        if self.failures:
            raise self.failures.pop(0)
        if gone := self.away & {queue.broker_name for queue in queues}:
            raise ConnectFailed(f"cannot connect to {gone}")

    def bounds(self, queues):
        self._answer(queues)
        return {queue: QueueBounds(self.minimum.get(queue, 0), self.maximum.get(queue, 0)) for queue in queues}

    def maxima(self, queues):
        self.now += 0.01
        self._answer(queues)
        return {queue: self.maximum.get(queue, 0) for queue in queues}

    def offsets_by_time(self, queues, timestamp_ms):
        self.asked_times.append(timestamp_ms)
        return {
            queue: next(
                (
                    offset
                    for offset in range(self.minimum[queue], self.maximum[queue])
                    if self.records[queue][offset].store_timestamp >= timestamp_ms
                ),
                self.maximum[queue],
            )
            for queue in queues
        }

    def store_times(self, places):
        found = {queue: self.records.get(queue, {}).get(offset) for queue, offset in places.items()}
        self.times_asked.append(dict(places))
        return {queue: record.store_timestamp for queue, record in found.items() if record is not None}

    def ahead(self, queue, asks, tags, sql=None):
        self.sent_ahead.append((queue, list(asks)))

    def pull(self, queue, asks, tags, sql=None):
        self.rounds.append(list(asks))
        if self.failures:
            raise self.failures.pop(0)
        if queue not in self.maximum:
            raise BrokerError(17, f"topic[{queue.topic}] not exist, apply first please!")
        return [self._pull(queue, ask, tags, sql) for ask in asks]

    def _pull(self, queue, ask, tags, sql):
        low, high = self.minimum[queue], self.maximum[queue]
        at = ask.offset
        if at < low:
            return Pulled(PullStatus.OFFSET_ILLEGAL, low, low, high, b"")
        if at == high:
            return Pulled(PullStatus.NO_NEW_MSG, at, low, high, b"")
        if at > high:
            return Pulled(PullStatus.OFFSET_ILLEGAL, high, low, high, b"")
        wanted = {part.strip() for part in tags.split("||")} if tags != "*" else None
        parts, size = [], 0
        while at < high and len(parts) < min(ask.most, self.limit_count) and at < ask.offset + 800:
            record = self.records[queue].get(at)
            if record is not None and (wanted is None or self._tag(record) in wanted) and self._selected(record, sql):
                encoded = encode_record(record)
                if parts and size + len(encoded) > self.limit_bytes:
                    break
                parts.append(encoded)
                size += len(encoded)
            at += 1
        self.replied_bytes += size
        status = PullStatus.FOUND if parts else PullStatus.NO_MATCHED_MSG
        return Pulled(status, at, low, high, b"".join(parts))

    @staticmethod
    def _tag(record):
        return get_property(record.properties, "TAGS")

    @staticmethod
    def _selected(record, sql):
        return sql is None or parse_sql(sql).matches(decode_properties(record.properties).get)

    def publish(self, positions):
        if self.failures:
            raise self.failures.pop(0)
        self.published = dict(positions)

    def wait(self, milliseconds):
        self.now += milliseconds / 1000
        self.on_wait()

    def monotonic(self):
        return self.now
