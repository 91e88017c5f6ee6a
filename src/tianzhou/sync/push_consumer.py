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

    Give it a handler per topic with `on`, or subscribe and iterate. Iterating, a message counts as consumed when
    the next one is requested, or when the `with` block ends without an error; an error that leaves the block
    sends the message back, to be delivered again later.

    With `orderly` the messages of each queue are consumed one after the other, in their order, by whichever member
    has locked the queue; different queues are consumed side by side. A message that is not consumed is not sent back
    but delivered again after a moment, and those behind it wait. Send with a `sharding_key` to have related messages
    in one queue.

    Sync handlers run in threads of their own, so they may block and may use other objects of `tianzhou.sync`.

    Args:
        group: the consumer group.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        keywords: see `tianzhou.client.consumer.push.options.PushOptions` and, when the consumer owns its instance,
            `tianzhou.client.options.ClientOptions`.

    Raises:
        ConfigError: there is no such option, or one has a value it cannot have.
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
        """The client instance it works with; it belongs to the background loop."""
        return self._async.instance

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._async.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Join the group and begin to pull.

        Raises:
            ClientError: it was started before, or the shared instance has a consumer of this group.
            BrokerError: a broker cannot serve an SQL subscription.
        """
        self._run(self._async.start())

    def stop(self) -> None:
        """Let running handlers finish, store the offsets, leave the group, close what it owns.

        A message given out by `for` and not followed by a request for the next one is not consumed: it will
        be delivered again.
        """
        self._run(self._async.stop())

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the retry topic included."""
        return self._call(lambda: self._async.assignment)

    @property
    def consume_concurrency(self) -> int:
        """How many handlers run at the same time."""
        return self._async.consume_concurrency

    def change_concurrency(self, count: int) -> None:
        """Change how many handlers run at the same time; those that run now are let finish.

        Raises:
            ConfigError: it is below 1 or above 1000.
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
            handler: consumes the messages; without one they come to `for`.
            sql: SQL92 expression instead of tags.
            body: has the handler get values in the place of messages: of JSON by a dataclass, `TypedDict`, pydantic
                model, `dict` or any other type, of text by `str`, or by a function of bytes. It may name `message`
                (`messages` with lists) and `context` besides.
            undecodable: what comes of a message whose body has no such value: `"dead_letter"`, at once, by default;
                `"retry"`, as of one that failed; or `"skip"`, which is the default when broadcasting. In any case the
                log says which it is, and why.
            retry: what comes of messages that the handler does not consume; by default they are delivered again as
                `max_reconsume_times` says.

        Raises:
            ClientError: the topic or the expression is wrong, or a first handler comes after the start.
            ConfigError: RocketMQ cannot do what `undecodable` or `retry` ask for, or nothing can be decoded to `body`.
        """
        self._call(
            self._async.subscribe, topic, tags, handler, sql=sql, body=body, undecodable=undecodable, retry=retry
        )

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic's queues; the brokers learn of it with the next heartbeat.

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
        """Decorator: subscribe to a topic with the decorated function, sync or async, as its handler.

        Sync handlers run in threads, `consume_concurrency` of them. See `subscribe` and `Handler`.
        """

        def register(handler: H) -> H:
            self.subscribe(topic, tags, handler, sql=sql, body=body, undecodable=undecodable, retry=retry)
            return handler

        return register

    def suspend(self) -> None:
        """Stop pulling; what was pulled already is still consumed."""
        self._call(self._async.suspend)

    def resume(self) -> None:
        """Pull again."""
        self._call(self._async.resume)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        try:
            return self._run(self._async.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
