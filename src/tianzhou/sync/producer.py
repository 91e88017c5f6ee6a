# Written by scripts/facade; change what it is written from, then run it again.
"""The blocking producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from tianzhou import client
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ProducerKeywords
from tianzhou.client.producer.outbox.outbox_entry import OutboxStatus
from tianzhou.client.producer.selector import QueueSelector
from tianzhou.model import Message, MessageExt, MessageQueue, SendResult
from tianzhou.sync.async_sends import AsyncSends
from tianzhou.sync.background import Blocking


class Producer(AsyncSends):
    """A producer of messages; a context manager.

    Any number of threads may send at the same time. Their sends in one turn of the event loop share a write. The
    options are those of `tianzhou.client.producer.options.ProducerOptions` and, unless the producer shares an instance,
    of `tianzhou.client.options.ClientOptions`.
    """

    _async: client.Producer

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        Blocking.__init__(self, client.Producer(group, namesrv_addr, instance=instance, **keywords))

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
        """Start the producer.

        Raises:
            ClientError: the shared instance has a producer of this group already, or is closed.
        """
        self._run(self._async.start())

    def stop(self) -> None:
        """Unregister this producer at the brokers, and close the owned instance."""
        self._run(self._async.stop())

    @property
    def outbox(self) -> OutboxStatus | None:
        """Status of the outbox; None without one."""
        return self._call(lambda: self._async.outbox)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic are sent to.

        Raises:
            ClientError: the topic does not exist and cannot be created by sending.
        """
        return self._run(self._async.queues(topic))

    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send a message and return the place where it is stored.

        Without a queue or selector, the topic's queues take turns. A failed attempt is repeated on another broker, at
        most `retry_times_when_send_failed` times. With a queue or selector there is one attempt, because another queue
        would break the requested order. RocketMQ's Java client has a second setting for asynchronous sends
        (`retryTimesWhenSendAsyncFailed`). Here every send is asynchronous and uses this setting, and a repeated attempt
        is encoded again for its queue.

        Args:
            message: the message; it is not changed.
            queue: the queue to send it to.
            selector: chooses the queue, as `tianzhou.client.select_by_hash` does; by default a message with a
                `sharding_key` is sent by the hash of this key.
            selector_arg: argument of the selector.
            timeout_ms: timeout of all attempts together; by default `send_msg_timeout_ms`.

        Raises:
            ClientError: the message, topic or queue cannot be used; nothing was sent.
            BrokerError: a broker rejected the message.
            RemotingError: no broker answered in time; the message may be stored anyway.
            NotDurable: with `durable`, the message is stored, but no broker confirmed in time that it is safe.
        """
        return self._run(self._async.send(message, queue, selector, selector_arg, timeout_ms))

    def send_body(
        self,
        topic: str,
        body: object,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send a value: a dict, a dataclass, a pydantic model or any other value that JSON can represent, or a text.

        The property `content_type` has its content type. For batches, transactions and requests, create the message
        with `tianzhou.client.encode_message`.

        Args:
            topic: the topic to send to.
            body: the value, see `tianzhou.client.encode_message`; bytes are sent unchanged.
            tags: one tag, by which consumers can select messages.
            keys: business keys to find the message by later.
            properties: user properties.
            delay_level: 1 to 18 (1 s … 2 h); 0 delivers at once.
            sharding_key: messages with the same sharding key preserve their order.
            queue: the queue to send it to.
            timeout_ms: timeout of all attempts together; by default `send_msg_timeout_ms`.

        Raises:
            ClientError: the body cannot be encoded, or as in `send`; nothing was sent.
            BrokerError: a broker rejected the message.
            RemotingError: no broker answered in time; the message may be stored anyway.
            NotDurable: as in `send`.
        """
        return self._run(
            self._async.send_body(
                topic,
                body,
                tags=tags,
                keys=keys,
                properties=properties,
                delay_level=delay_level,
                sharding_key=sharding_key,
                queue=queue,
                timeout_ms=timeout_ms,
            )
        )

    @overload
    def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        split: Literal[False] = False,
        max_bytes: int | None = None,
    ) -> SendResult: ...
    @overload
    def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        split: Literal[True],
        max_bytes: int | None = None,
    ) -> list[SendResult]: ...
    @overload
    def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        split: bool,
        max_bytes: int | None = None,
    ) -> SendResult | list[SendResult]: ...

    def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        split: bool = False,
        max_bytes: int | None = None,
    ) -> SendResult | list[SendResult]:
        """Send messages of one topic as one request; they get consecutive offsets of one queue.

        With `split` any number of messages is sent, in several requests one after the other, all to one queue.
        `tianzhou.client.split_batches` divides messages without sending them.

        Args:
            messages: the messages, none of them delayed; without `split` together within `max_message_size`.
            queue: the queue to send them to. By default the topic's queues take turns.
            timeout_ms: timeout of all attempts of one request; by default `send_msg_timeout_ms`.
            split: whether the messages are divided into batches below `max_bytes`.
            max_bytes: with `split`, maximum number of bytes of a batch; by default `max_message_size`. RocketMQ's
                documents recommend 1 MiB.

        Returns:
            One result: ids joined by commas, and the first message's offset. With `split` one result for each message.

        Raises:
            ClientError: the messages cannot be in one batch, or one of them cannot be sent; nothing was sent.
            BatchPartlySent: with `split`, a batch after the first one failed; the error has the results of the batches
                before it.
            BrokerError: a broker rejected the messages.
            RemotingError: no broker answered in time; the messages may be stored anyway.
        """
        return self._run(self._async.send_batch(messages, queue, timeout_ms, split=split, max_bytes=max_bytes))

    def send_oneway(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
    ) -> None:
        """Send a message without an acknowledgement; its loss is not noticed.

        Args:
            message: the message; it is not changed.
            queue: the queue to send it to.
            selector: chooses the queue.
            selector_arg: argument of the selector.

        Raises:
            ClientError: the message, topic or queue cannot be used.
            ConnectFailed: the broker cannot be reached.
        """
        self._run(self._async.send_oneway(message, queue, selector, selector_arg))

    def request(
        self,
        message: Message,
        timeout_ms: float,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
    ) -> MessageExt:
        """Send a message and return the reply of one of its consumers.

        Args:
            message: the request; it is not changed.
            timeout_ms: timeout of the send and the reply together.
            queue: the queue to send it to.
            selector: chooses the queue.
            selector_arg: argument of the selector.

        Raises:
            ReplyTimeout: the request was stored, but no reply arrived in time.
            ClientError: the message, topic or queue cannot be used; nothing was sent.
            BrokerError: a broker rejected the message.
            RemotingError: no broker answered in time.
        """
        return self._run(self._async.request(message, timeout_ms, queue, selector, selector_arg))

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
        """Answer a delivered request; see `tianzhou.client.create_reply_message`.

        The reply goes to the broker that stored the request, which knows the requester. It goes to another broker only
        when that one fails.

        Args:
            request: the delivered message.
            body: the reply's payload.
            tags: the reply's tag.
            keys: the reply's keys.
            properties: user properties of the reply.
            timeout_ms: timeout of all attempts together; by default `send_msg_timeout_ms`.

        Raises:
            ReplyError: the message is no request, so no client waits for a reply.
            BrokerError: the requester has disconnected, or does not answer.
            RemotingError: no broker answered in time.
        """
        return self._run(
            self._async.reply(request, body, tags=tags, keys=keys, properties=properties, timeout_ms=timeout_ms)
        )
