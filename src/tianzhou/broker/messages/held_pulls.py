"""Held pulls: long polls that wait for messages (broker.md §10).

`HeldPulls` owns the wait and its wake-up: the limits, the deadlines, the watermark of each queue, and the order in
which woken pulls read again. Each message ends the wait of a pull, so a pull waits without the cost of a task and a
future.

A woken pull reads again in the turn of the loop that wrote the queue's unit. Further turns for the read and the reply
would let reads of other connections delay the consumer. Only a few pulls read in each turn, so that the loop serves
other requests in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tianzhou.broker.messages.dictated_offsets import DictatedOffsets
from tianzhou.broker.messages.pull_answers import WORK_S, PullAnswers
from tianzhou.broker.messages.pull_codes import OUTSIDE
from tianzhou.broker.messages.pull_request import PullRequest
from tianzhou.broker.messages.pull_selections import PullSelections
from tianzhou.broker.messages.timer_heap import TimerHeap
from tianzhou.broker.services import Services
from tianzhou.limits import CONNECTION_POLLS, LONG_POLLS
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.remoting.turns import Place
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.watermark import WAKES_PER_TURN, Watermark


class HeldPull(DeferredReply):
    """A pull that found no messages and waits for its queue to grow.

    Args:
        held: owner of the pull.
        connection: connection of the consumer.
        request: the pull.
        found: result of the last read.

    Attributes:
        connection: connection of the consumer.
        request: the pull.
        found: result of the last read.
        key: group, topic and queue.
        place: its place in the queue for a fair turn; None when it is not queued.
    """

    __slots__ = (
        "_arrived", "_error", "_held", "_over", "_waits", "connection", "found", "key", "place", "request",
    )  # fmt: skip

    def __init__(self, held: HeldPulls, connection: Connection, request: PullRequest, found: GetResult) -> None:
        self._held = held
        self._over = self._waits = False
        self._error: BaseException | None = None
        self.connection = connection
        self.request = request
        self.found = found
        self.place: Place | None = None
        header = request.header
        self.key = header.consumer_group, header.topic, header.queue_id

    def follow(self, arrived: Watermark) -> None:
        """Read again when the queue with the end `arrived` has grown beyond the last read."""
        self._arrived = arrived
        self._waits = True
        found = self.found
        # A pull before the queue's first message waits for its timeout or a new message.
        before = found.status is GetStatus.OFFSET_TOO_SMALL
        arrived.wait((found.max_offset if before else found.next_offset) + 1, self)

    def done(self) -> bool:
        """Whether it no longer waits for its queue; see `tianzhou.watermark.Waiter`."""
        return not self._waits

    def set_result(self, _: None) -> None:
        """Read again soon, because the queue has grown."""
        self._waits = False
        self._held.woken(self)

    def set_exception(self, error: BaseException) -> None:
        """Answer with an error, because the queue will not grow."""
        self._error = error
        self.set_result(None)

    def expire(self) -> None:
        """End the wait: `suspendTimeoutMillis` has passed, or the group's offset was reset."""
        self._end(self._held.last_reply)

    def cancel(self) -> None:
        """End the wait without a reply."""
        if not self._over:
            self._over = True
            if self._waits:
                self._waits = False
                self._arrived.left()
            self._held.forget(self)

    def look_again(self, _: object = None) -> None:
        """Read again once the peer has read its earlier replies and this pull has a turn; answer or wait further."""
        if self._over:
            return
        # A thousand may wake together, for a peer that reads slowly.
        room = self.connection.room() or self._held.turn(self)
        if room is None:
            self._end(self._read)
        else:
            room.add_done_callback(self.look_again)

    def _read(self, _: HeldPull) -> Reply:
        if self._error is not None:
            raise self._error
        return self._held.next_reply(self)

    def _end(self, look: Callable[[HeldPull], Reply]) -> None:
        reply: Reply | Exception
        try:
            reply = look(self)
        except Exception as error:  # noqa: BLE001 - every failure of a handler becomes a reply
            reply = error
        if reply is None:
            self.follow(self._arrived)
        else:
            self.cancel()
            self.answer(reply)


class HeldPulls:
    """Owner of the waiting pulls, which wakes them, lets them read again, and ends them.

    Args:
        services: the broker's services.
        selections: present selections of groups whose subscriptions changed.
        answers: encoder of the replies.
        dictated: offsets that end a wait.

    Attributes:
        waiting: number of pulls that wait for messages.
    """

    def __init__(
        self, services: Services, selections: PullSelections, answers: PullAnswers, dictated: DictatedOffsets
    ) -> None:
        self._tables, self._store, self._replication = services.tables, services.store, services.replication
        self._selections, self._answers, self._dictated = selections, answers, dictated
        self._held: dict[tuple[str, str, int], dict[HeldPull, None]] = {}
        self._deadlines = TimerHeap()
        self._woken: deque[HeldPull] = deque()
        self._scheduled = False
        self.waiting = 0
        self._store.after_dispatch(self._dispatched)
        self._tables.offsets.on_reset = self._expire

    def hold(self, connection: Connection, request: PullRequest, found: GetResult) -> HeldPull:
        """Hold a pull until its queue grows or its timeout passes.

        Args:
            connection: connection of the consumer.
            request: the pull.
            found: result of the read without messages.

        Raises:
            LimitExceeded: too many pulls wait already.
        """
        header, settings = request.header, self._tables.settings
        if self.waiting >= settings.max_long_polls:
            self._tables.bounds.check(LONG_POLLS, self.waiting + 1)
        if (waiting := connection.deferred_replies) >= settings.max_long_polls_per_connection:
            self._tables.bounds.check(CONNECTION_POLLS, waiting + 1, f"connection {connection}")
        pull = HeldPull(self, connection, request, found)
        self.waiting += 1
        suspend_ms = (
            header.suspend_timeout_millis if settings.long_polling_enable else settings.short_polling_time_mills
        )
        self._held.setdefault(pull.key, {})[pull] = None
        self._deadlines.add(pull, max(suspend_ms, 0) / 1000)
        pull.follow(self._store.arrived(header.topic, header.queue_id))
        return pull

    def hold_at_once(self, connection: Connection, request: PullRequest, found: GetResult) -> bool:
        """Hold a pull that no handler has checked; return False without effect when a limit or the role forbids it.

        Args:
            connection: as for `hold`.
            request: as for `hold`.
            found: as for `hold`.
        """
        settings = self._tables.settings
        if self.waiting >= settings.max_long_polls or self._replication.near_master:
            return False
        if connection.deferred_replies >= settings.max_long_polls_per_connection:
            return False
        connection.defer(request.command, self.hold(connection, request, found))
        return True

    def forget(self, pull: HeldPull) -> None:
        """Drop a pull that has ended."""
        self._deadlines.remove(pull)
        self.waiting -= 1
        held = self._held[pull.key]
        del held[pull]
        if not held:
            del self._held[pull.key]

    def _expire(self, group: str, topic: str, queue_id: int) -> None:
        """End the pulls of a queue now, because the group's offset was reset."""
        self._deadlines.expire_now(self._held.get((group, topic, queue_id), ()))

    # replies of held pulls

    def next_reply(self, pull: HeldPull) -> Reply:
        """Return the reply to a pull whose queue has grown; None when its selection has no new message."""
        request = pull.request
        if self._selections.is_current(request):
            request.reading.offset = pull.found.next_offset
        else:
            self._selections.select_again(request)
        pull.found = found = self._read(request)
        if found.status is GetStatus.NO_MATCHED_MESSAGE and found.next_offset > request.reading.offset:
            return None
        return self._answers.answer(request, found)

    def last_reply(self, pull: HeldPull) -> Reply:
        """Return the reply to a pull whose timeout has passed, or whose group's offset was reset."""
        request, found = pull.request, pull.found
        if (offset := self._dictated.take(pull.connection, request.header)) is not None:
            return self._answers.dictated(request, offset)
        current = self._selections.is_current(request)
        if not current:
            self._selections.select_again(request)
        # Read again, because this broker may have become the master, which corrects offsets.
        if not current or found.status in OUTSIDE:
            found = self._read(request)
        return self._answers.answer(request, found)

    def _read(self, request: PullRequest) -> GetResult:
        accept = request.selection.accept
        if accept is not None:
            accept.begin()
        found = self._store.read(request.reading, blocks=True)
        if accept is not None:
            self._selections.turns.spend(accept.work * WORK_S)
        return self._answers.bounded(request, found)

    def turn(self, pull: HeldPull) -> asyncio.Future[None] | None:
        """Return None when a pull may read now, else a future of its turn."""
        if pull.request.selection.accept is None:
            return None
        turns = self._selections.turns
        place, pull.place = pull.place, None
        if turns.free(place):
            return None
        pull.place = turns.wait(place)
        return pull.place

    # waking

    def woken(self, pull: HeldPull) -> None:
        """Let a pull read again at the end of the running dispatch, else in the next turn."""
        self._woken.append(pull)
        if not (self._scheduled or self._store.dispatching):
            self._schedule()

    def _dispatched(self) -> None:
        # When pulls are left over from the previous turn, the scheduled call serves them and these in order.
        if not self._scheduled:
            self._look()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._look_later)

    def _look_later(self) -> None:
        self._scheduled = False
        self._look()

    def _look(self) -> None:
        """Let some woken pulls read; send their replies in one write for each connection."""
        woken = self._woken
        answered: dict[Connection, None] = {}
        for _ in range(min(len(woken), WAKES_PER_TURN)):
            pull = woken.popleft()
            pull.look_again()
            answered[pull.connection] = None
        for connection in answered:
            connection.send_all([])
        if woken:
            self._schedule()
