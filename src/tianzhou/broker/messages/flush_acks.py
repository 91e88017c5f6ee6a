"""Acknowledgements of SYNC_FLUSH sends: one task awaits the disk for all of them (store.md §11.1).

A flush covers everything stored before it began, so hundreds of sends become safe in the same moment. A task and a
timer for each of them would cost more than storing the message did; here each is an entry of a queue, answered by one
task, the replies to a connection in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.clock import Clock
from tianzhou.errors import StoreError
from tianzhou.remoting.connection import Connection
from tianzhou.store.store import MessageStore
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import decode

_log = logging.getLogger(__name__)

_Entry = tuple[int, float, Connection, bytes, list[int] | None, int]
"""Log offset to flush, when the wait began, connection and reply, milliseconds waited by queue, queue."""


class FlushAcks:
    """Answers sends once their messages are flushed, or after `syncFlushTimeout`.

    Args:
        store: has the `flushed` watermark.
        stats: counts how long senders waited.
        clock: monotonic time.
    """

    def __init__(self, store: MessageStore, stats: BrokerStats, clock: Clock) -> None:
        self._store = store
        self._stats = stats
        self._clock = clock
        self._waiting: deque[_Entry] = deque()
        self._added = asyncio.Event()
        # Monotonic time, read once per loop turn; 0 when it has to be read.
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, end_offset: int, connection: Connection, reply: bytes, waits: list[int] | None, queue_id: int
    ) -> None:
        """Answer a send once the disk has its message.

        Args:
            end_offset: log offset behind the message.
            connection: where the answer goes.
            reply: the answer when all is well.
            waits: counters of milliseconds waited, by queue; None when they are not counted.
            queue_id: the message's queue.
        """
        if not self._waiting:
            self._added.set()
        if not self._now:
            self._now = self._clock.monotonic()
            asyncio.get_running_loop().call_soon(self._turn_over)
        self._waiting.append((end_offset, self._now, connection, reply, waits, queue_id))

    def _turn_over(self) -> None:
        self._now = 0.0

    async def run(self) -> None:
        """Answer until cancelled."""
        waiting, flushed = self._waiting, self._store.flushed
        if waiting:
            self._added.set()  # from before a failure
        while True:
            await self._added.wait()
            self._added.clear()
            while waiting:
                end, since, *_ = waiting[0]
                limit_s = self._store.settings.sync_flush_timeout / 1000
                try:
                    async with asyncio.timeout(max(since + limit_s - self._clock.monotonic(), 0)):
                        await flushed.reach(end)
                except (TimeoutError, StoreError):
                    # The message is stored all the same; the sender learns that it is not known to be safe.
                    self._answer_late(waiting.popleft())
                else:
                    self._answer(flushed.value)

    def _answer(self, reached: int) -> None:
        """Answer the entries, at least one, whose messages end at or before a log offset."""
        waiting = self._waiting
        now = self._clock.monotonic()
        since = waiting[0][1]
        # Who came first has waited longest; the times of those behind it lie between its and nothing.
        self._stats.put_latency.note((now - since) * 1000)
        waited_ms = int((now - since) * 1000)
        replies: dict[Connection, list[bytes]] = {}
        while waiting and waiting[0][0] <= reached:
            _, began, connection, reply, waits, queue_id = waiting.popleft()
            if began != since:
                since, waited_ms = began, int((now - began) * 1000)
            if waited_ms and waits is not None:
                waits[queue_id] += waited_ms
            if connection in replies:
                replies[connection].append(reply)
            else:
                replies[connection] = [reply]
        for connection, frames in replies.items():
            try:
                connection.send_all(frames)
            except Exception:  # noqa: BLE001 - one connection must not keep all others from their answers, for ever
                _log.exception("%s: %d acknowledgements cannot be sent", connection, len(frames))

    def _answer_late(self, entry: _Entry) -> None:
        self._stats.put_latency.note(self._store.settings.sync_flush_timeout)
        _, _, connection, reply, _, _ = entry
        late = decode(reply[4:])
        late.code = ResponseCode.FLUSH_DISK_TIMEOUT
        connection.send(late)
