"""Lines of sends: sends of one queue or of one sharding key wait for each other, so that none overtakes another.

A failed send goes to the outbox. Without this order, a later send to the same queue might reach its broker before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable

from tianzhou.client.producer.publish_plan import PublishPlan
from tianzhou.client.producer.selector import choose_queue
from tianzhou.client.producer.send_request import BATCH, SendRequest
from tianzhou.model import MessageQueue


class Turn:
    """The place of a send in its lines.

    Args:
        lines: lines of waiting sends; each has the future that completes with its last send.
        names: names of the send's lines.
    """

    __slots__ = ("_before", "_end", "_lines", "_names")

    def __init__(self, lines: dict[Hashable, asyncio.Future[None]], names: Collection[Hashable]) -> None:
        self._lines = lines
        self._names = names
        self._before = {lines[name] for name in names if name in lines}
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for name in names:
            lines[name] = self._end

    async def come(self) -> bool:
        """Wait for all sends that entered one of the lines before. Return whether there were any."""
        if not self._before:
            return False
        await asyncio.wait(self._before)
        return True

    def leave(self) -> None:
        """End the send. Sends behind it that wait for no other continue.

        A send that is cancelled while it waits does not let later sends overtake earlier ones.
        """
        if self._end.done():
            return
        waiting = {before for before in self._before if not before.done()}
        if not waiting:
            self._finish()
            return

        def count_down(before: asyncio.Future[None]) -> None:
            waiting.discard(before)
            if not waiting:
                self._finish()

        for before in tuple(waiting):
            before.add_done_callback(count_down)

    def _finish(self) -> None:
        if self._end.done():
            return
        self._end.set_result(None)
        for name in self._names:
            if self._lines.get(name) is self._end:
                del self._lines[name]


class OrderedSends:
    """The lines of a producer's sends: one for each queue and each sharding key that has sends in flight."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, names: Collection[Hashable]) -> Turn:
        """Add a send to the end of lines, in the order of the calls."""
        return Turn(self._lines, names)


def is_ordered(request: SendRequest) -> bool:
    """Whether a send has an order with others: it goes to one queue, or one of its messages has a sharding key."""
    return (
        request.queue is not None
        or request.selector is not None
        or any(message.sharding_key is not None for message in request.prepared.messages)
    )


def wanted_queue(request: SendRequest, plan: PublishPlan | None) -> MessageQueue | None:
    """Return the queue of a send by its queue, its selector or its sharding key; None for any.

    Args:
        request: the send.
        plan: the queues of its topic; None while they are unknown.

    Raises:
        ClientError: the selector failed.
    """
    messages = request.prepared.messages
    if request.queue is not None or plan is None or not messages:
        return request.queue
    if request.prepared.code == BATCH and request.selector is None:
        return None  # a batch goes to the next queue, whatever its sharding keys
    return choose_queue(plan.queues, messages[0], request.selector, request.selector_arg)


def line_names(request: SendRequest, queue: MessageQueue | None) -> set[Hashable]:
    """Return the names of a send's lines.

    Args:
        request: the send.
        queue: its queue; None for any.
    """
    topic = request.prepared.topic
    names: set[Hashable] = {
        (topic, message.sharding_key) for message in request.prepared.messages if message.sharding_key is not None
    }
    if queue is not None:
        names.add(queue)
    return names
