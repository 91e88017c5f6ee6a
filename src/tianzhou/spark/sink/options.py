"""The options of the sink, read and checked. Pure.

The source's are in `read_options`; how values are read, in `given`. Every mistake is a `ConfigError` that names
the option, its value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.spark import option_values as values
from tianzhou.spark.option_values import Given

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
LONGEST_KEY: Final = 180


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of the sink.

    Attributes:
        namesrv_addr: name servers, `host:port` joined by `;`.
        tls: whether to speak TLS; None leaves it to each process's environment.
        tls_config_file: where RocketMQ's `tls.*` keys are, on every machine; None leaves that to the environment.
        topic: the topic of rows without a `topic` column or with null in it; None when every row has one.
        producer_group: the group to send as.
        send_timeout_ms: how long one send may take, retries included.
        exactly_once: whether rows are staged and become visible with their batch, once.
        batch_key: what a batch write is known by, so that a repetition of it does nothing; None without one.
        batch_number: which of the batches of that key it is; they are written in ascending order.
        max_messages_per_second: most messages each task sends in a second; None for no bound.
    """

    namesrv_addr: str
    tls: bool | None
    tls_config_file: str | None
    topic: str | None
    producer_group: str
    send_timeout_ms: int
    exactly_once: bool = False
    batch_key: str | None = None
    batch_number: int = 0
    max_messages_per_second: int | None = None


WRITE_KNOWN: Final[Mapping[str, str]] = {
    "namesrvAddr": values.NAMESRV_RULE,
    "tls": "true or false",
    "tlsConfigFile": values.TLS_FILE_RULE,
    "topic": f"a topic: {values.NAME_RULE}",
    "producerGroup": f"a group name: {values.NAME_RULE}",
    "sendTimeoutMs": "milliseconds, a whole number from 1",
    "delivery": "at-least-once or exactly-once",
    "batchKey": f"1 to {LONGEST_KEY} characters; batch writes that are delivered exactly-once only",
    "batchNumber": "a whole number from 0, with batchKey only",
    "maxMessagesPerSecond": f"a whole number from 1, for each task; with delivery={AT_LEAST_ONCE} only",
}


def _delivery(text: str) -> bool:
    try:
        return {AT_LEAST_ONCE: False, EXACTLY_ONCE: True}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _key(text: str) -> str:
    if not text.isprintable() or not 0 < len(text) <= LONGEST_KEY:
        raise ValueError(text)
    return text


def parse_write(options: Mapping[str, str], has_topic_column: bool, *, stream: bool = False) -> WriteOptions:
    """Read the options of the sink.

    Args:
        options: as given; names in any case.
        has_topic_column: whether the rows name their topic, so that the option is not needed.
        stream: whether a stream is written, whose batches have names already.

    Raises:
        ConfigError: an option is missing, unknown, malformed, or does not go with another.
    """
    given = Given(options, WRITE_KNOWN)
    given.need("namesrvAddr")
    if not has_topic_column:
        given.need("topic")
    tls, tls_file = values.tls(given)
    return WriteOptions(
        namesrv_addr=given.read("namesrvAddr", "", values.addresses),
        tls=tls,
        tls_config_file=tls_file,
        topic=given.read("topic", None, values.name),
        producer_group=given.read("producerGroup", "tianzhou-spark", values.name),
        send_timeout_ms=given.read("sendTimeoutMs", 10_000, values.number(1)),
        exactly_once=_check_delivery(given, stream=stream),
        batch_key=given.read("batchKey", None, _key),
        batch_number=given.read("batchNumber", 0, values.number(0)),
        max_messages_per_second=given.read("maxMessagesPerSecond", None, values.number(1)),
    )


def _check_delivery(given: Given, *, stream: bool) -> bool:
    exactly_once = given.read("delivery", False, _delivery)
    key, number = given.text("batchKey"), given.text("batchNumber")
    if key is not None and stream:
        raise ConfigError(f"batchKey={key}: a stream's batches have names of their own; leave the option out")
    if key is not None and not exactly_once:
        raise ConfigError(f"batchKey={key}: counts with delivery={EXACTLY_ONCE} only; give that too, or leave it out")
    if number is not None and key is None:
        raise ConfigError(f"batchNumber={number}: says which batch of a batchKey it is; give that too, or leave it out")
    rate = given.text("maxMessagesPerSecond")
    if rate is not None and exactly_once:
        raise ConfigError(
            f"maxMessagesPerSecond={rate}: what is delivered {EXACTLY_ONCE} becomes visible a batch at a time; bound "
            "the batch by the source's maxOffsetsPerTrigger and a trigger interval, or leave the option out"
        )
    if exactly_once and key is None and not stream:
        raise ConfigError(
            f"delivery={EXACTLY_ONCE}: a batch write has no name by which a repetition could be told from another "
            "write of the same rows; give it one with the option batchKey, unique to this data"
        )
    return exactly_once
