"""One queue of a push consumer: its pulled messages and its offsets (client.md §11)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from math import inf

from tianzhou.client.consumer.offset_tracker import OffsetTracker, PullLimits
from tianzhou.client.consumer.pull_pace import PullPace
from tianzhou.client.consumer.pulling import QueuePulls
from tianzhou.model import MessageExt, MessageQueue
from tianzhou.wire.bodies.clients import ProcessQueueInfo
from tianzhou.wire.delivered import body_sizes

PULL_LATE_S = 1.0
"""Seconds after a pull was sent in which a multi-threaded broker may still execute the pull's commit."""
LOCK_TRUST_S = 30.0
"""Seconds without a renewal in which a consumer still relies on a broker's lock (client.md §14)."""


def set_event() -> asyncio.Event:
    """Return an event that is set."""
    event = asyncio.Event()
    event.set()
    return event


class ProcessQueue:
    """A queue while it is assigned to this member.

    Args:
        queue: its identity.
        start: the first offset to consume.
        limits: limits for its unfinished messages.
        now_ms: present time.
        committed: the offset that the group has stored already; None without one.
        no_handler: event that is set while no handler has messages of the queue, including handlers of a former
            assignment.
    """

    __slots__ = (
        "at_work",
        "carried",
        "carried_s",
        "committed",
        "dropped",
        "full",
        "in_hand",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "last_pull_s",
        "leaving",
        "limits",
        "locked_s",
        "next_offset",
        "no_handler",
        "pace",
        "pull_task",
        "pulls",
        "queue",
        "rest",
        "room",
        "scheduled",
        "suggested_broker_id",
        "tracker",
        "unlock_tries",
        "waiting",
        "warned_s",
    )

    def __init__(
        self,
        queue: MessageQueue,
        start: int,
        limits: PullLimits,
        now_ms: int,
        committed: int | None = None,
        no_handler: asyncio.Event | None = None,
    ) -> None:
        self.queue = queue
        self.limits = limits
        self.tracker = OffsetTracker(start)
        self.next_offset = start
        self.committed = committed
        self.dropped = False
        self.suggested_broker_id = 0
        self.last_pull_ms = self.last_consume_ms = self.last_lock_ms = now_ms
        self.last_pull_s = 0.0
        self.warned_s = -inf
        self.full = False
        self.room = set_event()
        self.pulls: QueuePulls | None = None
        self.pull_task: asyncio.Task[None] | None = None
        self.pace = PullPace()
        self.carried: int | None = None
        self.carried_s = 0.0
        self.at_work = 0
        self.leaving = False
        self.rest: asyncio.Event | None = None
        # The following attributes are for orderly consumption only.
        self.waiting: deque[MessageExt] = deque()
        self.in_hand: list[MessageExt] = []
        self.no_handler = no_handler or set_event()
        self.scheduled = False
        self.locked_s: float | None = None
        self.unlock_tries = 0

    @property
    def given_up(self) -> bool:
        """Whether handlers must not get more of its messages."""
        return self.dropped or self.leaving

    def take_in(self, messages: list[MessageExt], next_offset: int) -> list[MessageExt]:
        """Add the messages of a pull.

        Returns:
            The messages that were not known yet.
        """
        tracker, fresh = self.tracker, messages
        if messages:
            offsets, sizes = [m.queue_offset for m in messages], body_sizes(messages)
            if offsets[-1] >= next_offset or not tracker.add_run(offsets, sizes):
                fresh = [
                    m
                    for m, size in zip(messages, sizes, strict=True)
                    if 0 <= m.queue_offset < next_offset and tracker.add(m.queue_offset, size)
                ]
        tracker.skip_to(next_offset)
        self.next_offset = next_offset
        if tracker.pause_reason(self.limits) is not None:
            self.room.clear()
            self.full = True
        return fresh

    def finish(self, offset: int) -> None:
        """Mark a message as finished, and wake the pull loop when that makes room."""
        self.tracker.finish(offset)
        if self.full:
            self.look_for_room()

    def finish_all(self, messages: list[MessageExt]) -> None:
        """Mark messages as finished that were delivered together."""
        self.finish_run([message.queue_offset for message in messages])

    def finish_run(self, offsets: list[int]) -> None:
        """Mark messages with consecutive offsets of the tracker as finished."""
        self.tracker.finish_run(offsets)
        if self.full:
            self.look_for_room()

    def look_for_room(self) -> None:
        """Wake the pull loop when there is room, and pause it when there is none."""
        self.full = self.tracker.pause_reason(self.limits) is not None
        if self.full:
            self.room.clear()
        else:
            self.room.set()

    def look_for_rest(self) -> None:
        """Wake the waiters of `rested` when no handler is running; the callers of handlers count them in `at_work`."""
        if self.rest is not None and not self.at_work:
            self.rest.set()
            self.rest = None

    async def rested(self) -> None:
        """Wait until no handler is running."""
        if self.at_work:
            if self.rest is None:
                self.rest = asyncio.Event()
            await self.rest.wait()

    def carry(self, committable: int | None, now_s: float) -> None:
        """Note that a pull was sent, and the offset that it commits; None without a commit."""
        self.carried = committable
        self.carried_s = now_s

    def doubtful(self, now_s: float) -> bool:
        """Whether a pull may still commit an offset that is lower than the committable one."""
        on_its_way = self.carried is not None and now_s - self.carried_s < PULL_LATE_S
        return on_its_way and self.carried != self.tracker.committable

    def limit(self, limits: PullLimits) -> None:
        """Change the limits for its unfinished messages."""
        if limits != self.limits:
            self.limits = limits
            self.look_for_room()

    def leave(self) -> None:
        """Revoke the queue: handlers get no more of its messages, and results of running handlers still count."""
        self.leaving = True
        self.waiting.clear()
        self._stop_pulling()

    def drop(self) -> None:
        """Drop the queue: results of messages still being consumed are ignored."""
        self.dropped = True
        self._stop_pulling()

    def _stop_pulling(self) -> None:
        self.full = False
        self.room.set()
        if self.pull_task is not None:
            self.pull_task.cancel()

    # --- orderly consumption ---------------------------------------------------------------------------------

    def succeed(self, former: ProcessQueue) -> None:
        """Copy the lock and the pace from the same queue's former state."""
        self.pace = former.pace
        self.locked_s = former.locked_s
        self.last_lock_ms = former.last_lock_ms

    def locked(self, since_s: float, now_ms: int) -> None:
        """Note that a broker granted or renewed this member's lock, which was requested at `since_s`."""
        self.locked_s = since_s
        self.last_lock_ms = now_ms

    def is_locked(self, now_s: float) -> bool:
        """Whether this member can rely on its lock."""
        return self.locked_s is not None and now_s - self.locked_s <= LOCK_TRUST_S

    def take(self, most: int) -> list[MessageExt]:
        """Return the next messages in order, all of one topic; they stay in `in_hand` until `commit` or `put_back`."""
        waiting = self.waiting
        taken = [waiting.popleft()]
        while waiting and len(taken) < most and waiting[0].topic == taken[0].topic:
            taken.append(waiting.popleft())
        self.in_hand += taken
        return taken

    def commit(self) -> None:
        """Mark all messages in `in_hand` as consumed."""
        done, self.in_hand = self.in_hand, []
        self.finish_all(done)

    def put_back(self, messages: Iterable[MessageExt]) -> None:
        """Move messages from `in_hand` back to the front of `waiting`."""
        offsets = {message.queue_offset for message in messages}
        back = [message for message in self.in_hand if message.queue_offset in offsets]
        self.in_hand = [message for message in self.in_hand if message.queue_offset not in offsets]
        if not self.given_up:
            self.waiting.extendleft(reversed(back))

    # --- running info ----------------------------------------------------------------------------------------

    def info(self, now_s: float) -> ProcessQueueInfo:
        """Return its entry in the running info (wire.md §7.11).

        Args:
            now_s: monotonic time, seconds; a lock without a recent renewal does not count.
        """
        tracker = self.tracker
        in_hand = self.in_hand
        return ProcessQueueInfo(
            commit_offset=tracker.committable,
            cached_msg_min_offset=tracker.committable if len(tracker) else 0,
            cached_msg_max_offset=tracker.highest or 0,
            cached_msg_count=len(tracker),
            cached_msg_size_in_mib=tracker.size_bytes // (1024 * 1024),
            transaction_msg_min_offset=in_hand[0].queue_offset if in_hand else 0,
            transaction_msg_max_offset=in_hand[-1].queue_offset if in_hand else 0,
            transaction_msg_count=len(in_hand),
            locked=self.is_locked(now_s),
            try_unlock_times=self.unlock_tries,
            last_lock_timestamp=self.last_lock_ms,
            dropped=self.given_up,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )
