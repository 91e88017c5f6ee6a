"""The group of a proof: new, alone, reading every queue from where the proof began."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping

from tianzhou.client import PullConsumer
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import MessageQueue

_log = logging.getLogger(__name__)

POLL_MS = 500
AGAIN_S = 0.5


class ProofGroup:
    """Counts what a group gets, by unique key.

    Args:
        consumer: of a group that nobody else is in.
        begins: the queues, and where to begin in each.

    Attributes:
        consumed: how often each key came.
    """

    def __init__(self, consumer: PullConsumer, begins: Mapping[MessageQueue, int]) -> None:
        self._consumer = consumer
        self._begins = begins
        self.consumed: Counter[str] = Counter()

    async def run(self) -> None:
        """Consume until it is cancelled; brokers may come and go meanwhile."""
        self._consumer.assign(self._begins)
        for queue, begin in self._begins.items():
            await self._seek(queue, begin)
        while True:
            try:
                messages = await self._consumer.poll(POLL_MS)
            except TianzhouError as error:
                _log.info("the proof's group goes on soon: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            self.consumed.update(message.msg_id for message in messages)

    async def _seek(self, queue: MessageQueue, begin: int) -> None:
        while True:
            try:
                if begin:
                    await self._consumer.seek(queue, begin)
                else:
                    await self._consumer.seek_to_begin(queue)
                return
            except ClientError as error:
                # The queue holds no such offset: it is read from its first message on.
                _log.info("%s is read from its first message: %s", queue, error)
                begin = 0
            except TianzhouError as error:
                _log.info("%s cannot be read yet: %s", queue, error)
            await asyncio.sleep(AGAIN_S)
