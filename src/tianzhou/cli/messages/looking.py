"""Reading of a topic outside of consumer groups: choice of queues, start and end."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tianzhou.cli.messages.moments import span_ms
from tianzhou.cli.topics import with_nearest
from tianzhou.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from tianzhou.client import PullConsumer
    from tianzhou.model import MessageExt, MessageQueue

LOOKING_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has for tools, so that reading leaves no group behind."""

Batches = Callable[[float], Awaitable["Sequence[MessageExt] | None"]]
"""Takes a limit in seconds. Returns the next messages; empty if none arrive in time, None if all are read."""

_QUEUE = re.compile(r"(?:(.+):)?([0-9]{1,9})", re.ASCII)


@dataclass(slots=True, frozen=True)
class TopicSpan:
    """The part of a topic to read.

    Attributes:
        queues: queue ids, or `BROKER:ID`; empty for all.
        begin_ms: store time of the first message, milliseconds since the epoch.
        end_ms: store time of the last message. A past time is not waited for.
        offset: first offset in the queues; a negative one counts from their ends.
        from_beginning: whether to begin at the first message. Without any of these, the read begins at the end.
    """

    queues: Collection[str] = ()
    begin_ms: int | None = None
    end_ms: int | None = None
    offset: int | None = None
    from_beginning: bool = False


def span_of(
    queues: Collection[str],
    since: str | None,
    until: str | None,
    offset: int | None,
    from_beginning: bool,
    now_ms: int,
) -> TopicSpan:
    """Return the options of `consume` as a span.

    Raises:
        ConfigError: the options contradict each other, or a time is malformed.
    """
    if sum((since is not None, offset is not None, from_beginning)) > 1:
        raise ConfigError("--since, --offset and --from-beginning each say where to begin; give one")
    for text in queues:
        if _QUEUE.fullmatch(text) is None:
            raise ConfigError(f"--queue {text}: expected a queue's number, as 0, or one broker's, as broker-a:0")
    if offset is not None and offset >= 0 and not queues:
        raise ConfigError(f"--offset {offset} is a place in one queue; say which with --queue, or -10 for the last ten")
    begin_ms, end_ms = span_ms(since, until, now_ms)
    return TopicSpan(tuple(queues), begin_ms, end_ms, offset, from_beginning or (until is not None and offset is None))


def chosen(queues: Sequence[MessageQueue], wanted: Collection[str]) -> list[MessageQueue]:
    """Return the queues that `--queue` selects; all without the option.

    Raises:
        ClientError: the topic does not have one of the queues.
    """
    found: list[MessageQueue] = []
    for text in wanted:
        match = _QUEUE.fullmatch(text)
        broker, number = (match[1], int(match[2])) if match else (None, -1)
        named = [one for one in queues if one.queue_id == number and broker in (None, one.broker_name)]
        if not named:
            have = ", ".join(f"{one.broker_name}:{one.queue_id}" for one in queues)
            raise ClientError(f"--queue {text}: topic {queues[0].topic} has no such queue; it has {have}")
        found += named
    return sorted(set(found)) if wanted else list(queues)


async def look(
    topic: str,
    tags: str,
    sql: str | None,
    span: TopicSpan,
    servers: dict[str, Any],
    show: Callable[[Batches], Awaitable[None]],
) -> None:
    """Read part of a topic without committing offsets.

    Args:
        topic: the topic.
        tags: tag expression.
        sql: SQL92 expression, used instead of the tags.
        span: the part.
        servers: arguments of a consumer for its servers and credentials.
        show: receives the batches.
    """
    from tianzhou.client import PullConsumer

    async with PullConsumer(LOOKING_GROUP, **servers, auto_commit=False) as consumer:
        try:
            every = await consumer.queues(topic)
        except ClientError as error:
            from tianzhou.admin import Admin

            async with Admin(instance=consumer.instance) as admin:
                raise await with_nearest(error, topic, admin) from None
        queues = chosen(every, span.queues)
        consumer.assign(queues, tags=tags, sql=sql)
        for queue in queues:
            await _begin(consumer, queue, span)
        left: dict[MessageQueue, int] | None = None

        async def batches(wait_s: float) -> Sequence[MessageExt] | None:
            nonlocal left
            if span.end_ms is not None and left is None and span.end_ms < time.time() * 1000:
                left = {queue: await _end(consumer, queue, span.end_ms) for queue in queues}
            if left is not None:
                for queue in [queue for queue, end in left.items() if await consumer.position(queue) >= end]:
                    del left[queue]
                    consumer.pause([queue])
                if not left:
                    return None
            found = await consumer.poll(wait_s * 1000)
            return [one for one in found if _within(one.store_timestamp, span)]

        await show(batches)


def _within(store_ms: int, span: TopicSpan) -> bool:
    return (span.begin_ms is None or store_ms >= span.begin_ms) and (span.end_ms is None or store_ms <= span.end_ms)


async def _begin(consumer: PullConsumer, queue: MessageQueue, span: TopicSpan) -> None:
    if span.begin_ms is not None:
        first, found = await consumer.min_offset(queue), await consumer.offset_by_time(queue, span.begin_ms)
        # Brokers of RocketMQ 4 may return the offset of the message before or after.
        await consumer.seek(queue, max(first, found - 1))
    elif span.offset is not None and span.offset < 0:
        first, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        await consumer.seek(queue, max(first, end + span.offset))
    elif span.offset is not None:
        await consumer.seek(queue, span.offset)
    else:
        await (consumer.seek_to_begin(queue) if span.from_beginning else consumer.seek_to_end(queue))


async def _end(consumer: PullConsumer, queue: MessageQueue, end_ms: int) -> int:
    found, end = await consumer.offset_by_time(queue, end_ms + 1), await consumer.max_offset(queue)
    return min(found + 1, end)
