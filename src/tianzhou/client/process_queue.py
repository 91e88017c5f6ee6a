"""One queue a push consumer owns: what was pulled of it, and where it stands (client.md §11)."""

from __future__ import annotations

import asyncio

from tianzhou.client.offset_tracker import OffsetTracker, PullLimits
from tianzhou.model import MessageExt, MessageQueue
from tianzhou.wire.bodies import ProcessQueueInfo


class ProcessQueue:
    """A queue while it is ours.

    Args:
        queue: its identity.
        start: the offset it is consumed from.
        limits: how much of it may wait.
        now_ms: the present.
        committed: the offset the group has stored already, None for none.
    """

    __slots__ = (
        "committed",
        "dropped",
        "last_consume_ms",
        "last_pull_ms",
        "limits",
        "next_offset",
        "pull_task",
        "queue",
        "room",
        "suggested_broker_id",
        "tracker",
    )

    def __init__(
        self, queue: MessageQueue, start: int, limits: PullLimits, now_ms: int, committed: int | None = None
    ) -> None:
        self.queue = queue
        self.limits = limits
        self.tracker = OffsetTracker(start)
        self.next_offset = start
        self.committed = committed
        self.dropped = False
        self.suggested_broker_id = 0
        self.last_pull_ms = self.last_consume_ms = now_ms
        self.room = asyncio.Event()
        self.room.set()
        self.pull_task: asyncio.Task[None] | None = None

    def take_in(self, messages: list[MessageExt], next_offset: int) -> list[MessageExt]:
        """Note what a pull brought.

        Returns:
            The messages that were not known yet.
        """
        add = self.tracker.add
        fresh = [message for message in messages if add(message.queue_offset, len(message.body))]
        self.tracker.skip_to(next_offset)
        self.next_offset = next_offset
        if self.tracker.pause_reason(self.limits) is not None:
            self.room.clear()
        return fresh

    def finish(self, offset: int) -> None:
        """Note a message as done; wakes the pull loop when that makes room."""
        self.tracker.finish(offset)
        if not self.room.is_set() and self.tracker.pause_reason(self.limits) is None:
            self.room.set()

    def drop(self) -> None:
        """Give the queue up: results of what is still being consumed do not count any more."""
        self.dropped = True
        self.room.set()
        if self.pull_task is not None:
            self.pull_task.cancel()

    def info(self) -> ProcessQueueInfo:
        """Its entry in the running info (wire.md §7.11)."""
        tracker = self.tracker
        return ProcessQueueInfo(
            commit_offset=tracker.committable,
            cached_msg_min_offset=tracker.committable if len(tracker) else 0,
            cached_msg_max_offset=tracker.highest or 0,
            cached_msg_count=len(tracker),
            cached_msg_size_in_mib=tracker.size_bytes // (1024 * 1024),
            last_lock_timestamp=self.last_pull_ms,
            dropped=self.dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )
