"""The options of the source, read and checked. Pure.

Names and defaults follow Spark's own Kafka source where it has the same option. The parser is in `option_values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tianzhou.errors import ConfigError, FilterSyntaxError
from tianzhou.filter import check_whole
from tianzhou.filter.tags import parse_tags
from tianzhou.spark import option_values as values
from tianzhou.spark.option_values import BATCH, STREAM, RawOptions, ServerOptions, count, option, several, switch
from tianzhou.spark.rows.rules import RowRules
from tianzhou.spark.source.offsets import EARLIEST, LATEST
from tianzhou.spark.source.positions import (
    AT_LATEST,
    ERROR,
    OFFSETS_RULE,
    STRATEGY,
    TIME_RULE,
    PerQueue,
    holds,
    milliseconds,
    parse_offsets,
    parse_times,
)
from tianzhou.spark.source.selection import ASSIGN_RULE, PATTERN_RULE, TOPICS_RULE, TopicSelection, parse_selection

ROCKETMQ: Final = "rocketmq"
KAFKA: Final = "kafka"
DEFAULT_GROUP: Final = "tianzhou-spark"

_TIMES_PER_QUEUE: Final = 'or by queue {"topic": {"broker": {"0": 1700000000000}}}'


@dataclass(frozen=True, slots=True)
class Where:
    """A point in every queue.

    Exactly one of the fields but `option` is set.

    Attributes:
        option: name of the option, for messages.
        mark: EARLIEST or LATEST.
        timestamp_ms: a time in ms since the epoch: the first message stored then or later.
        offsets: by topic, broker and queue id; values may be EARLIEST or LATEST.
        timestamps_ms: times in ms since the epoch, by topic, broker and queue id.
    """

    option: str
    mark: int | None = None
    timestamp_ms: int | None = None
    offsets: PerQueue | None = None
    timestamps_ms: PerQueue | None = None

    @property
    def by_time(self) -> bool:
        """Whether the point is given by one or several times."""
        return self.timestamp_ms is not None or self.timestamps_ms is not None

    def has(self, mark: int) -> bool:
        """Whether the point is the mark EARLIEST or LATEST in all queues or in one of them."""
        return self.mark == mark or (self.offsets is not None and holds(self.offsets, mark))


def _sql(raw: RawOptions) -> str | None:
    text = raw.text("sql")
    if text is None:
        return None
    if not text:
        raise raw.bad("sql")
    try:
        check_whole(text)
    except FilterSyntaxError as error:
        raise raw.bad("sql", str(error)) from None
    return text


def _where(side: str, raw: RawOptions) -> Where:
    by_offset, by_time = f"{side}Offsets", f"{side}Timestamp"
    text, time = raw.either(by_offset, by_time)
    if time is not None and time.startswith("{"):
        return Where(by_time, timestamps_ms=parse_times(time, by_time))
    if time is not None:
        return Where(by_time, timestamp_ms=raw.read(by_time, 0, milliseconds))
    if text is None:
        return Where(by_offset, mark=EARLIEST if side == "starting" and raw.mode == BATCH else LATEST)
    marks = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in marks:
        return Where(by_offset, mark=marks[text.lower()])
    if not text.startswith("{"):
        raise raw.bad(by_offset)
    return Where(by_offset, offsets=parse_offsets(text, by_offset))


def kafka_columns(raw: RawOptions) -> bool:
    """Whether the option `columns` is `kafka`.

    Raises:
        ConfigError: the option is malformed, or an option for the other columns is given.
    """
    kafka = raw.read("columns", ROCKETMQ, values.one_of(ROCKETMQ, KAFKA)) == KAFKA
    needed = ROCKETMQ if kafka else KAFKA
    for other in ("includeProperties", "includeMetadata") if kafka else ("includeHeaders",):
        if (value := raw.text(other)) is not None:
            raise ConfigError(f"{other}={value}: counts with columns={needed} only; give that too, or leave it out")
    return kafka


def include_headers(raw: RawOptions) -> bool:
    """Whether the rows have the column `headers`."""
    return raw.read("includeHeaders", False, values.flag)


def starting_strategy(raw: RawOptions) -> str:
    """Return the strategy for a queue without a message at `startingTimestamp` or later.

    Raises:
        ConfigError: the option is malformed, or `startingTimestamp` is missing.
    """
    strategy: str = raw.read(STRATEGY, AT_LATEST, values.one_of(ERROR, AT_LATEST))
    if (text := raw.text(STRATEGY)) is not None and raw.text("startingTimestamp") is None:
        raise ConfigError(f"{STRATEGY}={text}: counts with startingTimestamp only; give that too, or leave it out")
    return strategy


STRATEGY_RULE: Final = "error or latest, with startingTimestamp only"
COLUMNS_RULE: Final = "rocketmq or kafka"
HEADERS_RULE: Final = "true or false, with columns=kafka only"


@dataclass(frozen=True, slots=True)
class ReadOptions(ServerOptions):
    """Options of a batch read or a stream.

    Attributes:
        selection: the topics or queues to read.
        starting: the start of the read; by default earliest for a batch and latest for a stream.
        starting_strategy: `error` or `latest`, for a queue without a message at the starting time or later.
        ending: the end of a batch; by default latest.
        max_offsets_per_trigger: maximum messages in a micro-batch, None for no limit.
        min_offsets_per_trigger: messages for which a micro-batch waits, None for no wait.
        max_trigger_delay_ms: maximum time in ms of that wait.
        min_partitions: minimum number of tasks; 0 for no minimum, so that small ranges share a task.
        max_records_per_partition: maximum messages in a task, 0 for no limit.
        fail_on_data_loss: whether lost messages fail the query; otherwise they are skipped with a warning.
        include_properties: whether the row schema has the column `properties`.
        include_metadata: whether the row schema has id, hosts, deliveries, flags and commit log offset.
        include_slowest_timestamp: whether the rows of a stream have the column `slowestTimestamp`.
        kafka_columns: whether the row schema is that of Spark's Kafka source.
        include_headers: whether the schema of Kafka has the column `headers`.
        max_born_ahead_ms: ms by which the producer's time may be later than the broker's; later times are null.
        corrupt_bodies: the rule for a compressed body that cannot be unpacked, see `rows.rules`.
        tags: a tag expression; `*` for all.
        sql: an SQL92 expression over properties instead of tags, evaluated by the broker; None for all.
        filter_pushdown: whether a batch read uses the conditions of its query to read fewer messages.
        poll_timeout_ms: maximum time in ms that a task waits for messages that should exist, or for a broker.
        consumer_group: the consumer group of the requests.
        publish_progress: whether completed positions of a stream are committed as the group's offsets, for monitoring;
            on if `consumerGroup` is given.
    """

    selection: TopicSelection = several(
        {"subscribe": TOPICS_RULE, "subscribePattern": PATTERN_RULE, "assign": ASSIGN_RULE}, parse_selection
    )
    starting: Where = several(
        {
            "startingOffsets": f"earliest, latest (streams only) or {OFFSETS_RULE}",
            "endingOffsets": f"latest or {OFFSETS_RULE.removesuffix(' and -2 for earliest')}; batch reads only",
            "startingTimestamp": f"{TIME_RULE}, {_TIMES_PER_QUEUE}",
            "endingTimestamp": f"{TIME_RULE}, {_TIMES_PER_QUEUE}; batch reads only",
        },
        partial(_where, "starting"),
    )
    starting_strategy: str = several({STRATEGY: STRATEGY_RULE}, starting_strategy)
    ending: Where = several({}, partial(_where, "ending"))
    max_offsets_per_trigger: int | None = count("maxOffsetsPerTrigger", None, "; streams only")
    min_offsets_per_trigger: int | None = count("minOffsetsPerTrigger", None, "; streams only")
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", "a time like 500ms, 30s, 15m or 1h; streams only", values.duration_ms, 15 * 60_000
    )
    min_partitions: int = count("minPartitions", 0)
    max_records_per_partition: int = count("maxRecordsPerPartition", 0)
    fail_on_data_loss: bool = switch("failOnDataLoss", True)
    include_properties: bool = switch("includeProperties", False)
    include_metadata: bool = switch("includeMetadata", False)
    include_slowest_timestamp: bool = switch("includeSlowestTimestamp", False, "; true for streams only")
    kafka_columns: bool = several({"columns": COLUMNS_RULE, "includeHeaders": HEADERS_RULE}, kafka_columns)
    include_headers: bool = several({}, include_headers)
    max_born_ahead_ms: int = values.max_born_ahead()
    corrupt_bodies: str = values.corrupt_bodies()
    tags: str = option("tags", values.TAGS_RULE, values.tags, "*")
    sql: str | None = several({"sql": "an SQL92 expression over properties, like price > 10 AND TAGS = 'paid'"}, _sql)
    filter_pushdown: bool = switch("filterPushdown", False, "; true for batch reads only")
    poll_timeout_ms: int = option("pollTimeoutMs", "milliseconds, a whole number from 1", values.number(1), 60_000)
    consumer_group: str = option("consumerGroup", f"a group name: {values.NAME_RULE}", values.name, DEFAULT_GROUP)
    publish_progress: bool = several({}, lambda raw: raw.text("consumerGroup") is not None)

    @property
    def wanted_tags(self) -> frozenset[str]:
        """Tags of the wanted messages; empty for all messages."""
        return parse_tags(self.tags).tags

    @property
    def row_rules(self) -> RowRules:
        """Rules for values that no row can have."""
        return RowRules(self.max_born_ahead_ms, self.corrupt_bodies)

    @property
    def filtered(self) -> bool:
        """Whether the broker filters messages."""
        return self.sql is not None or bool(self.wanted_tags)


def parse_read(options: Mapping[str, str], mode: str | None = None) -> ReadOptions:
    """Read the options of a source.

    Args:
        options: as written; names in any case.
        mode: BATCH or STREAM; None if it is not known yet, which skips the checks that depend on it.

    Raises:
        ConfigError: an option is missing, unknown, malformed, not for this mode, or contradicts another option.
    """
    raw = RawOptions(options, ReadOptions, mode)
    result = raw.parse(ReadOptions)
    _check_mode(raw, result)
    _check_together(raw, result)
    return result


def _check_together(raw: RawOptions, options: ReadOptions) -> None:
    if options.sql is not None and options.wanted_tags:
        raise ConfigError(
            f"tags={options.tags} and sql={options.sql} are both given; give one of them, SQL has TAGS for the tag"
        )
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is None and (delay := raw.text("maxTriggerDelay")) is not None:
        raise ConfigError(f"maxTriggerDelay={delay}: bounds how long minOffsetsPerTrigger waits; give that too")
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"minOffsetsPerTrigger={least}: is more than maxOffsetsPerTrigger={most}, so that no micro-batch could "
            "have enough; expected at most that"
        )
    if options.ending.has(EARLIEST):
        raise raw.bad("endingOffsets")


def _check_mode(raw: RawOptions, options: ReadOptions) -> None:
    if raw.mode == BATCH:
        if options.include_slowest_timestamp:
            raise raw.bad("includeSlowestTimestamp", "a batch read has no time that its queues have reached")
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if raw.text(name) is not None:
                raise raw.bad(name)
        if options.starting.has(LATEST):
            raise reads_nothing(raw)
    if raw.mode == STREAM:
        if options.filter_pushdown:
            raise raw.bad("filterPushdown", "Spark pushes no conditions down into streams")
        check_no_end(raw)


def reads_nothing(raw: RawOptions) -> ConfigError:
    """Return the error for a batch that would begin at the end of all queues."""
    return ConfigError(
        f"startingOffsets={raw.text('startingOffsets')}: a batch read that starts at the latest offset "
        "reads nothing; expected earliest or offsets that exist"
    )


def check_no_end(raw: RawOptions) -> None:
    """Check that a stream has no option for an end.

    Raises:
        ConfigError: it has one.
    """
    for name in ("endingOffsets", "endingTimestamp"):
        if raw.text(name) is not None:
            raise ConfigError(
                f"{name}={raw.text(name)}: a stream has no end; read in batches, or use "
                "trigger(availableNow=True) to stop at what is there now"
            )
