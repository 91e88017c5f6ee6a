"""Sending messages back to brokers, which deliver them again later (client.md §13.4)."""

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
    """Sender that returns a group's messages to the brokers.

    Args:
        instance: reaches the brokers.
        group: the consumer group.
        max_reconsume_times: number of attempts after which a message becomes a dead letter; -1 for the default, 16.
    """

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int = -1) -> None:
        self._instance = instance
        self._group = group
        self._max_times = max_reconsume_times if max_reconsume_times >= 0 else DEFAULT_MAX_RECONSUME_TIMES
        self._producer: Producer | None = None

    async def give(self, message: MessageExt, delay_level: int = 0, max_times: int | None = None) -> bool:
        """Send a message back to the broker that stores it; if that fails, send it to the retry topic as a new message.

        Args:
            message: the message, under its original topic.
            delay_level: a level above 0; 0 lets the broker choose; -1 sends it to the dead letters.
            max_times: maximum number of redeliveries; None for the consumer's limit.

        Returns:
            Whether a broker accepted it; otherwise the caller has to consume it.
        """
        if max_times is None:
            max_times = self._max_times
        try:
            await self._to_its_broker(message, delay_level, max_times)
        except TianzhouError as error:
            _log.info("%s was not taken back, storing it in the retry topic: %s", message.msg_id, error)
            if delay_level < 0:  # the broker makes a message above its limit of attempts a dead letter
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
        """Send a message to the retry topic as a new one, with one more attempt counted.

        Args:
            message: the message, under its original topic.
            max_times: maximum number of attempts; above it the broker makes the message a dead letter.
            delay_level: delay level of the delivery; 0 for the level that brokers choose.

        Returns:
            Whether a broker accepted it; otherwise the caller has to consume it.
        """
        delay_level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        try:
            if unreadable(message) is not None:  # only the broker that stores it can store it again
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
        """Stop the producer, if one was created."""
        if self._producer is not None:
            await self._producer.stop()
