"""Detection of changes in a topic's queues (client.md §18)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from tianzhou.client.instance import ClientInstance
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.remoting.callbacks import failure_of

_log = logging.getLogger(__name__)

QueuesListener: TypeAlias = Callable[[str, list[MessageQueue]], None]
"""Callback with a topic and its readable queues, sorted."""


class QueueWatch:
    """Watcher that compares the queues of topics at intervals and calls listeners after changes.

    Args:
        instance: knows the name servers.
        interval_s: pause between two comparisons.
    """

    def __init__(self, instance: ClientInstance, interval_s: float) -> None:
        self._instance = instance
        self._interval_s = interval_s
        self._listeners: dict[str, QueuesListener] = {}
        self._known: dict[str, list[MessageQueue]] = {}

    def add(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener` after a change of a topic's queues; it replaces a former listener of this topic."""
        self._listeners[topic] = listener

    async def run(self) -> None:
        """Compare the queues until cancelled."""
        task = asyncio.current_task()
        while True:
            for topic in list(self._listeners):
                try:
                    await self._look(topic)
                except TianzhouError as error:
                    _log.info("the queues of %s are not known now: %s", topic, error)
                except BaseException as error:  # noqa: BLE001 - a failing listener must not stop the others
                    _log.error("a listener of the queues of %s failed", topic, exc_info=failure_of(error, task))
            await asyncio.sleep(self._interval_s)

    async def _look(self, topic: str) -> None:
        queues = await self._instance.queues_to_read(topic, refresh=True)
        known = self._known.get(topic)
        self._known[topic] = queues
        if known is not None and queues != known:
            self._listeners[topic](topic, queues)
