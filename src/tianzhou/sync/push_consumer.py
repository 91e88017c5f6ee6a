# Written by scripts/facade; change what it is written from, then run it again.
"""The blocking push consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from tianzhou import client
from tianzhou.client.consumer.push.handlers import H, Handler
from tianzhou.client.consumer.push.retry_policy import RetryPolicy
from tianzhou.client.consumer.push.typed_bodies import Undecodable
from tianzhou.client.consumer.subscription import ALL
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import PushKeywords
from tianzhou.model import MessageExt, MessageQueue
from tianzhou.sync.background import Blocking


class PushConsumer(Blocking):
    """A member of a consumer group; a context manager and an iterator of messages.

    Add a handler per topic with `on`, or subscribe and iterate. In an iteration, a message counts as consumed when the
    next one is requested, or when the `with` block ends without an error. An error that leaves the block sends
    the message back, so that it is delivered again later.

    With `orderly`, the messages of each queue are consumed one after the other, in their order, by the member that has
    locked the queue. Different queues are consumed concurrently. A message that is not consumed is not sent back. It is
    delivered again after a short pause, and the messages behind it wait. Send related messages with the same
    `sharding_key` to store them in one queue.

    Sync handlers run in threads of their own, so they may block and may use other objects of `tianzhou.sync`.

    Args:
        group: the consumer group.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        keywords: see `tianzhou.client.consumer.push.options.PushOptions` and, when the consumer owns its instance,
            `tianzhou.client.options.ClientOptions`.

    Raises:
        ConfigError: an option is unknown, or its value is not allowed.
    """

    _async: client.PushConsumer

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        **keywords: Unpack[PushKeywords],
    ) -> None:
        Blocking.__init__(self, client.PushConsumer(group, namesrv_addr, instance=instance, **keywords))

    @property
    def group(self) -> str:
        """The producer or consumer group."""
        return self._async.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance that it uses. It belongs to the background loop."""
        return self._async.instance

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._async.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Join the group and start to pull.

        Raises:
            ClientError: the consumer was started before, or the shared instance has a consumer of this group.
            BrokerError: a broker cannot serve an SQL subscription.
        """
        self._run(self._async.start())

    def stop(self) -> None:
        """Wait for running handlers, store the offsets, leave the group, and close the owned instance.

        A message from `for` that is not followed by a request for the next one is not consumed. It will be
        delivered again.
        """
        self._run(self._async.stop())

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues of this member now, including those of the retry topic."""
        return self._call(lambda: self._async.assignment)

    @property
    def consume_concurrency(self) -> int:
        """Maximum number of handlers that run at the same time."""
        return self._async.consume_concurrency

    def change_concurrency(self, count: int) -> None:
        """Change the number of handlers that run at the same time; running ones finish.

        Raises:
            ConfigError: the number is below 1 or above 1000.
        """
        self._call(self._async.change_concurrency, count)

    def subscribe(
        self,
        topic: str,
        tags: str | None = ALL,
        handler: Handler | None = None,
        *,
        sql: str | None = None,
        body: Any = None,
        undecodable: Undecodable | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Subscribe to a topic; it need not exist yet.

        All members of a group have to subscribe to the same topics with the same expressions.

        Args:
            topic: the topic.
            tags: tag expression, `A || B`; `*` for all messages.
            handler: consumes the messages; without one, `for` yields them.
            sql: SQL92 expression instead of tags.
            body: type of the values that the handler gets instead of messages: a dataclass, `TypedDict`, pydantic
                model, `dict` or any other type for JSON, `str` for text, or a function that takes bytes. The handler
                may also have parameters named `message` (`messages` with lists) and `context`.
            undecodable: treatment of a message whose body cannot be decoded: `"dead_letter"` at once, the default;
                `"retry"`, as for a failed message; or `"skip"`, the default for broadcasting. In all cases the log
                names the message and the reason.
            retry: retry policy for messages that the handler does not consume; by default they are delivered again up
                to `max_reconsume_times`.

        Raises:
            ClientError: the topic or the expression is wrong, or the first handler is added after the start.
            ConfigError: RocketMQ does not support `undecodable` or `retry` here, or bodies cannot be decoded to `body`.
        """
        self._call(
            self._async.subscribe, topic, tags, handler, sql=sql, body=body, undecodable=undecodable, retry=retry
        )

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic and drop its queues; the brokers learn of it with the next heartbeat.

        Its handler still gets messages that were sent back before.
        """
        self._call(self._async.unsubscribe, topic)

    def on(
        self,
        topic: str,
        tags: str | None = ALL,
        *,
        sql: str | None = None,
        body: Any = None,
        undecodable: Undecodable | None = None,
        retry: RetryPolicy | None = None,
    ) -> Callable[[H], H]:
        """Return a decorator that subscribes to a topic with the decorated function, sync or async, as its handler.

        Sync handlers run in threads, `consume_concurrency` of them. See `subscribe` and `Handler`.
        """

        def register(handler: H) -> H:
            self.subscribe(topic, tags, handler, sql=sql, body=body, undecodable=undecodable, retry=retry)
            return handler

        return register

    def suspend(self) -> None:
        """Stop pulling; messages that are already pulled are still consumed."""
        self._call(self._async.suspend)

    def resume(self) -> None:
        """Continue to pull after `suspend`."""
        self._call(self._async.resume)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        try:
            return self._run(self._async.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
