"""The options of `format("tianzhou_store")`, read and checked. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.option_values import Given, flag, number, tags
from tianzhou.spark.source.offsets import EARLIEST, LATEST, Bounds, Positions
from tianzhou.spark.source.positions import TIME_RULE, milliseconds
from tianzhou.spark.source.read_options import BATCH, STREAM, check_no_end, reads_nothing

_OFFSETS: Final = '{"topic": {"0": 42, "1": -2}} with -1 for latest and -2 for earliest'
KNOWN: Final[Mapping[str, str]] = {
    "storePath": "the folder of a store: a broker's storePathRootDir, a copy of one, or a --data folder",
    "storePathCommitLog": "folders of commit-log files joined by commas, when they are not in storePath/commitlog",
    "brokerName": "a name for the column brokerName; a store does not say whose it is",
    "subscribe": "topics joined by commas",
    "subscribePattern": "a regular expression that whole topic names match",
    "assign": 'JSON like {"topic": [0, 1]}',
    "queues": "queue numbers joined by commas, for every topic",
    "startingOffsets": f"earliest, latest (streams only) or JSON like {_OFFSETS}",
    "endingOffsets": "latest or JSON like the one for startingOffsets; batch reads only",
    "startingTimestamp": TIME_RULE,
    "endingTimestamp": f"{TIME_RULE}; batch reads only",
    "key": "a message key or unique key; batch reads only",
    "tags": "tags joined by ||, or * for all",
    "verifyCrc": "true or false",
    "failOnDataLoss": "true or false",
    "includeProperties": "true or false",
    "minPartitions": "a whole number from 1",
    "maxRecordsPerPartition": "a whole number from 1",
    "maxOffsetsPerTrigger": "a whole number from 1; streams only",
}


@dataclass(frozen=True, slots=True)
class Point:
    """A point in every queue; one of the fields is set.

    Attributes:
        option: where it came from, for messages.
        mark: EARLIEST or LATEST.
        timestamp_ms: the first message stored at this time or later.
        offsets: by topic and queue; values may be EARLIEST or LATEST.
    """

    option: str
    mark: int | None = None
    timestamp_ms: int | None = None
    offsets: Mapping[str, Mapping[int, int]] | None = None

    def resolve(self, bounds: Mapping[MessageQueue, Bounds]) -> Positions:
        """Where the point lies in each queue, when it is no time.

        Raises:
            ConfigError: offsets leave out a queue, name an unknown one or lie behind its end.
        """
        if self.offsets is None:
            return {queue: limits[0 if self.mark == EARLIEST else 1] for queue, limits in bounds.items()}
        given = {(topic, queue_id): at for topic, queues in self.offsets.items() for queue_id, at in queues.items()}
        present = {(queue.topic, queue.queue_id) for queue in bounds}
        for place in sorted(given.keys() ^ present):
            what = "no such queue as" if place in given else "no offset for"
            raise ConfigError(
                f"{self.option}: {what} {place[0]}:{place[1]}; give one for each queue that is read: "
                f"{', '.join(f'{topic}:{queue_id}' for topic, queue_id in sorted(present)) or 'there are none'}"
            )
        result = {}
        for queue, limits in bounds.items():
            at = given[queue.topic, queue.queue_id]
            if at > limits.maximum:
                raise ConfigError(
                    f"{self.option}: offset {at} of {queue.topic}:{queue.queue_id} lies behind its end; "
                    f"expected at most {limits.maximum}"
                )
            result[queue] = {EARLIEST: limits.minimum, LATEST: limits.maximum}.get(at, at)
        return result


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of a read from a store.

    Attributes:
        path: `storePath`.
        commit_logs: `storePathCommitLog`.
        broker_name: what the column `brokerName` says; "" for null.
        topics: the topics to read, when they are named.
        pattern: which topics to read, when a pattern was given.
        assigned: queues of each topic to read, when they are named.
        queues: numbers of the queues to read; empty for all.
        starting: where to begin.
        ending: where a batch ends.
        key: only messages with this key or unique key.
        tags: a tag expression.
        verify_crc: whether bodies are compared with their CRC.
        fail_on_data_loss: whether messages that are gone or damaged fail the query or are skipped with a warning.
        include_properties: whether the row schema has the column `properties`.
        min_partitions: how many tasks are wanted at least, 0 for as many as the work is worth.
        max_records_per_partition: most messages in a task, 0 for no bound.
        max_offsets_per_trigger: most messages in a micro-batch, None for no bound.
    """

    path: str
    commit_logs: tuple[str, ...]
    broker_name: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: Mapping[str, tuple[int, ...]] | None
    queues: frozenset[int]
    starting: Point
    ending: Point
    key: str | None
    tags: str
    verify_crc: bool
    fail_on_data_loss: bool
    include_properties: bool
    min_partitions: int
    max_records_per_partition: int
    max_offsets_per_trigger: int | None

    def wants_topic(self, topic: str) -> bool:
        """Whether a topic is wanted, if it is one of the users' own."""
        return re.fullmatch(self.pattern, topic) is not None if self.pattern is not None else topic in self.topics

    def wants(self, queue: MessageQueue) -> bool:
        """Whether a queue is wanted."""
        if not self.wants_topic(queue.topic):
            return False
        if self.assigned is not None:
            return queue.queue_id in self.assigned.get(queue.topic, ())
        return not self.queues or queue.queue_id in self.queues


def parse_store(values: Mapping[str, str], mode: str | None = None) -> StoreOptions:
    """Read the options of `format("tianzhou_store")`.

    Args:
        values: as given; names in any case. `path`, what `load(path)` gives, stands for `storePath`.
        mode: BATCH or STREAM; None while that is not known yet, which leaves out what depends on it.

    Raises:
        ConfigError: an option is missing, unknown, malformed, not for this mode or in another's way.
    """
    values = _with_path(values)
    given = Given(values, KNOWN)
    path = given.need("storePath")
    assigned = given.read("assign", None, _assigned)
    named = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(f'{name}={given.text(name)}' for name in named)} are both given; give one")
    if not named:
        given.need("subscribe")
    if assigned is not None and given.text("queues") is not None:
        raise ConfigError(f"assign names the queues, and so does queues={given.text('queues')}; give one of them")
    key = given.text("key")
    if key == "" or (key is not None and mode == STREAM):
        raise given.bad("key")
    if mode == BATCH and given.text("maxOffsetsPerTrigger") is not None:
        raise given.bad("maxOffsetsPerTrigger")
    return StoreOptions(
        path=path,
        commit_logs=given.read("storePathCommitLog", (), _names),
        broker_name=given.text("brokerName") or "",
        topics=tuple(assigned) if assigned is not None else given.read("subscribe", (), _names),
        pattern=given.read("subscribePattern", None, _pattern),
        assigned=assigned,
        queues=given.read("queues", frozenset(), _numbers),
        starting=_point(given, "starting", EARLIEST if mode == BATCH else LATEST, mode),
        ending=_point(given, "ending", LATEST, mode),
        key=key,
        tags=given.read("tags", "*", tags),
        verify_crc=given.read("verifyCrc", False, flag),
        fail_on_data_loss=given.read("failOnDataLoss", True, flag),
        include_properties=given.read("includeProperties", True, flag),
        min_partitions=given.read("minPartitions", 0, number(1)),
        max_records_per_partition=given.read("maxRecordsPerPartition", 0, number(1)),
        max_offsets_per_trigger=given.read("maxOffsetsPerTrigger", None, number(1)),
    )


def _with_path(values: Mapping[str, str]) -> dict[str, str]:
    result = {key: value for key, value in values.items() if key.lower() != "path"}
    path = next((value for key, value in values.items() if key.lower() == "path"), None)
    if path is not None:
        other = next((value for key, value in values.items() if key.lower() == "storepath"), path)
        if other != path:
            raise ConfigError(f"storePath={other} and load({path!r}) name two folders; give one of them")
        result.setdefault(next((key for key in result if key.lower() == "storepath"), "storePath"), path)
    return result


def _names(text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(parts):
        raise ValueError(text)
    return parts


def _numbers(text: str) -> frozenset[int]:
    return frozenset(number(0)(part.strip()) for part in text.split(","))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    if not text:
        raise ValueError(text)
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
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


def _is_number(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _point(given: Given, side: str, default: int, mode: str | None) -> Point:
    by_offset, by_time = f"{side}Offsets", f"{side}Timestamp"
    text, time = given.either(by_offset, by_time)
    if mode == STREAM and side == "ending":
        check_no_end(given)
    if time is not None:
        return Point(by_time, timestamp_ms=given.read(by_time, 0, milliseconds))
    if text is None:
        return Point(by_offset, mark=default)
    mark = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    offsets: dict[str, dict[int, int]] | None = None
    if mark is None:
        offsets = given.read(by_offset, None, _offsets)
    point = Point(by_offset, mark=mark, offsets=offsets)
    holds = {mark} | {at for queues in (offsets or {}).values() for at in queues.values()}
    if side == "ending" and EARLIEST in holds:
        raise given.bad(by_offset)
    if mode == BATCH and side == "starting" and LATEST in holds:
        raise reads_nothing(given)
    return point


def _offsets(text: str) -> dict[str, dict[int, int]]:
    result: dict[str, dict[int, int]] = {}
    for topic, queues in _object(text).items():
        if isinstance(queues, dict) and len(queues) == 1 and isinstance(next(iter(queues.values())), dict):
            queues = next(iter(queues.values()))
        if not isinstance(queues, dict):
            raise ValueError(text)
        for queue_id, at in queues.items():
            if not queue_id.isdecimal() or not _is_number(at, EARLIEST):
                raise ValueError(text)
            result.setdefault(topic, {})[int(queue_id)] = at
    return result
