"""Reading the dead letters of a group page by page, from the oldest to the newest of each queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from tianzhou.cli.progress import Advance
from tianzhou.model.names import dead_letter_topic

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.model import MessageExt, MessageQueue

FOREVER_MS = 1 << 62
Spans = Mapping["MessageQueue", tuple[int, int]]
"""The first offset of each queue to read, and the offset behind the last one."""


async def letter_spans(admin: Admin, group: str, begin_ms: int = 0) -> Spans:
    """Return the offsets of a group's dead letters by queue; empty when the group has no dead letters.

    Args:
        admin: reads the queues.
        group: the consumer group.
        begin_ms: store time of the first letter, milliseconds since the epoch; an earlier letter may come before it.
    """
    topic = dead_letter_topic(group)
    if not await admin.topics.exists(topic):
        return {}
    spans = {}
    for queue, bounds in (await admin.topics.stats(topic)).offset_table.items():
        start = bounds.min_offset
        if begin_ms:
            # Brokers of RocketMQ 4 answer with a neighbour of the message that is meant.
            start = max(start, await admin.messages.offset_at(queue, begin_ms) - 1)
        spans[queue] = start, bounds.max_offset
    return spans


async def letter_pages(
    admin: Admin, spans: Spans, advance: Advance, begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> AsyncIterator[list[MessageExt]]:
    """Read dead letters; each page has those of one pull.

    Args:
        admin: reads the queues.
        spans: result of `letter_spans`.
        advance: called with the number of offsets that are read.
        begin_ms: stored at or after this time, milliseconds since the epoch.
        end_ms: stored at or before this time.
    """
    done = 0
    for queue, (start, end) in spans.items():
        offset = start
        while offset < end:
            found = await admin.messages.read(queue, offset)
            letters = [one for one in found.messages if one.queue_offset < end]
            yield [one for one in letters if begin_ms <= one.store_timestamp <= end_ms]
            # The broker passes over expired letters. When the offset does not change, the queue has no more letters.
            if found.next_offset <= offset:
                break
            offset = found.next_offset
            advance(done + min(offset, end) - start)
        done += end - start


def count_of(spans: Spans) -> int:
    """Return the number of offsets in all spans."""
    return sum(end - start for start, end in spans.values())
