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
"""The first offset to read in each queue, and the offset after the last one."""


async def letter_spans(admin: Admin, group: str, begin_ms: int = 0) -> Spans:
    """Return the present offsets of a group's dead letters in each queue; empty if the group has none.

    Args:
        admin: the client.
        group: the consumer group.
        begin_ms: store time of the first letter, milliseconds since the epoch. A queue may begin with one earlier
            letter.
    """
    topic = dead_letter_topic(group)
    if not await admin.topics.exists(topic):
        return {}
    spans = {}
    for queue, bounds in (await admin.topics.stats(topic)).offset_table.items():
        start = bounds.min_offset
        if begin_ms:
            # Brokers of RocketMQ 4 may return the offset of the message before or after.
            start = max(start, await admin.messages.offset_at(queue, begin_ms) - 1)
        spans[queue] = start, bounds.max_offset
    return spans


async def letter_pages(
    admin: Admin, spans: Spans, advance: Advance, begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> AsyncIterator[list[MessageExt]]:
    """Read dead letters. Each page contains those of one pull.

    Args:
        admin: the client.
        spans: result of `letter_spans`.
        advance: called with the number of offsets read so far.
        begin_ms: earliest store time, milliseconds since the epoch.
        end_ms: latest store time.
    """
    done = 0
    for queue, (start, end) in spans.items():
        offset = start
        while offset < end:
            found = await admin.messages.read(queue, offset)
            letters = [one for one in found.messages if one.queue_offset < end]
            yield [one for one in letters if begin_ms <= one.store_timestamp <= end_ms]
            # Skip letters that have expired meanwhile. A broker that does not advance has no more letters.
            if found.next_offset <= offset:
                break
            offset = found.next_offset
            advance(done + min(offset, end) - start)
        done += end - start


def count_of(spans: Spans) -> int:
    """Return the number of offsets in all spans."""
    return sum(end - start for start, end in spans.values())
