"""Bounded reads of queues by position: a range of offsets, and a queue from its end backwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tianzhou.admin.reach import Reach
from tianzhou.errors import ClientError
from tianzhou.model import MessageExt, MessageQueue, PullStatus
from tianzhou.wire.delivered import body_sizes

TOOLS_GROUP = "TOOLS_CONSUMER"
CHUNK = 32
"""Number of messages per step of a backward read."""
MOST_AT_ONCE = 1_024
"""Maximum number of messages to request at once; a broker may return fewer."""
CHUNK_BYTES = 1 << 20
MOST_BYTES = 64 << 20
"""Maximum bytes of records and their bodies that one query reads. The query returns the messages up to this size. A
compressed body counts with its stored size, because the message unpacks it only at an access."""
AT_ONCE = 16
"""Maximum number of queues that are read at the same time."""
_GOES_ON = frozenset({PullStatus.FOUND, PullStatus.NO_MATCHED_MSG, PullStatus.OFFSET_ILLEGAL})


class ReadAllowance:
    """A budget of record bytes that a query may read.

    Args:
        left: remaining bytes.
    """

    def __init__(self, left: int = MOST_BYTES) -> None:
        self.left = left

    def is_spent(self) -> bool:
        """Whether the budget is used up."""
        return self.left <= 0


async def pull_records(
    reach: Reach, address: str, queue: MessageQueue, begin: int, end: int, allowance: ReadAllowance
) -> list[bytes]:
    """Return the records of offsets from `begin` to before `end`, one piece per pull (wire.md §5).

    The last piece may contain records behind the range. The pieces end early when the allowance is spent.

    Args:
        reach: sends the requests.
        address: address of the broker.
        queue: the queue.
        begin: first offset.
        end: offset after the last one.
        allowance: budget of bytes to read.
    """
    # Imported here because parsing expressions is slow to load. Commands that read no queue start faster.
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
    """Return the messages of offsets from `begin` to before `end`, in order.

    The arguments are those of `pull_records`.
    """
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
        reach: sends the requests.
        address: address of the broker.
        queue: the queue.
        begin: first offset of the part.
        end: offset after the last one of the part.
        begin_ms: earliest store time in ms; earlier messages are skipped.
        end_ms: latest store time in ms; later messages are skipped.

    Attributes:
        messages: the messages that are read and not yet taken, the newest last.
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
        """Whether the whole part is read."""
        return self._begin >= self._end

    async def fill(self, chunk: int, allowance: ReadAllowance) -> None:
        """Read messages into `messages` if it is empty. Leave it empty when the allowance is too small for a chunk."""
        while not self.messages and not self.is_read and not allowance.is_spent():
            start = max(self._begin, self._end - chunk)
            found = await read_range(self._reach, self._address, self._queue, start, self._end, allowance)
            if allowance.is_spent():
                return  # the newest messages of the chunk may be missing
            self.messages = [one for one in found if self._begin_ms <= one.store_timestamp <= self._end_ms]
            self._end = start


async def newest_first(tails: Sequence[Tail], limit: int, allowance: ReadAllowance) -> list[MessageExt]:
    """Return the newest messages of several queues by store time, the newest first.

    Args:
        tails: the queues.
        limit: maximum number of messages; fewer are returned when the allowance is spent.
        allowance: budget of bytes to read.

    Raises:
        ClientError: the allowance is spent before the newest message is known.
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
