"""Acknowledgements that wait for the disk (SYNC_FLUSH): one waiter for all of them (store.md §11.1).

A flush covers everything stored before it began, so hundreds of sends become safe in the same moment. A task and a
timer for each of them would cost more than storing the message did; here each is an entry of a queue, answered by one
task, the replies to a connection in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tianzhou._hot import send_reply
from tianzhou.broker.stats import BrokerStats
from tianzhou.clock import Clock
from tianzhou.errors import StoreError
from tianzhou.model import names
from tianzhou.remoting.connection import Connection
from tianzhou.store.results import PutResult
from tianzhou.store.store import MessageStore
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_reply

_Entry = tuple[int, float, Connection, Command, str, int, int, str | None, str, bool]


class FlushAcks:
    """Answers sends when the disk has their messages, or when that takes too long.

    Args:
        store: its `flushed` watermark and its `syncFlushTimeout`.
        stats: learns how long senders waited.
        clock: monotonic time.
    """

    def __init__(self, store: MessageStore, stats: BrokerStats, clock: Clock) -> None:
        self._store = store
        self._stats = stats
        self._clock = clock
        self._waiting: deque[_Entry] = deque()
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self,
        connection: Connection,
        command: Command,
        result: PutResult,
        msg_id: str,
        queue_id: int,
        unique: str | None,
        region: str,
        trace_on: bool,
    ) -> None:
        """Answer a send once the disk has what `result` says was stored.

        Args:
            connection: where the answer goes.
            command: the send.
            result: of the put.
            msg_id: offset message id, or several joined by commas.
            queue_id: what the reply says; so the others.
            unique: the unique key.
            region: the broker's region.
            trace_on: whether the broker wants traces.
        """
        # The store has it; thousands may wait here.
        command.body = b""
        deadline = self._clock.monotonic() + self._store.settings.sync_flush_timeout / 1000
        self._waiting.append(
            (
                result.end_offset,
                deadline,
                connection,
                command,
                msg_id,
                queue_id,
                result.queue_offset,
                unique,
                region,
                trace_on,
            )
        )
        self._added.set()

    async def run(self) -> None:
        """Answer until cancelled."""
        waiting, flushed = self._waiting, self._store.flushed
        while True:
            await self._added.wait()
            self._added.clear()
            while waiting:
                end, deadline, *_ = waiting[0]
                try:
                    async with asyncio.timeout(max(deadline - self._clock.monotonic(), 0)):
                        await flushed.reach(end)
                except (TimeoutError, StoreError):
                    # The message is stored all the same; the sender learns that it is not known to be safe.
                    self._answer_late(waiting.popleft())
                    continue
                reached = flushed.value
                limit_ms = self._store.settings.sync_flush_timeout
                now = self._clock.monotonic()
                # Who came first has waited longest; the times of those behind it lie between its and nothing.
                self._stats.put_times.note(max(limit_ms - (deadline - now) * 1000, 0.0))
                while waiting and waiting[0][0] <= reached:
                    _, deadline, connection, command, msg_id, queue_id, offset, unique, region, trace_on = (
                        waiting.popleft()
                    )
                    self._waited(command, queue_id, limit_ms - (deadline - now) * 1000)
                    opaque = command.opaque
                    connection.send(send_reply(opaque, msg_id, queue_id, offset, unique, region, trace_on))

    def _waited(self, command: Command, queue_id: int, waited_ms: float) -> None:
        # Requests without a decoded header are those of rare clients; their times are not missed.
        traffic = None if command.header is None else self._stats.puts.get(command.header.topic)
        if traffic is not None and queue_id < len(traffic.waits):
            traffic.waits[queue_id] += max(int(waited_ms), 0)

    def _answer_late(self, entry: _Entry) -> None:
        self._stats.put_times.note(self._store.settings.sync_flush_timeout)
        _, _, connection, command, msg_id, queue_id, queue_offset, unique, region, trace_on = entry
        fields = write_reply(
            RequestCode.SEND_MESSAGE_V2,
            msg_id=msg_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            transaction_id=unique,
        )
        fields |= {names.MSG_REGION: region, names.TRACE_ON: "true" if trace_on else "false"}
        connection.send(command.reply(ResponseCode.FLUSH_DISK_TIMEOUT, None, fields))
