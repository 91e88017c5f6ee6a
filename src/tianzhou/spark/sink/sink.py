"""Rows to messages: the sink of `format("tianzhou")`.

With at-least-once delivery a task sends its rows as they arrive and ends when all are acknowledged. A repeated task
sends its rows again. For exactly-once delivery see `exactly_once`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tianzhou.client.namespaces.namespaces import wrap
from tianzhou.client.producer.producer import Producer
from tianzhou.client.staging import Origin, queue_by_id
from tianzhou.errors import ClientError, ConfigError, TianzhouError, TopicUnavailable
from tianzhou.model import MessageQueue
from tianzhou.spark import connections
from tianzhou.spark.option_values import nearest
from tianzhou.spark.pickling import Pickled
from tianzhou.spark.rows.schema import COLUMNS as SOURCE_COLUMNS
from tianzhou.spark.rows.schema import KAFKA_COLUMNS
from tianzhou.spark.sink.exactly_once import BATCH_PREFIX, BatchName, Staged, abort, commit, stage
from tianzhou.spark.sink.key_queues import AGAIN_S, KeyQueues, queues_of_keys
from tianzhou.spark.sink.options import WriteOptions, parse_write
from tianzhou.spark.sink.outgoing import OutgoingMessage, message_of, not_sent
from tianzhou.spark.sink.send_rate import SinkSendRate

_TEXT: Final = ("string",)
_INTEGER: Final = ("tinyint", "smallint", "int", "bigint")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "keys": ("string", "array<string>"),
    "tags": _TEXT,
    "properties": ("map<string,string>",),
    "delayLevel": _INTEGER,
    "queueId": _INTEGER,
    "shardingKey": _TEXT,
    "key": ("binary", "string"),
    "partition": _INTEGER,
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Columns of the sink and their types. Kafka's names come last."""
KAFKA: Final[Mapping[str, str]] = {"value": "body", "partition": "queueId", "headers": "properties"}
"""RocketMQ's name of each column that Kafka names differently."""
BROKER: Final = "brokerName"
OFFSETS: Final = ("queueOffset", "offset")
AS_READ: Final = frozenset({"queueOffset", "bornTimestamp", "storeTimestamp"})
"""Rows with all of these columns are unchanged rows of the source, because no message is made of two messages."""
LEFT_BEHIND: Final = tuple(name for name in (*SOURCE_COLUMNS, *KAFKA_COLUMNS) if name not in COLUMNS)
"""Columns of the source that describe the earlier message. The sink ignores them."""

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties from which a task reads its query and micro-batch."""
SENDS_IN_FLIGHT: Final = 512
"""Maximum sends in flight. Sends that start in one turn of the loop share a write. More sends only use more memory."""


@dataclass
class SentRows(WriterCommitMessage):
    """A task's message to the driver: the number of rows that it has sent."""

    rows: int


def check_columns(schema: StructType) -> dict[str, str]:
    """Return the sink's column behind each column of the rows.

    Raises:
        ConfigError: a column is unknown or has a wrong type, there is not exactly one of `body` and `value`, or the
            rows are unchanged rows of the source without the column `properties`, so that copies would lose properties.
    """
    by_lower = {name.lower(): name for name in (*LEFT_BEHIND, *COLUMNS)}
    result: dict[str, str] = {}
    for field in schema.fields:
        name = by_lower.get(field.name.lower())
        if name is None:
            hint = nearest(field.name, COLUMNS, 0.7)
            raise ConfigError(
                f"the sink has no column {field.name}{hint}; select some of {', '.join(COLUMNS)}, "
                "and put anything else into body or properties"
            )
        kind = field.dataType.simpleString()
        if name not in COLUMNS:
            result[field.name] = name
            continue
        if kind not in COLUMNS[name] and kind != "void":
            expected = " or ".join(allowed.upper() for allowed in COLUMNS[name])
            raise ConfigError(f"the sink's column {field.name} is {kind.upper()}; expected {expected}")
        result[field.name] = name
    bodies = [column for column, name in result.items() if name in ("body", "value")]
    if len(bodies) != 1:
        raise ConfigError(
            f"the rows have {' and '.join(bodies) if bodies else 'neither body nor value'}; "
            "the sink needs exactly one of them"
        )
    for kafka, ours in KAFKA.items():
        if {kafka, ours} <= set(result.values()):
            raise ConfigError(f"the rows have {ours} and {kafka}, which is Kafka's name for it; leave out one of them")
    if set(result.values()) >= AS_READ and not {"properties", "headers"} & set(result.values()):
        raise ConfigError(
            "the rows are messages as they were read, but without their properties: a copy would lose what users have "
            "set and the sharding keys. Read them with includeProperties=true; or, where properties are to stay "
            "behind, leave out bornTimestamp and storeTimestamp, of which no message is made"
        )
    return result


def were_read(columns: Mapping[str, str]) -> bool:
    """Whether rows are messages that were read: they have a column of queue offsets.

    Args:
        columns: see `check_columns`.
    """
    return not set(OFFSETS).isdisjoint(columns.values())


def to_messages(batch: pa.RecordBatch, columns: Mapping[str, str], topic: str | None) -> Iterator[OutgoingMessage]:
    """Return the messages of a batch, in row order.

    Args:
        batch: the rows.
        columns: see `check_columns`.
        topic: topic of rows without a topic.

    Raises:
        ClientError: a row cannot be made a message.
    """
    read = were_read(columns)
    wanted = [*(name for name in COLUMNS if name not in KAFKA), BROKER]
    values: dict[str, Sequence[Any]] = {name: [None] * batch.num_rows for name in wanted}
    for index, name in enumerate(columns.values()):
        if (own := KAFKA.get(name, name)) in values:
            values[own] = batch.column(index).to_pylist()
    for row in zip(*values.values(), strict=True):
        yield _to_message(topic, read, **dict(zip(values, row, strict=True)))


Pairs = list[tuple[str, str | None]] | list[dict[str, Any]]


def _to_message(
    option_topic: str | None,
    read: bool,
    *,
    topic: str | None,
    body: bytes | str | None,
    keys: str | list[str | None] | None,
    tags: str | None,
    properties: Pairs | None,
    delayLevel: int | None,  # noqa: N803 - the column's name
    queueId: int | None,  # noqa: N803
    shardingKey: str | None,  # noqa: N803
    key: bytes | str | None,
    brokerName: str | None,  # noqa: N803
) -> OutgoingMessage:
    # In a row that was read, the column has the source's topic, so the option takes precedence.
    target = (option_topic or topic) if read else (topic or option_topic)
    if target is None:
        raise ClientError("topic is null, and there is no option topic to fall back to")
    if not body:
        raise ClientError(f"body is {'null' if body is None else 'empty'}; a message needs at least one byte")
    message = message_of(
        target,
        body.encode() if isinstance(body, str) else body,
        tags=tags or None,
        keys=[key for key in keys if key] if isinstance(keys, list) else keys or "",
        properties=dict(_pairs(properties or ())),
        delay_level=delayLevel or 0,
        sharding_key=shardingKey or None,
        key=_text("key", key) if key else None,
    )
    return OutgoingMessage(message, Origin(brokerName, queueId) if read and queueId is not None else queueId)


def _pairs(properties: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Return names and values of the column `properties` or of Kafka's `headers`."""
    for pair in properties:
        name, value = (pair["key"], pair["value"]) if isinstance(pair, dict) else pair
        if name is not None and value is not None:
            yield name, _text(f"header {name}", value)


def _text(what: str, value: bytes | str) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise ClientError(
            f"{what} is no UTF-8 text, and RocketMQ has text there; encode it, as by base64({what.split()[0]})"
        ) from None


async def _send(producer: Producer, outgoing: OutgoingMessage, keys: KeyQueues) -> None:
    queue, message = None, outgoing.message
    if outgoing.queue_id is not None:
        queue = queue_by_id(await producer.queues(message.topic), message.topic, outgoing.queue_id)
    elif message.sharding_key is not None:
        queue = keys.choose(message, await _queues(producer, message.topic, keys))
    await producer.send(message, queue)


async def _queues(producer: Producer, topic: str, keys: KeyQueues) -> list[MessageQueue]:
    try:
        return await producer.queues(topic)
    except TopicUnavailable:
        if keys.knows(topic):
            return []
        raise


async def _send_all(
    producer: Producer, rows: Sequence[OutgoingMessage], keys: KeyQueues, wait_ms: int
) -> list[BaseException | None]:
    """Send rows. Rows with a sharding key whose broker is away are sent again until it is back.

    Args:
        producer: the producer.
        rows: the rows, in order.
        keys: the queues of sharding keys.
        wait_ms: maximum time to wait, in ms.

    Returns:
        The error of each row that was not sent, None for each row that was.
    """
    results: list[Any] = await asyncio.gather(*(_send(producer, row, keys) for row in rows), return_exceptions=True)
    until_s = time.monotonic() + wait_ms / 1000
    while (held := held_back(rows, results)) and time.monotonic() < until_s:
        await asyncio.sleep(AGAIN_S)
        for topic in sorted({rows[index].message.topic for index in held}):
            with contextlib.suppress(TianzhouError):  # The next send reports the error.
                await producer.instance.refresh_route(wrap(producer.instance.namespace, topic))
        again = await asyncio.gather(*(_send(producer, rows[index], keys) for index in held), return_exceptions=True)
        for index, result in zip(held, again, strict=True):
            results[index] = result
    return [result if isinstance(result, BaseException) else None for result in results]


def held_back(rows: Sequence[OutgoingMessage], results: Sequence[Any]) -> list[int]:
    """Return the rows to send again: of each sharding key, all rows from the first that failed, in order.

    A row that was acknowledged after one that failed is sent again too, so that the last copies are in order.

    Args:
        rows: rows that were sent together.
        results: for each row the error of its send, or any other value.

    Returns:
        Indexes of the rows; none if a row has an error that no retry can fix.
    """
    held: list[int] = []
    broken: set[tuple[str, str]] = set()
    for index, (row, result) in enumerate(zip(rows, results, strict=True)):
        key = row.message.sharding_key if row.queue_id is None else None
        if isinstance(result, BaseException):
            if key is None or not isinstance(result, TianzhouError) or not result.retriable:
                return []
            broken.add((row.message.topic, key))
        if key is not None and (row.message.topic, key) in broken:
            held.append(index)
    return held


def _wait(process: connections.SparkProcess, left_s: Callable[[float], float]) -> None:
    """Wait until `left_s` returns 0. The loop runs meanwhile. A sleep may end slightly early, so check again."""
    while (seconds := left_s(time.monotonic())) > 0:
        process.run(asyncio.sleep(seconds))


Connect = Callable[[WriteOptions], tuple[connections.SparkProcess, Producer]]


class Sender:
    """A sender of the rows of a task. It is pickled into the task, so it contains no connection.

    Args:
        options: the sink's options as written.
        schema: schema of the rows.
        overwrite: whether the mode is to replace existing data, which a topic cannot do.
        connect: returns the process's producer.
        stream: whether the query is a stream.

    Attributes:
        options: the options.

    Raises:
        ConfigError: options, columns or mode are wrong.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        overwrite: bool,
        connect: Connect = connections.producer,
        *,
        stream: bool = False,
    ) -> None:
        if overwrite:
            raise ConfigError("a topic only grows: mode overwrite and output mode complete cannot be; use mode append")
        self._columns = check_columns(schema)
        self.options = parse_write(options, has_topic_column="topic" in self._columns.values(), stream=stream)
        self._connect = connect

    def send(self, batches: Iterable[pa.RecordBatch], partition: int) -> SentRows:
        """Send all rows and wait until they are acknowledged.

        Args:
            batches: the rows.
            partition: number of the task's partition, for messages.

        Raises:
            RowNotSent: a row cannot be sent. The error contains its number.
        """
        process, producer = self._connect(self.options)
        keys = queues_of_keys(self.options)
        per_second = self.options.max_messages_per_second
        rate = None if per_second is None else SinkSendRate(per_second, SENDS_IN_FLIGHT)
        size = SENDS_IN_FLIGHT if rate is None else rate.slice
        rows, sent = self.rows(batches, partition), 0
        try:
            while some := list(itertools.islice(rows, size)):
                if rate is not None:
                    _wait(process, rate.wait_s)
                began_s = time.monotonic()
                results = process.run(_send_all(producer, some, keys, self.options.sharding_wait_ms))
                if rate is not None:
                    rate.sent(len(some), began_s, time.monotonic())
                for index, error in enumerate(results, sent):
                    if error is not None:
                        raise not_sent(index, partition, error)
                sent += len(some)
        finally:
            # Wait after an error too, because the next task, such as a retry of this one, does not know what this task
            # sent.
            if rate is not None:
                _wait(process, rate.rest_s)
        return SentRows(sent)

    def rows(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[OutgoingMessage]:
        """Return the messages of all rows, in order.

        Raises:
            RowNotSent: a row cannot be made a message.
        """
        index = 0
        for batch in batches:
            try:
                for row in to_messages(batch, self._columns, self.options.topic):
                    yield row
                    index += 1
            except ClientError as error:
                raise not_sent(index, partition, error) from error


class SinkWriter(Pickled, DataSourceArrowWriter):
    """A writer for `df.write.format("tianzhou")`.

    Args:
        options: the sink's options as written.
        schema: schema of the rows.
        overwrite: whether the mode is overwrite, which is rejected.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._sender = Sender(options, schema, overwrite)

    def write(self, iterator: Iterator[Any]) -> SentRows | Staged:
        """Write a task's rows, which come as Arrow batches."""
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        options = self._sender.options
        if not options.exactly_once:
            return self._sender.send(iterator, partition)
        name = BatchName(f"{BATCH_PREFIX}{options.batch_key}", options.batch_number)
        return stage(options, self._sender.rows(iterator, partition), name, partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the staged rows of all tasks."""
        commit(self._sender.options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the staged rows of a failed write."""
        abort(self._sender.options, messages)


class StreamWriter(Pickled, DataSourceStreamArrowWriter):
    """A writer for `df.writeStream.format("tianzhou")`.

    Args:
        options: the sink's options as written.
        schema: schema of the rows.
        overwrite: whether the output mode is complete, which is rejected.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._sender = Sender(options, schema, overwrite, stream=True)

    def write(self, iterator: Iterator[Any]) -> SentRows | Staged:
        """Write a task's rows of one micro-batch, which come as Arrow batches."""
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        if not self._sender.options.exactly_once:
            return self._sender.send(iterator, partition)
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(BATCH_ID) if context is not None else None
        if not query or not batch:
            raise TianzhouError(
                f"Spark does not tell the task its query and batch ({QUERY_ID}={query}, {BATCH_ID}={batch}), by which "
                "a repetition is known; use delivery=at-least-once with this version of Spark"
            )
        return stage(
            self._sender.options, self._sender.rows(iterator, partition), BatchName(query, int(batch)), partition
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the staged rows of all tasks of a micro-batch."""
        commit(self._sender.options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Discard the staged rows of a failed micro-batch."""
        abort(self._sender.options, messages)
