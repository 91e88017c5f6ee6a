"""The options of the sink, read and checked. Pure.

The source's options are in `read_options`, the parser in `option_values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.spark import option_values as values
from tianzhou.spark.option_values import (
    BATCH,
    NAME_RULE,
    STREAM,
    RawOptions,
    ServerOptions,
    count,
    number,
    option,
    several,
)

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
LONGEST_KEY: Final = 180


def _key(text: str) -> str:
    if not text.isprintable() or not 0 < len(text) <= LONGEST_KEY:
        raise ValueError(text)
    return text


def _exactly_once(raw: RawOptions) -> bool:
    exactly_once = raw.read("delivery", AT_LEAST_ONCE, values.one_of(AT_LEAST_ONCE, EXACTLY_ONCE)) == EXACTLY_ONCE
    key, number = raw.text("batchKey"), raw.text("batchNumber")
    if key is not None and raw.mode == STREAM:
        raise ConfigError(f"batchKey={key}: a stream's batches have names of their own; leave the option out")
    if key is not None and not exactly_once:
        raise ConfigError(f"batchKey={key}: counts with delivery={EXACTLY_ONCE} only; give that too, or leave it out")
    if number is not None and key is None:
        raise ConfigError(f"batchNumber={number}: says which batch of a batchKey it is; give that too, or leave it out")
    rate = raw.text("maxMessagesPerSecond")
    if rate is not None and exactly_once:
        raise ConfigError(
            f"maxMessagesPerSecond={rate}: what is delivered {EXACTLY_ONCE} becomes visible a batch at a time; bound "
            "the batch by the source's maxOffsetsPerTrigger and a trigger interval, or leave the option out"
        )
    if exactly_once and key is None and raw.mode == BATCH:
        raise ConfigError(
            f"delivery={EXACTLY_ONCE}: a batch write has no name that would set a repetition apart from another "
            "write of the same rows; give it one with the option batchKey, unique to this data"
        )
    return exactly_once


@dataclass(frozen=True, slots=True)
class WriteOptions(ServerOptions):
    """Options of the sink.

    Attributes:
        topic: the topic of rows without a `topic` column or with null in it; None when every row has one.
        producer_group: the producer group.
        send_timeout_ms: maximum time in ms of one send, including retries.
        sharding_wait_ms: maximum time in ms that rows with a sharding key wait for the broker of their queue.
        sharding_brokers: the brokers that sharding keys are divided among; empty for all.
        exactly_once: whether rows are staged and become visible once, together with their batch.
        batch_key: key of a batch write, so that a repetition of it does nothing; None without a key.
        batch_number: number of the batch. The batches of a key are written in ascending order.
        max_messages_per_second: maximum messages that each task sends per second; None for no limit.
    """

    topic: str | None = option("topic", f"a topic: {NAME_RULE}", values.name, None)
    producer_group: str = option("producerGroup", f"a group name: {NAME_RULE}", values.name, "tianzhou-spark")
    send_timeout_ms: int = option("sendTimeoutMs", "milliseconds, a whole number from 1", number(1), 10_000)
    sharding_wait_ms: int = option("shardingWaitMs", "milliseconds, a whole number from 0", number(0), 60_000)
    sharding_brokers: frozenset[str] = option(
        "shardingBrokers",
        "names of brokers joined by commas",
        lambda text: frozenset(values.name_list(text)),
        frozenset(),
    )
    exactly_once: bool = several({"delivery": "at-least-once or exactly-once"}, _exactly_once)
    batch_key: str | None = option(
        "batchKey", f"1 to {LONGEST_KEY} characters; batch writes that are delivered exactly-once only", _key, None
    )
    batch_number: int = option("batchNumber", "a whole number from 0, with batchKey only", number(0), 0)
    max_messages_per_second: int | None = count(
        "maxMessagesPerSecond", None, f", for each task; with delivery={AT_LEAST_ONCE} only"
    )


def parse_write(options: Mapping[str, str], has_topic_column: bool, *, stream: bool = False) -> WriteOptions:
    """Read the options of the sink.

    Args:
        options: as written; names in any case.
        has_topic_column: whether the rows have a column of topics, so that the option is not needed.
        stream: whether the query is a stream. The batches of a stream have names already.

    Raises:
        ConfigError: an option is missing, unknown, malformed, or contradicts another option.
    """
    raw = RawOptions(options, WriteOptions, STREAM if stream else BATCH)
    raw.need("namesrvAddr")
    if not has_topic_column:
        raw.need("topic")
    return raw.parse(WriteOptions)
