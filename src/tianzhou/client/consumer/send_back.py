"""Messages sent back to be delivered again later (client.md §13.4)."""

from __future__ import annotations

import logging

from tianzhou.client.cluster import rpc
from tianzhou.client.instance import INNER_PRODUCER_GROUP, ClientInstance
from tianzhou.client.producer.producer import Producer
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt
from tianzhou.wire.delivered import unreadable

_log = logging.getLogger(__name__)

DEFAULT_MAX_RECONSUME_TIMES = 16
FIRST_RETRY_LEVEL = 3
RESEND_TIMEOUT_MS = 3_000


class SendBack:
    """Gives a group's messages back to the brokers.

    Args:
        instance: reaches the brokers.
        group: the consumer group.
        max_reconsume_times: attempts after which a message goes to the dead letters; -1 for the default, 16.
    """

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int = -1) -> None:
        self._instance = instance
        self._group = group
        self._max_times = max_reconsume_times if max_reconsume_times >= 0 else DEFAULT_MAX_RECONSUME_TIMES
        self._producer: Producer | None = None

    async def give(self, message: MessageExt, delay_level: int = 0, max_times: int | None = None) -> bool:
        """Send a message back: to the broker that stores it, or else into the retry topic as a new message.

        Args:
            message: the message, under its original topic.
            delay_level: 0 lets the broker decide, -1 gives up on the message, above 0 is a level.
            max_times: how often it may be delivered again; None for what the consumer allows.

        Returns:
            Whether a broker has it; when not, the caller still has it.
        """
        if max_times is None:
            max_times = self._max_times
        try:
            await self._to_its_broker(message, delay_level, max_times)
        except TianzhouError as error:
            _log.info("%s was not taken back, storing it in the retry topic: %s", message.msg_id, error)
            if delay_level < 0:  # one that was tried more often than it may be is a dead letter there
                return await self.store_again(message, message.reconsume_times)
            return await self.store_again(message, max_times, delay_level)
        return True

    async def _to_its_broker(self, message: MessageExt, delay_level: int, max_times: int) -> None:
        address = await self._instance.master(message.broker_name, message.topic)
        await rpc.send_back(
            self._instance.remoting,
            address,
            self._group,
            message,
            delay_level=delay_level,
            max_reconsume_times=max_times,
        )

    async def store_again(self, message: MessageExt, max_times: int, delay_level: int = 0) -> bool:
        """Send a message to the retry topic as a new one, tried once more often.

        Args:
            message: the message, under its original topic.
            max_times: when it was tried more often than that, the broker makes a dead letter of it.
            delay_level: when it is delivered again; 0 for the level that brokers choose.

        Returns:
            Whether a broker has it; when not, the caller still has it.
        """
        delay_level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        try:
            if unreadable(message) is not None:  # only the broker that has it can store it again
                await self._to_its_broker(message, delay_level, max_times)
                return True
            if self._producer is None:
                producer = Producer(INNER_PRODUCER_GROUP, instance=self._instance)
                await producer.start()
                self._producer = producer
            await self._producer.resend_for_retry(
                message,
                self._group,
                max_reconsume_times=max_times,
                delay_level=delay_level,
                timeout_ms=RESEND_TIMEOUT_MS,
            )
        except TianzhouError as error:
            _log.warning("%s could not be sent back and is consumed again here: %s", message.msg_id, error)
            return False
        return True

    async def stop(self) -> None:
        """Close the producer it may have made."""
        if self._producer is not None:
            await self._producer.stop()
