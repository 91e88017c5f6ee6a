"""The producer: sends messages (client.md §4 to §7).

The path of one message is short. The queues of its topic have addresses and frame templates already. The producer
formats a unique id and a few header fields, and writes the frame together with all others of this turn of the event
loop. Failures and all further options are handled outside this path.
"""

from __future__ import annotations

import asyncio
import uuid
from asyncio import CancelledError
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, overload

from tianzhou._hot import Sent
from tianzhou._hot.client_sends import unique_key_json
from tianzhou.client.bodies import encode_message
from tianzhou.client.cluster.requests import create_reply_message
from tianzhou.client.producer.batch_splitting import results_of_messages
from tianzhou.client.producer.delivery import FailedAttempt
from tianzhou.client.producer.producer_base import BaseProducer
from tianzhou.client.producer.selector import QueueSelector, choose_queue
from tianzhou.client.producer.send_request import SINGLE, PreparedMessage, SendRequest
from tianzhou.client.validation import check_is_message
from tianzhou.errors import BatchPartlySent, ClientError, ReplyTimeout, TianzhouError
from tianzhou.model import Message, MessageExt, MessageQueue, SendResult, names


class Producer(BaseProducer):
    """A producer of messages; an async context manager.

    Any number of tasks may send at the same time. Their sends in one turn of the event loop share a write. The
    options are those of `tianzhou.client.producer.options.ProducerOptions` and, unless the producer shares an instance,
    of `tianzhou.client.options.ClientOptions`.
    """

    # --- sending ---------------------------------------------------------------------------------------------

    async def send(
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
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if self._is_bare and queue is None and selector is None:
            sent = self._begin(message, limit_ms)
            if sent is not None:
                # The path of nearly every message. When it fails, `Delivery` continues from there.
                try:
                    reply = await sent.waiter
                    if type(reply) is SendResult:
                        return reply
                    return self._transport.result(reply, sent.target, sent.unique_key)
                except CancelledError:
                    sent.connection.forget(sent.opaque)
                    raise
                except TianzhouError as error:
                    failure = error
                return await self._go_on(sent, limit_ms, failure)
        check_is_message(message)
        batching = self._stack.batching
        # With an outbox, messages with an order do not wait for a batch: two batches of one queue, or a batch and a
        # message that is too large for it, could overtake each other.
        is_ordered = queue is not None or selector is not None or message.sharding_key is not None
        may_wait = not (is_ordered and self._stack.outbox is not None)
        if batching is not None and timeout_ms is None and may_wait and batching.takes(message):
            if queue is None and (message.sharding_key is not None or selector is not None):
                queue = choose_queue(await self.queues(message.topic), message, selector, selector_arg)
            self._check_running()
            return await batching.add(message, queue)
        prepared = self._builder.single(message)
        return await self._stack.send(SendRequest(prepared, limit_ms, queue, selector, selector_arg))

    async def _go_on(self, sent: Sent, limit_ms: float, error: TianzhouError) -> SendResult:
        """Retry a message whose first attempt failed."""
        elapsed_s = max(0, self._now_ms() - sent.born_ms) / 1000
        failed = FailedAttempt(sent.plan, sent.target.queue, self._monotonic() - elapsed_s, error)
        prepared = PreparedMessage(
            sent.target.queue.topic,
            SINGLE,
            sent.unique_key,
            sent.born_ms,
            sent.flag,
            sent.sys_flag,
            sent.properties or unique_key_json(sent.unique_key),
            sent.body,
        )
        return await self._stack.delivery.send(SendRequest(prepared, limit_ms), failed)

    async def send_body(
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
        message = encode_message(
            topic,
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            delay_level=delay_level,
            sharding_key=sharding_key,
        )
        return await self.send(message, queue, timeout_ms=timeout_ms)

    @overload
    async def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        split: Literal[False] = False,
        max_bytes: int | None = None,
    ) -> SendResult: ...

    @overload
    async def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        split: Literal[True],
        max_bytes: int | None = None,
    ) -> list[SendResult]: ...

    @overload
    async def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        split: bool,
        max_bytes: int | None = None,
    ) -> SendResult | list[SendResult]: ...

    async def send_batch(
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
        if isinstance(messages, Message):
            raise ClientError("send_batch takes several messages and got one; send it with send, or give a list of it")
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if split:
            return await self._send_batches(self._builder.batches(list(messages), max_bytes), queue, limit_ms)
        if max_bytes is not None:
            raise ClientError(
                f"max_bytes={max_bytes} has an effect with split=True only; add split=True, or leave it out"
            )
        prepared = self._builder.batch(list(messages))
        return await self._stack.send(SendRequest(prepared, limit_ms, queue))

    async def _send_batches(
        self, batches: Sequence[PreparedMessage], queue: MessageQueue | None, limit_ms: float
    ) -> list[SendResult]:
        results: list[SendResult] = []
        for number, prepared in enumerate(batches):
            try:
                result = await self._stack.send(SendRequest(prepared, limit_ms, queue))
            except TianzhouError as error:
                if not number:
                    raise
                raise BatchPartlySent(
                    f"batch {number + 1} of {len(batches)} to topic {prepared.topic} failed, and the {len(results)} "
                    f"messages of the batches before it are sent; send the others again: {error}",
                    results=results,
                ) from error
            results += results_of_messages(result, len(prepared.messages))
            if queue is None and result.queue.broker_name:
                queue = result.queue  # the order of all messages requires one queue
        return results

    async def send_oneway(
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
        prepared = self._builder.single(message)
        await self._stack.send_oneway(SendRequest(prepared, self._timeout_ms, queue, selector, selector_arg))

    async def resend_for_retry(
        self, message: MessageExt, group: str, *, max_reconsume_times: int, delay_level: int, timeout_ms: float
    ) -> SendResult:
        """Store a message in a group's retry topic as a new message (client.md §13.4).

        Consumers do this when a broker does not accept a message that is sent back.

        Args:
            message: the message, as delivered.
            group: the consumer group.
            max_reconsume_times: number of attempts after which it becomes a dead letter.
            delay_level: delay level of its next delivery.
            timeout_ms: timeout of all attempts together.
        """
        prepared = self._builder.retried(
            message, group, max_reconsume_times=max_reconsume_times, delay_level=delay_level
        )
        return await self._stack.send_without_outbox(SendRequest(prepared, timeout_ms))

    # --- request and reply -----------------------------------------------------------------------------------

    async def request(
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
        started_s = self._monotonic()
        correlation_id = str(uuid.UUID(int=self._instance.rng.getrandbits(128), version=4))
        prepared = self._builder.single(
            message,
            {
                names.CORRELATION_ID: correlation_id,
                names.REPLY_TO_CLIENT: self._instance.client_id,
                names.TTL: str(int(timeout_ms)),
            },
        )
        plan = await self._plans.make(prepared.topic)
        # Any broker of the cluster may push the reply, so all of them have to know this client.
        for cluster in {broker.cluster for broker in plan.route.broker_datas if broker.cluster}:
            await self._instance.route(names.reply_topic(cluster))
        await self._instance.heartbeats.all(strangers_only=True)
        waiter = self._instance.replies.expect(correlation_id)
        try:
            await self._stack.send_without_outbox(SendRequest(prepared, timeout_ms, queue, selector, selector_arg))
            left_s = timeout_ms / 1000 - (self._monotonic() - started_s)
            async with asyncio.timeout(max(left_s, 0)):
                return await waiter
        except TimeoutError:
            raise ReplyTimeout(
                f"no reply within {timeout_ms:.0f} ms to request {prepared.unique_keys} of topic {message.topic}; "
                "is there a consumer that replies?"
            ) from None
        finally:
            self._instance.replies.forget(correlation_id)

    async def reply(
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
        message = create_reply_message(request, body, tags=tags, keys=keys, properties=properties)
        prepared = self._builder.single(message)
        plan = await self._plans.make(prepared.topic)
        near = next((queue for queue in plan.queues if queue.broker_name == request.broker_name), None)
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if near is None:
            return await self._stack.delivery.send(SendRequest(prepared, limit_ms))
        started_s = self._monotonic()
        try:
            return await self._stack.attempt.send(plan.targets[near], prepared, limit_ms)
        except TianzhouError as error:
            if {queue.broker_name for queue in plan.queues} == {near.broker_name}:
                raise
            failed = FailedAttempt(plan, near, started_s, error)
        return await self._stack.delivery.send(SendRequest(prepared, limit_ms), failed)
