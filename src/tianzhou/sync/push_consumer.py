"""The blocking push consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from tianzhou import client
from tianzhou.client.consumer.push.handlers import H, Handler
from tianzhou.client.consumer.subscription import ALL
from tianzhou.client.instance import ClientInstance
from tianzhou.model import MessageExt, MessageQueue
from tianzhou.sync.background import Blocking


class PushConsumer(Blocking):
    """A member of a consumer group; a context manager and an iterator of messages.

    Sync handlers run in threads of their own, so they may block and may use other objects of `tianzhou.sync`.

    Args:
        group: the consumer group.
        namesrv_addr: name servers, `host:port` joined by `;`.
        options: as of `tianzhou.client.PushConsumer`.
    """

    def __init__(self, group: str, namesrv_addr: str | Sequence[str] | None = None, **options: Any) -> None:
        super().__init__()
        self._consumer = client.PushConsumer(group, namesrv_addr, **options)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._consumer.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
        return self._consumer.instance

    @property
    def assignment(self) -> list[MessageQueue]:
        """See `tianzhou.client.PushConsumer.assignment`."""
        return self._call(lambda: self._consumer.assignment)

    @property
    def consume_concurrency(self) -> int:
        """See `tianzhou.client.PushConsumer.consume_concurrency`."""
        return self._consumer.consume_concurrency

    def change_concurrency(self, count: int) -> None:
        """See `tianzhou.client.PushConsumer.change_concurrency`."""
        self._call(self._consumer.change_concurrency, count)

    def subscribe(
        self, topic: str, tags: str | None = ALL, handler: Handler | None = None, *, sql: str | None = None
    ) -> None:
        """See `tianzhou.client.PushConsumer.subscribe`."""
        self._call(self._consumer.subscribe, topic, tags, handler, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """See `tianzhou.client.PushConsumer.unsubscribe`."""
        self._call(self._consumer.unsubscribe, topic)

    def on(self, topic: str, tags: str | None = ALL, *, sql: str | None = None) -> Callable[[H], H]:
        """See `tianzhou.client.PushConsumer.on`."""

        def register(handler: H) -> H:
            self.subscribe(topic, tags, handler, sql=sql)
            return handler

        return register

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._consumer.__aexit__(kind, error, trace))

    def start(self) -> None:
        """See `tianzhou.client.PushConsumer.start`."""
        self._run(self._consumer.start())

    def stop(self) -> None:
        """See `tianzhou.client.PushConsumer.stop`."""
        self._run(self._consumer.stop())

    def suspend(self) -> None:
        """See `tianzhou.client.PushConsumer.suspend`."""
        self._call(self._consumer.suspend)

    def resume(self) -> None:
        """See `tianzhou.client.PushConsumer.resume`."""
        self._call(self._consumer.resume)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        try:
            return self._run(self._consumer.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
