"""The options of the source and the sink, read and checked. Pure.

Names and defaults follow Spark's own Kafka source where both have the notion. Every mistake is a `ConfigError`
that names the option, its value and what is allowed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from tianzhou.errors import ConfigError, FilterSyntaxError
from tianzhou.filter.tags import parse_tags
from tianzhou.spark.offsets import EARLIEST, LATEST, parse_offsets

T = TypeVar("T")

BATCH: Final = "batch read"
STREAM: Final = "stream"
LONGEST_TOPIC: Final = 127

# What Spark itself hands to a source or a sink beside the options of the user.
_SPARKS_OWN: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_HOST: Final = re.compile(r"[^\s,;/]+")
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Where:
    """A point in every queue.

    Exactly one of the fields is set.

    Attributes:
        mark: EARLIEST or LATEST.
        timestamp_ms: the first message stored at this time or later.
        offsets: by topic, broker and queue id; values may be EARLIEST or LATEST.
        option: the option it came from, for messages.
    """

    option: str
    mark: int | None = None
    timestamp_ms: int | None = None
    offsets: Mapping[str, Mapping[str, Mapping[int, int]]] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a batch read or a stream.

    Attributes:
        namesrv_addr: name servers, `host:port` joined by `;`.
        tls: whether to speak TLS; None leaves it to each process's environment.
        tls_config_file: where RocketMQ's `tls.*` keys are, on every machine; None leaves that to the environment.
        topics: the topics to read.
        starting: where to begin: earliest for a batch, latest for a stream.
        ending: where a batch ends; latest.
        max_offsets_per_trigger: most messages in a micro-batch, None for no bound.
        min_partitions: how many tasks are wanted at least, 0 for one a queue.
        max_records_per_partition: most messages in a task, 0 for no bound.
        fail_on_data_loss: whether messages that are gone fail the query or are skipped with a warning.
        include_properties: whether the row schema has the column `properties`.
        tags: a tag expression; `*` for all.
        poll_timeout_ms: how long a task waits for messages that should be there, or for a broker.
        consumer_group: the group to read as.
        publish_progress: whether the positions a stream has completed are published as the group's offsets,
            for people to see; on when `consumerGroup` is given.
    """

    namesrv_addr: str
    tls: bool | None
    tls_config_file: str | None
    topics: tuple[str, ...]
    starting: Where
    ending: Where
    max_offsets_per_trigger: int | None
    min_partitions: int
    max_records_per_partition: int
    fail_on_data_loss: bool
    include_properties: bool
    tags: str
    poll_timeout_ms: int
    consumer_group: str
    publish_progress: bool

    @property
    def wanted_tags(self) -> frozenset[str]:
        """The tags to keep; empty keeps all."""
        return parse_tags(self.tags).tags


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
    """

    namesrv_addr: str
    tls: bool | None
    tls_config_file: str | None
    topic: str | None
    producer_group: str
    send_timeout_ms: int


class _Given:
    """The options as given, whatever the case of their names."""

    def __init__(self, values: Mapping[str, str], known: Mapping[str, str]) -> None:
        self._values = {key.lower(): value for key, value in values.items()}
        self._known = known
        by_lower = {name.lower() for name in known}
        for key in values:
            if key.lower() not in by_lower | _SPARKS_OWN:
                self._refuse_unknown(key, values[key])

    def _refuse_unknown(self, key: str, value: str) -> None:
        near = difflib.get_close_matches(key.lower(), [name.lower() for name in self._known], n=1, cutoff=0.6)
        hint = next((f" (did you mean {name}?)" for name in self._known if name.lower() in near), "")
        raise ConfigError(f"there is no option {key}={value}{hint}; there are {', '.join(self._known)}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def need(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise ConfigError(f"the option {name} is missing; expected {self._known[name]}")
        return value

    def bad(self, name: str) -> ConfigError:
        return ConfigError(f"{name}={self.text(name)}: expected {self._known[name]}")

    def read(self, name: str, default: T, convert: Callable[[str], T]) -> T:
        value = self.text(name)
        if value is None:
            return default
        try:
            return convert(value)
        except (ValueError, FilterSyntaxError):
            raise self.bad(name) from None


def _number(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise ValueError(text)
        return int(text)

    return convert


def _flag(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _addresses(text: str) -> str:
    for part in text.replace(",", ";").split(";"):
        host, colon, port = part.strip().rpartition(":")
        if not (_HOST.fullmatch(host) and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(text)
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or len(text) > LONGEST_TOPIC:
        raise ValueError(text)
    return text


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_name(part.strip()) for part in text.split(",")))


def _tags(text: str) -> str:
    parse_tags(text)
    return text


_NAMESRV: Final = "name servers as host:port, several joined by ; or ,"
_TLS_FILE: Final = "a file of RocketMQ's tls.* keys, under this name on every machine"
_TOPIC_RULE: Final = f"letters, digits and % | _ -, at most {LONGEST_TOPIC} characters"
_OFFSETS: Final = 'JSON like {"topic": {"broker": {"0": 42, "1": -2}}} with -1 for latest and -2 for earliest'
_MILLIS: Final = "milliseconds since the epoch"

READ_KNOWN: Final[Mapping[str, str]] = {
    "namesrvAddr": _NAMESRV,
    "tls": "true or false",
    "tlsConfigFile": _TLS_FILE,
    "subscribe": f"topics joined by commas; {_TOPIC_RULE}",
    "startingOffsets": f"earliest, latest (streams only) or {_OFFSETS}",
    "endingOffsets": f"latest or {_OFFSETS.removesuffix(' and -2 for earliest')}; batch reads only",
    "startingTimestamp": _MILLIS,
    "endingTimestamp": f"{_MILLIS}; batch reads only",
    "maxOffsetsPerTrigger": "a whole number from 1; streams only",
    "minPartitions": "a whole number from 1",
    "maxRecordsPerPartition": "a whole number from 1",
    "failOnDataLoss": "true or false",
    "includeProperties": "true or false",
    "tags": "tags joined by ||, or * for all",
    "pollTimeoutMs": "milliseconds, a whole number from 1",
    "consumerGroup": f"a group name: {_TOPIC_RULE}",
}
WRITE_KNOWN: Final[Mapping[str, str]] = {
    "namesrvAddr": _NAMESRV,
    "tls": "true or false",
    "tlsConfigFile": _TLS_FILE,
    "topic": f"a topic: {_TOPIC_RULE}",
    "producerGroup": f"a group name: {_TOPIC_RULE}",
    "sendTimeoutMs": "milliseconds, a whole number from 1",
}


def parse_read(values: Mapping[str, str], mode: str | None = None) -> ReadOptions:
    """Read the options of a source.

    Args:
        values: as given; names in any case.
        mode: BATCH or STREAM; None while that is not known yet, which leaves out what depends on it.

    Raises:
        ConfigError: an option is missing, unknown, malformed, not for this mode or in another's way.
    """
    given = _Given(values, READ_KNOWN)
    given.need("namesrvAddr")
    given.need("subscribe")
    tls, tls_file = _tls(given)
    group = given.text("consumerGroup")
    options = ReadOptions(
        namesrv_addr=given.read("namesrvAddr", "", _addresses),
        tls=tls,
        tls_config_file=tls_file,
        topics=given.read("subscribe", (), _topics),
        starting=_where(given, "starting", EARLIEST if mode == BATCH else LATEST),
        ending=_where(given, "ending", LATEST),
        max_offsets_per_trigger=given.read("maxOffsetsPerTrigger", None, _number(1)),
        min_partitions=given.read("minPartitions", 0, _number(1)),
        max_records_per_partition=given.read("maxRecordsPerPartition", 0, _number(1)),
        fail_on_data_loss=given.read("failOnDataLoss", True, _flag),
        include_properties=given.read("includeProperties", True, _flag),
        tags=given.read("tags", "*", _tags),
        poll_timeout_ms=given.read("pollTimeoutMs", 60_000, _number(1)),
        consumer_group=given.read("consumerGroup", "tianzhou-spark", _name),
        publish_progress=group is not None,
    )
    _check_mode(given, options, mode)
    return options


def _tls(given: _Given) -> tuple[bool | None, str | None]:
    tls = given.read("tls", None, _flag)
    file = given.text("tlsConfigFile")
    if file is not None and not file:
        raise given.bad("tlsConfigFile")
    if file is not None and not tls:
        # Whoever names whom to trust would otherwise speak plain.
        raise ConfigError(f"tlsConfigFile={file}: is read with tls=true only; give that too, or leave the file out")
    return tls, file


def _where(given: _Given, side: str, default: int) -> Where:
    by_offset, by_time = f"{side}Offsets", f"{side}Timestamp"
    text, time = given.text(by_offset), given.text(by_time)
    if text is not None and time is not None:
        raise ConfigError(f"{by_offset}={text} and {by_time}={time} are both given; give one of them")
    if time is not None:
        return Where(by_time, timestamp_ms=given.read(by_time, 0, _number(0)))
    if text is None:
        return Where(by_offset, mark=default)
    marks = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in marks:
        return Where(by_offset, mark=marks[text.lower()])
    if not text.startswith("{"):
        raise given.bad(by_offset)
    return Where(by_offset, offsets=parse_offsets(text, by_offset))


def _check_mode(given: _Given, options: ReadOptions, mode: str | None) -> None:
    if options.ending.mark == EARLIEST or _holds(options.ending, EARLIEST):
        raise given.bad("endingOffsets")
    if mode == BATCH:
        if options.max_offsets_per_trigger is not None:
            raise given.bad("maxOffsetsPerTrigger")
        if options.starting.mark == LATEST or _holds(options.starting, LATEST):
            raise ConfigError(
                f"startingOffsets={given.text('startingOffsets')}: a batch read that starts at the latest offset "
                "reads nothing; expected earliest or offsets that exist"
            )
    if mode == STREAM:
        for name in ("endingOffsets", "endingTimestamp"):
            if given.text(name) is not None:
                raise ConfigError(
                    f"{name}={given.text(name)}: a stream has no end; read in batches, or use "
                    "trigger(availableNow=True) to stop at what is there now"
                )


def _holds(where: Where, mark: int) -> bool:
    return any(
        position == mark
        for brokers in (where.offsets or {}).values()
        for queues in brokers.values()
        for position in queues.values()
    )


def parse_write(values: Mapping[str, str], has_topic_column: bool) -> WriteOptions:
    """Read the options of the sink.

    Args:
        values: as given; names in any case.
        has_topic_column: whether the rows name their topic, so that the option is not needed.

    Raises:
        ConfigError: an option is missing, unknown or malformed.
    """
    given = _Given(values, WRITE_KNOWN)
    given.need("namesrvAddr")
    if not has_topic_column:
        given.need("topic")
    tls, tls_file = _tls(given)
    return WriteOptions(
        namesrv_addr=given.read("namesrvAddr", "", _addresses),
        tls=tls,
        tls_config_file=tls_file,
        topic=given.read("topic", None, _name),
        producer_group=given.read("producerGroup", "tianzhou-spark", _name),
        send_timeout_ms=given.read("sendTimeoutMs", 10_000, _number(1)),
    )
