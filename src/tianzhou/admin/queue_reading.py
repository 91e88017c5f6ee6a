"""Read messages of queues by position, bounded in number and bytes: a range, and a queue from its end backwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tianzhou.admin.reach import Reach
from tianzhou.errors import ClientError
from tianzhou.model import MessageExt, MessageQueue, PullStatus
from tianzhou.wire.delivered import body_sizes

TOOLS_GROUP = "TOOLS_CONSUMER"
CHUNK = 32
"""Messages by which a queue is read backwards."""
MOST_AT_ONCE = 1_024
"""Messages asked for at once; brokers give as many as they are set to."""
CHUNK_BYTES = 1 << 20
MOST_BYTES = 64 << 20
"""Maximum bytes of records and their bodies that one query reads; the query returns the messages up to this size. A
compressed body counts with its stored size, because the message unpacks it only at an access."""
AT_ONCE = 16
"""Queues read at the same time."""
_GOES_ON = frozenset({PullStatus.FOUND, PullStatus.NO_MATCHED_MSG, PullStatus.OFFSET_ILLEGAL})


class ReadAllowance:
    """Bytes of records that may still be read.

    Args:
        left: how many.
    """

    def __init__(self, left: int = MOST_BYTES) -> None:
        self.left = left

    def is_spent(self) -> bool:
        """Whether nothing more may be read."""
        return self.left <= 0


async def pull_records(
    reach: Reach, address: str, queue: MessageQueue, begin: int, end: int, allowance: ReadAllowance
) -> list[bytes]:
    """The records of offsets from `begin` until before `end`, as pulls bring them (wire.md §5).

    The last piece may hold records behind the range; pieces end early when the allowance is spent.

    Args:
        reach: asks the broker.
        address: the broker.
        queue: the queue.
        begin: first offset.
        end: offset after the last one.
        allowance: bytes that may be read.
    """
    # What parses expressions is not for those who read no queue: commands start sooner without.
    from tianzhou.client.consumer import pulling
    from tianzhou.client.consumer.subscription import build_subscription

    subscription = build_subscription(queue.topic)
    pieces: list[bytes] = []
    while begin < end and not allowance.is_spent():
        raw = await pulling.pull(
            reach.remoting,
            address,
            TOOLS_GROUP,
            queue,
            begin,
            max_messages=min(end - begin, MOST_AT_ONCE),
            max_bytes=CHUNK_BYTES,
            subscription=subscription,
            timeout_ms=reach.timeout_ms,
        )
        if raw.status is PullStatus.FOUND:
            pieces.append(raw.body)
            allowance.left -= len(raw.body)
        if raw.status not in _GOES_ON or raw.next_offset <= begin:
            break
        begin = raw.next_offset
    return pieces


async def read_range(
    reach: Reach, address: str, queue: MessageQueue, begin: int, end: int, allowance: ReadAllowance
) -> list[MessageExt]:
    """The messages of offsets from `begin` until before `end`, in order; arguments as of `pull_records`."""
    from tianzhou.client.consumer import pulling

    instance = reach.instance
    pieces = await pull_records(reach, address, queue, begin, end, allowance)
    found = [
        message
        for piece in pieces
        for message in pulling.messages_of(
            piece,
            queue.broker_name,
            namespace=instance.namespace,
            limit_bytes=instance.max_unpacked_body_bytes,
            unpacked=instance.unpacked_bodies,
        )
    ]
    allowance.left -= sum(body_sizes(found))
    return [message for message in found if begin <= message.queue_offset < end]


class Tail:
    """A part of a queue, read backwards.

    Args:
        reach: asks the broker.
        address: the broker.
        queue: the queue.
        begin: first offset of the part.
        end: offset after its last one.
        begin_ms: messages stored before this time are left out.
        end_ms: those stored after this time as well.

    Attributes:
        messages: those at hand, the newest last.
    """

    def __init__(
        self, reach: Reach, address: str, queue: MessageQueue, begin: int, end: int, begin_ms: int, end_ms: int
    ) -> None:
        self._reach = reach
        self._address = address
        self._queue = queue
        self._begin = begin
        self._end = end
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self.messages: list[MessageExt] = []

    @property
    def is_read(self) -> bool:
        """Whether nothing is left to be read."""
        return self._begin >= self._end

    async def fill(self, chunk: int, allowance: ReadAllowance) -> None:
        """Have messages at hand, if there are any; nothing changes when the allowance does not do for a chunk."""
        while not self.messages and not self.is_read and not allowance.is_spent():
            start = max(self._begin, self._end - chunk)
            found = await read_range(self._reach, self._address, self._queue, start, self._end, allowance)
            if allowance.is_spent():
                return  # the newest of them may be missing
            self.messages = [one for one in found if self._begin_ms <= one.store_timestamp <= self._end_ms]
            self._end = start


async def newest_first(tails: Sequence[Tail], limit: int, allowance: ReadAllowance) -> list[MessageExt]:
    """The newest messages of several queues by store time, the newest first; fewer when the allowance is spent.

    Args:
        tails: the queues.
        limit: most messages.
        allowance: bytes that may be read.

    Raises:
        ClientError: it is spent before the first of them is certain.
    """
    turn, chunk = asyncio.Semaphore(AT_ONCE), min(CHUNK, -(-limit // max(len(tails), 1)))

    async def first(tail: Tail) -> None:
        async with turn:
            await tail.fill(chunk, allowance)

    await asyncio.gather(*map(first, tails))
    found: list[MessageExt] = []
    at_hand = list(tails)
    while len(found) < limit:
        if any(not tail.messages and not tail.is_read for tail in at_hand):
            break
        at_hand = [tail for tail in at_hand if tail.messages]
        if not at_hand:
            return found
        newest = max(at_hand, key=lambda tail: (tail.messages[-1].store_timestamp, tail.messages[-1].queue_offset))
        found.append(newest.messages.pop())
        if not newest.messages:
            await newest.fill(CHUNK, allowance)
    if not found and limit > 0:
        raise ClientError(
            f"the newest {limit} messages are too large to be put in order: that takes more than {MOST_BYTES} bytes;"
            " ask for fewer"
        )
    return found
