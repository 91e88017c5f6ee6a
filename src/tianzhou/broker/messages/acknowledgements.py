"""Acknowledgements that wait for the disk or slaves, sent by one task (store.md §11.1, broker.md §17.2).

A flush covers all messages stored before it began, and so does a slave's report. Hundreds of sends become safe at the
same moment. A task and a timer for each send would cost more than storing the message. So each send is an entry of a
queue, and one task sends the replies of a connection in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from tianzhou.broker.messages.put_codes import code_of, unsettled_remark
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.clock import Clock
from tianzhou.errors import StoreError
from tianzhou.limits import CONNECTION_REQUESTS, Bounds
from tianzhou.remoting.budget import ACKNOWLEDGEMENTS
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.store.results import PutStatus
from tianzhou.store.store import MessageStore
from tianzhou.watermark import Watermark
from tianzhou.wire.command import split

_log = logging.getLogger(__name__)

Waited = tuple[list[int] | None, int]
"""Milliseconds that senders waited, by queue (None when they are not counted), and the queue of a message."""
_Entry = tuple[int, float, Connection, bytes, Sequence[Waited], Watermark, PutStatus | None]
"""Log offset that has to be safe, start of the wait, connection, concatenated replies, counters of each message,
watermark of replication, and the status by replication; the status is None while replication is awaited."""


class Acknowledgements:
    """Answers to sends once their messages are safe, or after `syncFlushTimeout` or `slaveTimeout`.

    Args:
        store: the message store.
        stats: counters of the senders' waits.
        clock: monotonic time.
        bounds: limit of waiting sends of a connection, above which the broker stops reading from it.
    """

    def __init__(self, store: MessageStore, stats: BrokerStats, clock: Clock, bounds: Bounds | None = None) -> None:
        self._store = store
        self._stats = stats
        self._clock = clock
        self._waiting: deque[_Entry] = deque()
        self._sends = 0
        self._bounds = bounds or Bounds()
        self._most = self._bounds.most(CONNECTION_REQUESTS)
        self._counts: dict[Connection, int] = {}
        self._held: set[Connection] = set()
        self._added = asyncio.Event()
        # Monotonic time, read once per loop turn; 0 when it has to be read.
        self._now = 0.0

    def __len__(self) -> int:
        return self._sends

    def add(self, end_offset: int, connection: Connection, replies: bytes, counted: Sequence[Waited]) -> None:
        """Answer sends of a connection once their messages are safe.

        Args:
            end_offset: log offset after the last message.
            connection: connection of the sender.
            replies: the concatenated successful answers.
            counted: for each message, the counter of waited milliseconds.
        """
        if not self._waiting:
            self._added.set()
        if not self._now:
            self._now = self._clock.monotonic()
            self._most = self._bounds.most(CONNECTION_REQUESTS)
            asyncio.get_running_loop().call_soon(self._turn_over)
        durability = self._store.durability
        copies = durability.status_at_once(self._store.end_offset, end_offset)
        self._waiting.append((end_offset, self._now, connection, replies, counted, durability.replicated, copies))
        self._sends += len(counted)
        self._counts[connection] = count = self._counts.get(connection, 0) + len(counted)
        if count > self._most and connection not in self._held:
            self._held.add(connection)
            connection.hold(ACKNOWLEDGEMENTS)
            self._bounds.refusals.counts[CONNECTION_REQUESTS.name] += 1

    def _answered(self, connection: Connection, count: int) -> None:
        self._sends -= count
        left = self._counts[connection] - count
        if left:
            self._counts[connection] = left
        else:
            del self._counts[connection]
        if connection in self._held and left <= self._most // 2:
            self._held.discard(connection)
            connection.release(ACKNOWLEDGEMENTS)

    def _turn_over(self) -> None:
        self._now = 0.0

    async def run(self) -> None:
        """Answer until cancelled."""
        waiting, durability = self._waiting, self._store.durability
        if waiting:
            self._added.set()  # from before a failure
        while True:
            await self._added.wait()
            self._added.clear()
            while waiting:
                end, since, *_, replicated, copies = waiting[0]
                status = PutStatus.PUT_OK
                marks = durability.awaited(replicated, copies=copies is None)
                for mark, limit_s, late in marks:
                    try:
                        async with asyncio.timeout(max(since + limit_s - self._clock.monotonic(), 0)):
                            await mark.reach(end)
                    except (TimeoutError, StoreError):
                        status = late
                if status is not PutStatus.PUT_OK or copies not in {None, PutStatus.PUT_OK}:
                    # The message is stored, but it may not be safe: the answer has another status.
                    self._answer_late(waiting.popleft(), status)
                else:
                    self._answer()

    def _answer(self) -> None:
        """Answer the entries whose messages are safe, at least one."""
        durability = self._store.durability
        waiting = self._waiting
        replicated = waiting[0][-2]
        flushed, copied = durability.safe_ends(replicated)
        now = self._clock.monotonic()
        since = waiting[0][1]
        # The first entry has waited longest, so sample its time alone.
        self._stats.put_latency.note((now - since) * 1000)
        waited_ms = int((now - since) * 1000)
        replies: dict[Connection, list[bytes]] = {}
        counts: dict[Connection, int] = {}
        while waiting and waiting[0][0] <= (copied if waiting[0][-1] is None else flushed):
            if waiting[0][-2] is not replicated:
                break  # the watermark of another term may cover other records
            _, began, connection, block, counted, _, _ = waiting.popleft()
            if began != since:
                since, waited_ms = began, int((now - began) * 1000)
            if waited_ms:
                for waits, queue_id in counted:
                    if waits is not None:
                        waits[queue_id] += waited_ms
            if connection in replies:
                replies[connection].append(block)
                counts[connection] += len(counted)
            else:
                replies[connection], counts[connection] = [block], len(counted)
        for connection, blocks in replies.items():
            self._answered(connection, counts[connection])
            try:
                connection.send_all(blocks)
            except Exception:  # noqa: BLE001 - one connection must not keep all others from their answers, for ever
                _log.exception("%s: %d acknowledgements cannot be sent", connection, counts[connection])

    def _answer_late(self, entry: _Entry, status: PutStatus) -> None:
        _, since, connection, replies, counted, _, copies = entry
        self._answered(connection, len(counted))
        self._stats.put_latency.note((self._clock.monotonic() - since) * 1000)
        for late in split(replies, 0, len(replies), MAX_FRAME)[0]:
            # A status of replication takes precedence over that of the disk.
            answered = status if copies is None or copies is PutStatus.PUT_OK else copies
            late.code, late.remark = code_of(answered), unsettled_remark(answered)
            connection.send(late)
