"""The options of `format("tianzhou_store")`, read and checked. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark import option_values
from tianzhou.spark.option_values import BATCH, STREAM, RawOptions, count, number, option, several, switch
from tianzhou.spark.source.offsets import EARLIEST, LATEST, Positions, QueueBounds
from tianzhou.spark.source.positions import STRATEGY, TIME_RULE, PerQueue, holds, milliseconds, parse_offsets
from tianzhou.spark.source.read_options import (
    COLUMNS_RULE,
    HEADERS_RULE,
    STRATEGY_RULE,
    check_no_end,
    include_headers,
    kafka_columns,
    reads_nothing,
    starting_strategy,
)
from tianzhou.spark.source.selection import PATTERN_RULE

_OFFSETS: Final = '{"topic": {"0": 42, "1": -2}} with -1 for latest and -2 for earliest'


@dataclass(frozen=True, slots=True)
class StorePoint:
    """A point in every queue. Exactly one of the fields except `option` and `broker_name` is set.

    Attributes:
        option: name of the option, for messages.
        mark: EARLIEST or LATEST.
        timestamp_ms: a time in ms since the epoch: the first message stored then or later.
        offsets: see `source.positions`; values may be EARLIEST or LATEST.
        broker_name: the broker whose offsets apply, if they contain several brokers; "" if unknown.
    """

    option: str
    mark: int | None = None
    timestamp_ms: int | None = None
    offsets: PerQueue | None = None
    broker_name: str = ""

    def resolve(self, bounds: Mapping[MessageQueue, QueueBounds]) -> Positions:
        """Return the position of the point in each queue. The point must not be a time.

        Raises:
            ConfigError: the offsets lack a queue, contain an unknown queue, are after a queue's end, or contain several
                brokers without the store's.
        """
        if self.offsets is None:
            return {queue: limits[0 if self.mark == EARLIEST else 1] for queue, limits in bounds.items()}
        present = {(queue.topic, queue.queue_id) for queue in bounds}
        wanted: dict[tuple[str, int], int] = {}
        for topic, below in self.offsets.items():
            there = [queue_id for name, queue_id in present if name == topic]
            wanted |= {(topic, queue_id): at for queue_id, at in self._of_topic(topic, below, there).items()}
        for place in sorted(wanted.keys() ^ present):
            what = "no such queue as" if place in wanted else "no offset for"
            raise ConfigError(
                f"{self.option}: {what} {place[0]}:{place[1]}; give one for each queue that is read: "
                f"{', '.join(f'{topic}:{queue_id}' for topic, queue_id in sorted(present)) or 'there are none'}"
            )
        result = {}
        for queue, limits in bounds.items():
            at = wanted[queue.topic, queue.queue_id]
            if at > limits.maximum:
                raise ConfigError(
                    f"{self.option}: offset {at} of {queue.topic}:{queue.queue_id} lies behind its end; "
                    f"expected at most {limits.maximum}"
                )
            result[queue] = {EARLIEST: limits.minimum, LATEST: limits.maximum}.get(at, at)
        return result

    def _of_topic(self, topic: str, below: Any, there: list[int]) -> Mapping[int, int]:
        """Return the offsets of a topic's queues.

        The name of a single broker is ignored, because a store has one broker.
        """
        if isinstance(below, Mapping):
            if below and all(name.isdecimal() and isinstance(at, int) for name, at in below.items()):
                return {int(name): at for name, at in below.items()}
            if len(below) > 1 and self.broker_name not in below:
                raise ConfigError(
                    f"{self.option}: {topic} has offsets of the brokers {', '.join(below)}, and a store is one broker's"
                    "; say whose it is by brokerName, or leave the others out"
                )
            below = below[self.broker_name] if len(below) > 1 else next(iter(below.values()), {})
        return below if isinstance(below, Mapping) else dict.fromkeys(there, below)


def _path(raw: RawOptions) -> str:
    path, loaded = raw.verbatim("storePath"), raw.verbatim("path")
    if path is not None and loaded is not None and path != loaded:
        raise ConfigError(f"storePath={path} and load({loaded!r}) name two folders; give one of them")
    return (loaded or "").strip() or raw.need("storePath")


def _pattern(text: str) -> str:
    if not text:
        raise ValueError(text)
    return re.compile(text).pattern


def _numbers(text: str) -> frozenset[int]:
    return frozenset(number(0)(part.strip()) for part in text.split(","))


def _queues_by_topic(text: str) -> dict[str, tuple[int, ...]]:
    result = {}
    for topic, queues in _object(text).items():
        if not isinstance(queues, list) or not queues or not all(_is_number(queue_id) for queue_id in queues):
            raise ValueError(text)
        result[topic] = tuple(sorted(set(queues)))
    if not result:
        raise ValueError(text)
    return result


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _point(side: str, raw: RawOptions) -> StorePoint:
    by_offset, by_time = f"{side}Offsets", f"{side}Timestamp"
    text, time = raw.either(by_offset, by_time)
    if raw.mode == STREAM and side == "ending":
        check_no_end(raw)
    if time is not None:
        return StorePoint(by_time, timestamp_ms=raw.read(by_time, 0, milliseconds))
    if text is None:
        return StorePoint(by_offset, mark=EARLIEST if side == "starting" and raw.mode == BATCH else LATEST)
    mark = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    offsets: PerQueue | None = None
    if mark is None:
        if not text.startswith("{"):
            raise raw.bad(by_offset)
        offsets = parse_offsets(text, by_offset)
    point = StorePoint(by_offset, mark=mark, offsets=offsets, broker_name=raw.text("brokerName") or "")

    def has(one: int) -> bool:
        return mark == one or (offsets is not None and holds(offsets, one))

    if side == "ending" and has(EARLIEST):
        raise raw.bad(by_offset)
    if raw.mode == BATCH and side == "starting" and has(LATEST):
        raise reads_nothing(raw)
    return point


def _topics(raw: RawOptions) -> tuple[str, ...]:
    assigned = _assigned(raw)
    return tuple(assigned) if assigned is not None else raw.read("subscribe", (), option_values.name_list)


def _assigned(raw: RawOptions) -> dict[str, tuple[int, ...]] | None:
    return raw.read("assign", None, _queues_by_topic)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of a read from a store.

    Attributes:
        path: `storePath`.
        commit_logs: `storePathCommitLog`.
        broker_name: value of the column `brokerName`; "" for null.
        topics: the topics to read, if they are given by name.
        pattern: regular expression for the topics to read, if they are given by a pattern.
        assigned: queue ids to read by topic, if they are given.
        queues: numbers of the queues to read; empty for all.
        starting: the start of the read.
        starting_strategy: `error` or `latest`, for a queue without a message at the starting time or later.
        ending: the end of a batch.
        key: key or unique key of the wanted messages; None for all messages.
        tags: a tag expression.
        verify_crc: whether bodies are compared with their CRC.
        fail_on_data_loss: whether lost or damaged messages fail the query; otherwise they are skipped with a warning.
        include_properties: whether the row schema has the column `properties`.
        include_metadata: whether the row schema has id, hosts, deliveries, flags and commit log offset.
        kafka_columns: whether the row schema is that of Spark's Kafka source.
        include_headers: whether the schema of Kafka has the column `headers`.
        max_born_ahead_ms: ms by which the producer's time may be later than the broker's; later times are null.
        corrupt_bodies: the rule for a compressed body that cannot be unpacked, see `rows.rules`.
        min_partitions: minimum number of tasks, 0 for a number that suits the number of messages.
        max_records_per_partition: maximum messages in a task, 0 for no limit.
        max_offsets_per_trigger: maximum messages in a micro-batch, None for no limit.
    """

    path: str = several(
        {"storePath": "the folder of a store: a broker's storePathRootDir, a copy of one, or a --data folder"}, _path
    )
    commit_logs: tuple[str, ...] = option(
        "storePathCommitLog",
        "folders of commit-log files joined by commas, when they are not in storePath/commitlog",
        option_values.name_list,
        (),
    )
    broker_name: str = option(
        "brokerName", "a name for the column brokerName; a store does not say whose it is", str, ""
    )
    topics: tuple[str, ...] = several({"subscribe": "topics joined by commas"}, _topics)
    pattern: str | None = option("subscribePattern", PATTERN_RULE, _pattern, None)
    assigned: Mapping[str, tuple[int, ...]] | None = several({"assign": 'JSON like {"topic": [0, 1]}'}, _assigned)
    queues: frozenset[int] = option("queues", "queue numbers joined by commas, for every topic", _numbers, frozenset())
    starting: StorePoint = several(
        {
            "startingOffsets": f"earliest, latest (streams only) or JSON like {_OFFSETS}",
            "endingOffsets": "latest or JSON like the one for startingOffsets; batch reads only",
            "startingTimestamp": TIME_RULE,
            "endingTimestamp": f"{TIME_RULE}; batch reads only",
        },
        partial(_point, "starting"),
    )
    starting_strategy: str = several({STRATEGY: STRATEGY_RULE}, starting_strategy)
    ending: StorePoint = several({}, partial(_point, "ending"))
    key: str | None = option("key", "a message key or unique key; batch reads only", str, None)
    tags: str = option("tags", option_values.TAGS_RULE, option_values.tags, "*")
    verify_crc: bool = switch("verifyCrc", False)
    fail_on_data_loss: bool = switch("failOnDataLoss", True)
    include_properties: bool = switch("includeProperties", False)
    include_metadata: bool = switch("includeMetadata", False)
    kafka_columns: bool = several({"columns": COLUMNS_RULE, "includeHeaders": HEADERS_RULE}, kafka_columns)
    include_headers: bool = several({}, include_headers)
    max_born_ahead_ms: int = option_values.max_born_ahead()
    corrupt_bodies: str = option_values.corrupt_bodies()
    min_partitions: int = count("minPartitions", 0)
    max_records_per_partition: int = count("maxRecordsPerPartition", 0)
    max_offsets_per_trigger: int | None = count("maxOffsetsPerTrigger", None, "; streams only")

    def wants_topic(self, topic: str) -> bool:
        """Whether a topic is selected. System topics must be excluded by the caller."""
        return re.fullmatch(self.pattern, topic) is not None if self.pattern is not None else topic in self.topics

    def wants(self, queue: MessageQueue) -> bool:
        """Whether a queue is selected."""
        if not self.wants_topic(queue.topic):
            return False
        if self.assigned is not None:
            return queue.queue_id in self.assigned.get(queue.topic, ())
        return not self.queues or queue.queue_id in self.queues


def parse_store(values: Mapping[str, str], mode: str | None = None) -> StoreOptions:
    """Read the options of `format("tianzhou_store")`.

    Args:
        values: as written; names in any case. `path`, the argument of `load(path)`, has the meaning of `storePath`.
        mode: BATCH or STREAM; None if it is not known yet, which skips the checks that depend on it.

    Raises:
        ConfigError: an option is missing, unknown, malformed, not for this mode, or contradicts another option.
    """
    raw = RawOptions(values, StoreOptions, mode)
    _path(raw)
    assigned = _assigned(raw)
    named = [name for name in ("subscribe", "subscribePattern", "assign") if raw.text(name) is not None]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(f'{name}={raw.text(name)}' for name in named)} are both given; give one")
    if not named:
        raw.need("subscribe")
    if assigned is not None and raw.text("queues") is not None:
        raise ConfigError(f"assign names the queues, and so does queues={raw.text('queues')}; give one of them")
    key = raw.text("key")
    if key == "" or (key is not None and mode == STREAM):
        raise raw.bad("key")
    if mode == BATCH and raw.text("maxOffsetsPerTrigger") is not None:
        raise raw.bad("maxOffsetsPerTrigger")
    return raw.parse(StoreOptions)
