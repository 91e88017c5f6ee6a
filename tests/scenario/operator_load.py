"""A durable producer and a running consumer group during a test of an operator's actions, with a ledger of both."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

from tianzhou import ConsumeFromWhere, Message, sync
from tianzhou.errors import TianzhouError
from waiting import until

RATE = 100
"""Messages per second."""


class OperatorLoad:
    """Sends numbered messages one after the other and consumes them; a context manager.

    Args:
        namesrv: address of the name server.
        topic: topic of the messages, which has to exist.
        consumer_group: name of the consumer group, which begins with the first message.

    Attributes:
        acknowledged: number of each message whose send returned SEND_OK.
        keys: unique keys of these messages.
        consumed: how often each number was consumed.
        failed: errors of sends that were not acknowledged within the durable time limit.
        longest_gap_s: longest time between two acknowledgements, seconds.
    """

    def __init__(self, namesrv: str, topic: str, consumer_group: str = "operator_load") -> None:
        self.acknowledged: set[int] = set()
        self.keys: list[str] = []
        self.consumed: Counter[int] = Counter()
        self.failed: list[str] = []
        self.longest_gap_s = 0.0
        self._topic = topic
        self._producer = sync.Producer("operator_load", namesrv, durable=True, poll_name_server_interval_ms=1000)
        self._consumer = sync.PushConsumer(
            consumer_group, namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            poll_name_server_interval_ms=1000,
        )  # fmt: skip
        self._consumer.subscribe(topic, handler=lambda message: self.consumed.update([int(message.body)]))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_all)

    def __enter__(self) -> Self:
        self._producer.start()
        self._consumer.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_sending()
        self._consumer.stop()
        self._producer.stop()

    def _send_all(self) -> None:
        number, last_s = 0, time.monotonic()
        while not self._ended.wait(1 / RATE):
            try:
                result = self._producer.send(Message(self._topic, str(number).encode()))
            except TianzhouError as error:
                self.failed.append(str(error))
            else:
                self.acknowledged.add(number)
                self.keys.append(result.msg_id)
                now_s = time.monotonic()
                self.longest_gap_s, last_s = max(self.longest_gap_s, now_s - last_s), now_s
            number += 1

    def stop_sending(self) -> None:
        """Send no more messages."""
        self._ended.set()
        self._thread.join(60)

    def go_on(self, messages: int = 50) -> None:
        """Wait until `messages` further messages are acknowledged."""
        wanted = len(self.acknowledged) + messages
        until(lambda: len(self.acknowledged) >= wanted, "sends go on", within_s=60)

    def finish(self) -> int:
        """Stop sending, and wait until each acknowledged message is consumed.

        Returns:
            How many consumptions repeat an earlier one.
        """
        self.stop_sending()

        def missing() -> list[int]:
            return sorted(self.acknowledged - self.consumed.keys())

        try:
            until(lambda: not missing(), "each acknowledged message is consumed", within_s=60)
        except AssertionError as error:
            raise AssertionError(f"{error}; not consumed: {missing()[:20]} of {len(self.acknowledged)}") from None
        return sum(self.consumed.values()) - len(self.consumed)
