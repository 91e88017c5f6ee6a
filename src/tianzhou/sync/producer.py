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
    """Sends messages to topics; a context manager.

    Any number of threads may send at the same time: what they send in one turn of the loop shares a write. Its options
    are those of `tianzhou.client.producer.options.ProducerOptions` and, unless it shares an instance, of
    `tianzhou.client.options.ClientOptions`.
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
        """Get ready to send.

        Raises:
            ClientError: the shared instance has a producer of this group already, or is closed.
        """
        self._run(self._async.start())

    def stop(self) -> None:
        """Tell the brokers that this producer is gone, and close what it owns."""
        self._run(self._async.stop())

    @property
    def outbox(self) -> OutboxStatus | None:
        """Status of the outbox; None without one."""
        return self._call(lambda: self._async.outbox)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues messages of a topic are sent to.

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
        """Send a message and return where it is stored.

        Without a queue or selector the topic's queues take turns, and a failed attempt is repeated on another
        broker, `retry_times_when_send_failed` times at most. With either of them there is one attempt, because another
        queue would break the order wished for. There is no second setting for asynchronous sends as in RocketMQ's
        Java client (`retryTimesWhenSendAsyncFailed`): every send here is asynchronous, keeps to this one, and a
        repeated attempt is framed again for the queue it goes to.

        Args:
            message: the message; it is not changed.
            queue: the queue it has to go to.
            selector: chooses the queue, as `tianzhou.client.select_by_hash` does; a message with a
                `sharding_key` is sent by its hash by default.
            selector_arg: handed to the selector.
            timeout_ms: limit of all attempts together; by default `send_msg_timeout_ms`.

        Raises:
            ClientError: the message, topic or queue cannot be used; nothing was sent.
            BrokerError: a broker refused it.
            RemotingError: no broker answered in time; the message may be stored all the same.
            NotDurable: with `durable`, it is stored, but nobody confirmed in time that it is safe.
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
        """Send a value: a dict, a dataclass, a pydantic model or anything else that becomes JSON, or a text.

        Its content type goes with it as the property `content_type`. For batches, transactions and requests make the
        message by `tianzhou.client.encode_message`.

        Args:
            topic: where it goes.
            body: the value, see `tianzhou.client.encode_message`; bytes are sent as they are.
            tags: one tag, by which consumers can select.
            keys: business keys to find it by later.
            properties: user properties.
            delay_level: 1 to 18 (1 s … 2 h); 0 delivers at once.
            sharding_key: messages with the same one keep their order.
            queue: the queue it has to go to.
            timeout_ms: limit of all attempts together; by default `send_msg_timeout_ms`.

        Raises:
            ClientError: the body cannot be encoded, or as of `send`; nothing was sent.
            BrokerError: a broker refused it.
            RemotingError: no broker answered in time; the message may be stored all the same.
            NotDurable: as of `send`.
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

        With `split` any number of messages are sent, as several requests one after the other, all to one queue.
        `tianzhou.client.split_batches` divides messages without sending them.

        Args:
            messages: the messages, none of them delayed; without `split` together within `max_message_size`.
            queue: the queue they have to go to. By default the topic's queues take turns.
            timeout_ms: limit of all attempts of one request; by default `send_msg_timeout_ms`.
            split: whether the messages are divided into batches below `max_bytes`.
            max_bytes: with `split`, maximum number of bytes of a batch; by default `max_message_size`. RocketMQ's
                documents recommend 1 MiB.

        Returns:
            One result: ids joined by commas, and the first message's offset. With `split` one result for each message.

        Raises:
            ClientError: they cannot travel together, or one of them cannot be sent; nothing was sent.
            BatchPartlySent: with `split`, a batch after the first one failed; the error has the results of the batches
                before it.
            BrokerError: a broker refused them.
            RemotingError: no broker answered in time; they may be stored all the same.
        """
        return self._run(self._async.send_batch(messages, queue, timeout_ms, split=split, max_bytes=max_bytes))

    def send_oneway(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
    ) -> None:
        """Send a message without waiting for, or ever hearing of, its fate.

        Args:
            message: the message; it is not changed.
            queue: the queue it has to go to.
            selector: chooses the queue.
            selector_arg: handed to the selector.

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
        """Send a message and return the reply that one of its consumers sends.

        Args:
            message: the request; it is not changed.
            timeout_ms: for sending and waiting together.
            queue: the queue it has to go to.
            selector: chooses the queue.
            selector_arg: handed to the selector.

        Raises:
            ReplyTimeout: the request was stored, but no reply came in time.
            ClientError: the message, topic or queue cannot be used; nothing was sent.
            BrokerError: a broker refused it.
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
        """Answer a request that was delivered; see `tianzhou.client.create_reply_message`.

        The reply goes through the broker that stored the request, which knows who waits, and through another only
        when that one fails.

        Args:
            request: the delivered message.
            body: the reply's payload.
            tags: the reply's tag.
            keys: the reply's keys.
            properties: user properties of the reply.
            timeout_ms: limit of all attempts together; by default `send_msg_timeout_ms`.

        Raises:
            ReplyError: nobody waits for a reply to this message.
            BrokerError: the requester is gone, or does not answer.
            RemotingError: no broker answered in time.
        """
        return self._run(
            self._async.reply(request, body, tags=tags, keys=keys, properties=properties, timeout_ms=timeout_ms)
        )
