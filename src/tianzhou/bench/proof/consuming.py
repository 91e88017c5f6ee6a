"""The consumer group of a proof: a new group with one member, which reads every queue from the start of the proof."""

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
    """A counter of the messages that a group receives, by unique key.

    Args:
        consumer: the only member of its group.
        begins: the offset at which to begin in each queue.

    Attributes:
        consumed: number of times that each key was received.
    """

    def __init__(self, consumer: PullConsumer, begins: Mapping[MessageQueue, int]) -> None:
        self._consumer = consumer
        self._begins = begins
        self.consumed: Counter[str] = Counter()

    async def run(self) -> None:
        """Consume until the task is cancelled. Brokers may stop and restart meanwhile."""
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
                # The queue has no such offset, so read it from its first message.
                _log.info("%s is read from its first message: %s", queue, error)
                begin = 0
            except TianzhouError as error:
                _log.info("%s cannot be read yet: %s", queue, error)
            await asyncio.sleep(AGAIN_S)
