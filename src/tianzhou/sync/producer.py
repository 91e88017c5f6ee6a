"""The blocking producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tianzhou import client
from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.outbox.outbox_entry import OutboxStatus
from tianzhou.client.producer.selector import QueueSelector
from tianzhou.model import Message, MessageExt, MessageQueue, SendResult
from tianzhou.sync.background import Blocking


class Producer(Blocking):
    """Sends messages; any number of threads may use one at the same time.

    Args:
        group: the producer group.
        namesrv_addr: name servers, `host:port` joined by `;`.
        options: as of `tianzhou.client.Producer`.
    """

    def __init__(self, group: str, namesrv_addr: str | Sequence[str] | None = None, **options: Any) -> None:
        super().__init__()
        self._producer = self._made(group, namesrv_addr, options)

    @staticmethod
    def _made(group: str, namesrv_addr: str | Sequence[str] | None, options: dict[str, Any]) -> client.Producer:
        return client.Producer(group, namesrv_addr, **options)

    @property
    def group(self) -> str:
        """The producer group."""
        return self._producer.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
        return self._producer.instance

    @property
    def outbox(self) -> OutboxStatus | None:
        """See `tianzhou.client.Producer.outbox`."""
        return self._call(lambda: self._producer.outbox)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """See `tianzhou.client.Producer.start`."""
        self._run(self._producer.start())

    def stop(self) -> None:
        """See `tianzhou.client.Producer.stop`."""
        self._run(self._producer.stop())

    def queues(self, topic: str) -> list[MessageQueue]:
        """See `tianzhou.client.Producer.queues`."""
        return self._run(self._producer.queues(topic))

    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """See `tianzhou.client.Producer.send`."""
        return self._run(self._producer.send(message, queue, selector, selector_arg, timeout_ms))

    def send_batch(
        self, messages: Iterable[Message], queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> SendResult:
        """See `tianzhou.client.Producer.send_batch`."""
        return self._run(self._producer.send_batch(messages, queue, timeout_ms))

    def send_oneway(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
    ) -> None:
        """See `tianzhou.client.Producer.send_oneway`."""
        self._run(self._producer.send_oneway(message, queue, selector, selector_arg))

    def request(
        self,
        message: Message,
        timeout_ms: float,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
    ) -> MessageExt:
        """See `tianzhou.client.Producer.request`."""
        return self._run(self._producer.request(message, timeout_ms, queue, selector, selector_arg))

    def reply(
        self,
        request: MessageExt,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = "",
        properties: Mapping[str, str] | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """See `tianzhou.client.Producer.reply`."""
        return self._run(
            self._producer.reply(request, body, tags=tags, keys=keys, properties=properties, timeout_ms=timeout_ms)
        )
