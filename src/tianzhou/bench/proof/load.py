"""The load of a proof: concurrent sends, and a record of the acknowledgements."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from tianzhou.bench.proof.acknowledged import line_of
from tianzhou.bench.proof.comparison import MessagePlace
from tianzhou.client import Producer
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import Message, SendStatus

AFTER_FAILURE_S = 0.2


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """A description of the messages to send.

    Attributes:
        topic: the target topic.
        count: number of messages, None for as many as fit into `seconds`.
        seconds: duration; None until `count` messages are sent.
        rate: messages per second, 0 for as fast as they are acknowledged.
        size_bytes: size of a body.
        in_flight: number of concurrent sends.
        timeout_ms: time for which a message is retried before it counts as failed.
    """

    topic: str
    count: int | None
    seconds: float | None
    rate: float
    size_bytes: int
    in_flight: int
    timeout_ms: int


class ProofLoad:
    """A sender that records every acknowledgement.

    Args:
        order: the messages to send.
        ledger: a text file to which it writes a line for each acknowledgement; None for none.

    Attributes:
        acknowledged: unique keys with the place of the acknowledgement.
        failures: number of sends that finally failed, by reason.
    """

    def __init__(self, order: LoadOrder, ledger: TextIO | None = None) -> None:
        self._order = order
        self._ledger = ledger
        self._numbers = itertools.count()
        self._body = os.urandom(order.size_bytes // 2 + 1).hex()[: order.size_bytes].encode()
        self._stopping = False
        self.acknowledged: dict[str, MessagePlace | None] = {}
        self.failures: Counter[str] = Counter()

    async def send(self, producer: Producer, progress: Callable[[int], None]) -> None:
        """Send all messages.

        Args:
            producer: a durable producer.
            progress: called with the number of acknowledged messages.

        Raises:
            ClientError: the topic rejects every send.
        """
        began_s = time.monotonic()
        await asyncio.gather(*(self._work(producer, began_s, progress) for _ in range(self._order.in_flight)))

    def stop(self) -> None:
        """Start no more sends. `send` still waits for those in flight."""
        self._stopping = True

    async def _work(self, producer: Producer, began_s: float, progress: Callable[[int], None]) -> None:
        order = self._order
        while not self._stopping:
            number = next(self._numbers)
            if order.count is not None and number >= order.count:
                return
            if order.rate and (wait_s := began_s + number / order.rate - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            if order.seconds is not None and time.monotonic() - began_s >= order.seconds:
                return
            try:
                result = await producer.send(Message(order.topic, self._body))
            except TianzhouError as error:
                if isinstance(error, ClientError) and not self.acknowledged:
                    raise
                self.failures[_reason(error)] += 1
                await asyncio.sleep(AFTER_FAILURE_S)
                continue
            if result.status is not SendStatus.SEND_OK:
                self.failures[result.status.name] += 1
                continue
            place = MessagePlace(result.queue.broker_name, result.queue.queue_id, result.queue_offset)
            self.acknowledged[result.msg_id] = place
            if self._ledger is not None:
                self._ledger.write(line_of(result.msg_id, place))
            progress(len(self.acknowledged))


def _reason(error: TianzhouError) -> str:
    status = getattr(error, "status", "")
    return status or f"{type(error).__name__}: {str(error)[:120]}"
