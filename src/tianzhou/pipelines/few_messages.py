"""Topics of few messages, read and sent again by the client: it is done before Spark has begun.

`few_archived`, `few_dead_letters`, `few_replayed` and `few_traced` are the pipelines that can do without Spark; what
they do is what `archive`, `dead_letters`, `replay` and `trace_figures` do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tianzhou.errors import OffsetOutOfRange
from tianzhou.model import Message, MessageExt, MessageQueue, PullStatus
from tianzhou.model.names import KEYS, TAGS
from tianzhou.spark.rows.rules import FAIL, SKIP
from tianzhou.wire.delivered import unreadable

if TYPE_CHECKING:
    from tianzhou.client import Producer
    from tianzhou.client.consumer.pull.pull_consumer import PullConsumer

logger = logging.getLogger(__name__)

FEW: Final = 200_000
"""Messages up to which the client is done before Spark has begun."""
GROUP: Final = "tianzhou-cli"
PAGE: Final = 256
"""Messages of a pull."""
COLUMNS: Final[Mapping[str, type]] = {
    "topic": str,
    "brokerName": str,
    "queueId": int,
    "queueOffset": int,
    "msgId": str,
    "tags": str,
    "keys": str,
    "reconsumeTimes": int,
}
"""The columns of `format("tianzhou")` that conditions may name here."""


@dataclass(frozen=True, slots=True)
class Span:
    """Messages of a queue.

    Attributes:
        queue: the queue.
        begin: the offset of the first.
        end: the offset behind the last.
    """

    queue: MessageQueue
    begin: int
    end: int

    @property
    def count(self) -> int:
        """How many offsets there are in it."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Page:
    """What one pull brought.

    Attributes:
        queue: the queue.
        passed: offsets that are done with it.
        next_offset: where the queue goes on.
        messages: what is there of them.
    """

    queue: MessageQueue
    passed: int
    next_offset: int
    messages: list[MessageExt]


async def spans_of(consumer: PullConsumer, topic: str, since_ms: int | None = None) -> list[Span]:
    """What a topic holds now, queue by queue.

    Args:
        consumer: reads it.
        topic: the topic.
        since_ms: stored at or after this time, milliseconds since the epoch; None for all.

    Raises:
        ClientError: the topic does not exist.
    """

    async def one(queue: MessageQueue) -> Span:
        end = await consumer.max_offset(queue)
        begin = await consumer.min_offset(queue)
        if since_ms is not None:
            begin = max(begin, await consumer.offset_by_time(queue, since_ms))
        return Span(queue, min(begin, end), end)

    return list(await asyncio.gather(*(one(queue) for queue in await consumer.queues(topic))))


async def pages(consumer: PullConsumer, spans: Sequence[Span], tags: str | None = None) -> AsyncIterator[Page]:
    """The messages of some spans, a page of each queue in turn.

    Args:
        consumer: reads them.
        spans: which.
        tags: a tag expression; None for all.

    Raises:
        OffsetOutOfRange: messages were deleted before they were read.
    """
    at = {span.queue: span.begin for span in spans}
    left = [span for span in spans if span.count]
    while left:
        for span in left:
            begin = at[span.queue]
            found = await consumer.pull(span.queue, begin, min(PAGE, span.end - begin), tags=tags or "*")
            if found.status is PullStatus.OFFSET_ILLEGAL or begin < found.min_offset:
                raise OffsetOutOfRange(
                    f"queue {span.queue.queue_id} of {span.queue.topic} at {span.queue.broker_name}: the messages from "
                    f"{begin} to {found.min_offset} were deleted before they were read"
                )
            # A queue with nothing at its place any more is done with.
            at[span.queue] = min(found.next_offset, span.end) if found.next_offset > begin else span.end
            messages = [message for message in found.messages if message.queue_offset < span.end]
            yield Page(span.queue, at[span.queue] - begin, at[span.queue], messages)
        left = [span for span in left if at[span.queue] < span.end]


def with_bodies(messages: Sequence[MessageExt], corrupt_bodies: str) -> Sequence[MessageExt]:
    """Return messages whose bodies can be looked at, and log a warning about the others.

    Args:
        messages: a page of them.
        corrupt_bodies: FAIL leaves them as they are, NULL gives those that cannot be unpacked an empty body, SKIP
            leaves them out.
    """
    if corrupt_bodies == FAIL:
        return messages
    found, failures = [], []
    for message in messages:
        failure = unreadable(message)
        if failure is not None:
            failures.append(failure)
            if corrupt_bodies == SKIP:
                continue
            message.body = b""
        found.append(message)
    if failures:
        logger.warning(
            "%s. corruptBodies=%s: %d of %d bodies of this page cannot be unpacked",
            failures[0], corrupt_bodies, len(failures), len(messages),
        )  # fmt: skip
    return found


def row_of(message: MessageExt) -> dict[str, Any]:
    """A message's columns that conditions may name."""
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "tags": message.properties.get(TAGS),
        "keys": message.properties.get(KEYS),
        "reconsumeTimes": message.reconsume_times,
    }


async def send_in_order(producer: Producer, messages: Iterable[Message]) -> None:
    """Send messages side by side, those of one sharding key one behind the other; all are acknowledged then.

    Args:
        producer: sends them.
        messages: as many as may be under way together.

    Raises:
        TianzhouError: one was not sent; those beside it may have been.
    """
    lines: dict[Any, list[Message]] = {}
    for number, message in enumerate(messages):
        key = number if message.sharding_key is None else (message.topic, message.sharding_key)
        lines.setdefault(key, []).append(message)

    async def one(line: list[Message]) -> None:
        for message in line:
            await producer.send(message)

    for result in await asyncio.gather(*map(one, lines.values()), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
