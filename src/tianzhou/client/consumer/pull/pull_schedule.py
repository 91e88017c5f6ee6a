"""Repeated calls of a callback for each queue of this member, as by MQPullConsumerScheduleService (client.md §19)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Unpack

from tianzhou.client.cluster.tasks import Tasks
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.client.group_client import Startable
from tianzhou.client.option_keywords import ScheduleKeywords
from tianzhou.client.validation import check_number
from tianzhou.errors import ClientError
from tianzhou.model import MessageQueue
from tianzhou.remoting.callbacks import failure_of

_log = logging.getLogger(__name__)

NEXT_DELAY_MS = 200
ERROR_DELAY_MS = 1_000


@dataclass(slots=True)
class PullTurn:
    """One call of a callback.

    Attributes:
        consumer: the consumer to pull with, and to read and store offsets: `committed`, `pull`, `commit_offsets`.
        next_delay_ms: ms until the next call for the queue; the callback may change it.
    """

    consumer: PullConsumer
    next_delay_ms: int = NEXT_DELAY_MS


PullTask: TypeAlias = Callable[[MessageQueue, PullTurn], Awaitable[None]]
"""Callback that is called with a queue of this member."""


class PullSchedule(Startable):
    """A scheduler that shares the queues of topics with the group, and calls a callback for each queue of this member.

    It is an async context manager. The calls for one queue run one after the other; calls for different queues run
    concurrently. The callback decides which messages it reads and which offsets it stores. When a call raises, the
    error is logged, and the next call for the queue follows after a second.

    Args:
        group: the consumer group.
        namesrv_addr: name servers, see `ClientInstance`.
        concurrency: maximum number of calls at the same time.
        keywords: as of `PullConsumer`, except those of commits and `queues_changed`.

    Raises:
        ConfigError: an option is wrong.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        concurrency: int = 20,
        **keywords: Unpack[ScheduleKeywords],
    ) -> None:
        check_number("concurrency", concurrency, 1, 1_000)
        self._group = group
        self._room = asyncio.Semaphore(concurrency)
        self._tasks = Tasks(f"pull schedule of group {group}")
        self._callbacks: dict[str, PullTask] = {}
        self._ours: dict[MessageQueue, asyncio.Task[None]] = {}
        self.consumer = PullConsumer(
            group, namesrv_addr, auto_commit=False, queues_changed=self._queues_changed, **keywords
        )

    def register(self, topic: str, callback: PullTask, tags: str | None = "*", *, sql: str | None = None) -> None:
        """Call a callback for this member's queues of a topic.

        Args:
            topic: the topic.
            callback: called with a queue and a `PullTurn`.
            tags: tag expression of the group's subscription; pulls have expressions of their own.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: the topic or the expression is wrong, or the topic has a callback already.
        """
        if topic in self._callbacks:
            raise ClientError(f"topic {topic} has a callback in group {self._group} already; register it once")
        self.consumer.subscribe(topic, tags, sql=sql)
        self._callbacks[topic] = callback

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues of this member, for which the callbacks are called."""
        return sorted(self._ours)

    async def start(self) -> None:
        """Join the group and start the calls.

        Raises:
            ClientError: the schedule is stopped, or no topic is registered.
        """
        if not self._callbacks:
            raise ClientError(f"the pull schedule of group {self._group} has no callback; register one first")
        await self.consumer.start()

    async def stop(self) -> None:
        """Cancel the running calls, and leave the group."""
        await self._tasks.end()
        self._ours.clear()
        await self.consumer.stop()

    def _queues_changed(self, topic: str, _all_queues: list[MessageQueue], ours: list[MessageQueue]) -> None:
        for queue in [queue for queue in self._ours if queue.topic == topic and queue not in ours]:
            del self._ours[queue]  # the running call of this queue finishes and is its last
        for queue in ours:
            if queue not in self._ours:
                self._ours[queue] = self._tasks.spawn(self._serve(queue))

    async def _serve(self, queue: MessageQueue) -> None:
        me = asyncio.current_task()
        callback = self._callbacks[queue.topic]
        while self._ours.get(queue) is me:
            turn = PullTurn(self.consumer)
            async with self._room:
                try:
                    await callback(queue, turn)
                except BaseException as error:  # noqa: BLE001 - a user's callback must not stop the queue
                    failure = failure_of(error, me)
                    _log.error("a pull callback of group %s failed for %s", self._group, queue, exc_info=failure)
                    del failure  # its traceback refers to the callback's values, which would stay in memory
                    turn.next_delay_ms = ERROR_DELAY_MS
            await asyncio.sleep(turn.next_delay_ms / 1000)
