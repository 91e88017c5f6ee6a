"""Sends messages (client.md §4 to §6).

The path of one message is kept short: the topic's queues with address and frame template are at hand, a unique
id and the few changing header fields are formatted, and the frame joins all others of this loop turn in one
write. Everything that can go wrong is met off that path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from tianzhou.client.faults import LatencyFaults
from tianzhou.client.hints import broker_error
from tianzhou.client.instance import ClientInstance
from tianzhou.client.outgoing import (
    COMPRESSION_KINDS,
    check_properties_size,
    is_plain,
    message_properties,
    pack_body,
    plain_properties_json,
    properties_json,
    retry_properties,
)
from tianzhou.client.retry import RETRY_ON_OTHER_BROKER, RetryPolicy
from tianzhou.client.selector import QueueSelector, select_by_hash
from tianzhou.client.sending import Failed, Outgoing, Plan, Plans, Target
from tianzhou.client.validation import (
    DEFAULT_PRODUCER_GROUP,
    MAX_MESSAGE_SIZE,
    check_attributes,
    check_batch,
    check_body,
    check_group,
)
from tianzhou.errors import ClientError, ConfigError, RequestTimeout, TianzhouError
from tianzhou.model import Message, MessageExt, MessageQueue, SendResult, SendStatus, names
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from tianzhou.wire.properties import encode_properties

_log = logging.getLogger(__name__)

_STATUSES = {status.value: status for status in SendStatus}
_SINGLE = int(RequestCode.SEND_MESSAGE_V2)
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


class Producer:
    """Sends messages to topics; an async context manager.

    Any number of tasks may send at the same time: what they send in one turn of the loop shares a write.

    Args:
        group: the producer group.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the producer owns one.
        send_msg_timeout_ms: limit of one send with all its attempts.
        send_msg_max_timeout_per_request_ms: limit of one attempt while another one remains; None for none.
        retry_times_when_send_failed: further attempts, on another broker where there is one. A repeated attempt
            whose predecessor was lost on the way back stores the message twice; both have the same unique key.
        retry_another_broker_when_not_store_ok: repeat also when flush or replication was not confirmed.
        retry_response_codes: the answers worth another attempt.
        compress_msg_body_over_howmuch: bodies of so many bytes or more are compressed.
        compress_level: 0 to 9.
        compress_type: `ZLIB`, `LZ4` or `ZSTD`; consumers before RocketMQ 5 know only ZLIB.
        max_message_size: longest body in bytes; brokers have a limit of their own.
        create_topic_key: the topic whose route and permission an unknown topic borrows.
        default_topic_queue_nums: queues asked for when a topic is created by sending to it.
        send_latency_fault_enable: avoid brokers for a while that were slow or failed.
        client_options: further arguments of `ClientInstance`, when the producer owns it.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        send_msg_timeout_ms: int = 3_000,
        send_msg_max_timeout_per_request_ms: int | None = None,
        retry_times_when_send_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        retry_response_codes: Iterable[int] = RETRY_ON_OTHER_BROKER,
        compress_msg_body_over_howmuch: int = 4_096,
        compress_level: int = 5,
        compress_type: str = "ZLIB",
        max_message_size: int = MAX_MESSAGE_SIZE,
        create_topic_key: str = names.AUTO_CREATE_TOPIC,
        default_topic_queue_nums: int = 4,
        send_latency_fault_enable: bool = False,
        **client_options: Any,
    ) -> None:
        check_group(group, default=DEFAULT_PRODUCER_GROUP)
        if compress_type not in COMPRESSION_KINDS:
            raise ConfigError(f"compress_type {compress_type!r} is unknown; use one of {', '.join(COMPRESSION_KINDS)}")
        self._group = group
        self._owns_instance = instance is None
        self._instance = instance or ClientInstance(namesrv_addr, **client_options)
        self._timeout_ms = send_msg_timeout_ms
        self._retry = RetryPolicy(
            retry_times_when_send_failed, frozenset(retry_response_codes), send_msg_max_timeout_per_request_ms
        )
        self._retry_not_stored = retry_another_broker_when_not_store_ok
        self._compress_over = compress_msg_body_over_howmuch
        self._compress_level = compress_level
        self._compress_kind = COMPRESSION_KINDS[compress_type]
        self._max_message_size = max_message_size
        self._faults = LatencyFaults(enabled=send_latency_fault_enable)
        # Without these options the first attempt needs no more than its connection.
        self._straight = not (
            send_latency_fault_enable or retry_another_broker_when_not_store_ok or send_msg_max_timeout_per_request_ms
        )
        self._plans = Plans(self._instance, group, create_topic_key, default_topic_queue_nums)
        self._ready_plans = self._plans.table
        self._remoting = self._instance.remoting
        self._routes = self._instance.routes
        self._now_ms = self._instance.clock.now_ms
        self._monotonic = self._instance.clock.monotonic
        self._next_opaque = self._remoting.group.opaques.next
        self._ids = self._instance.ids
        self._running = False

    @property
    def group(self) -> str:
        """The producer group."""
        return self._group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with."""
        return self._instance

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Get ready to send.

        Raises:
            ClientError: the shared instance has a producer of this group already, or is closed.
        """
        if self._running:
            return
        await self._instance.start()
        self._instance.add_producer(self._group)
        self._running = True

    async def stop(self) -> None:
        """Tell the brokers that this producer is gone, and close what it owns."""
        if not self._running:
            if self._owns_instance:
                await self._instance.close()
            return
        self._running = False
        await self._instance.remove_producer(self._group)
        if self._owns_instance:
            await self._instance.close()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues messages of a topic are sent to.

        Raises:
            ClientError: the topic does not exist and cannot be created by sending.
        """
        return list((await self._plan_of(topic)).queues)

    # --- sending ---------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send a message and return where it is stored.

        Without a queue or selector the topic's queues take turns, and a failed attempt is repeated on another
        broker. With either of them there is one attempt, because another queue would break the order wished for.

        Args:
            message: the message; it is not changed.
            queue: the queue it has to go to.
            selector: chooses the queue, as `tianzhou.client.select_by_hash` does; a message with a
                `sharding_key` is sent by its hash without being told.
            selector_arg: handed to the selector.
            timeout_ms: limit of all attempts together; by default `send_msg_timeout_ms`.

        Raises:
            ClientError: the message, topic or queue cannot be used; nothing was sent.
            BrokerError: a broker refused it.
            RemotingError: no broker answered in time; the message may be stored all the same.
        """
        body = message.body
        if type(body) is not bytes or not body or len(body) > self._max_message_size:
            check_body(body, self._max_message_size)
            body = bytes(body)
        plain = is_plain(message)
        if not plain or message.tags or message.keys:
            check_attributes(message)
        plan = self._ready_plans.get(message.topic)
        if plan is None or plan.version != self._routes.version or not self._running:
            plan = await self._plan_of(message.topic)
        now_ms = self._now_ms()
        unique_key = self._ids.next(now_ms)
        if plain:
            properties = plain_properties_json(unique_key, message)
        else:
            properties = properties_json(message_properties(message, unique_key))
        sys_flag = 0
        if len(body) >= self._compress_over:
            body, sys_flag = pack_body(body, self._compress_over, self._compress_kind, self._compress_level)
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if queue is None and selector is None:
            if message.sharding_key is not None:
                selector = select_by_hash
            else:
                failed: Failed | None = None
                if self._straight:
                    # The path of nearly every message; when it fails, the usual attempts go on from there.
                    target = plan.next_target()
                    try:
                        connection = self._remoting.connected(target.address)
                        if connection is None:
                            connection = await self._remoting.connect(await self._address(target), limit_ms)
                        opaque = self._next_opaque()
                        frame = target.template.single(opaque, now_ms, properties, body, message.flag, sys_flag)
                        return self._result(await connection.invoke_frame(opaque, frame, limit_ms), target, unique_key)
                    except TianzhouError as error:
                        elapsed_s = max(0, self._now_ms() - now_ms) / 1000
                        failed = Failed(error, target.queue, self._monotonic() - elapsed_s)
                outgoing = Outgoing(
                    message.topic, _SINGLE, unique_key, now_ms, message.flag, sys_flag, properties, body
                )
                return await self._send_anywhere(plan, outgoing, limit_ms, failed)
        if queue is None:
            assert selector is not None
            queue = self._select(plan, message, selector, selector_arg)
        outgoing = Outgoing(message.topic, _SINGLE, unique_key, now_ms, message.flag, sys_flag, properties, body)
        return await self._send_once(self._target(plan, message.topic, queue), outgoing, limit_ms)

    async def send_batch(
        self, messages: Iterable[Message], queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> SendResult:
        """Send messages of one topic as one request; they get consecutive offsets of one queue.

        Args:
            messages: the messages; together within `max_message_size`, none delayed.
            queue: the queue they have to go to.
            timeout_ms: limit of all attempts together; by default `send_msg_timeout_ms`.

        Returns:
            One result: ids joined by commas, and the first message's offset.

        Raises:
            ClientError: they cannot travel together, or one of them cannot be sent; nothing was sent.
            BrokerError: a broker refused them.
            RemotingError: no broker answered in time; they may be stored all the same.
        """
        batch = list(messages)
        check_batch(batch, self._max_message_size)
        topic = batch[0].topic
        plan = await self._plan_of(topic)
        now_ms = self._now_ms()
        unique_keys = []
        entries = []
        for message in batch:
            unique_key = self._ids.next(now_ms)
            unique_keys.append(unique_key)
            encoded = encode_properties(message_properties(message, unique_key))
            check_properties_size(len(encoded))
            entries.append((message.flag, message.body, encoded))
        body = encode_batch(entries)
        if len(body) > self._max_message_size:
            raise ClientError(
                f"the batch of {len(batch)} messages has {len(body)} bytes, the limit is {self._max_message_size} "
                "(max_message_size); split it"
            )
        outgoing = Outgoing(
            topic,
            _BATCH,
            ",".join(unique_keys),
            now_ms,
            0,
            0,
            "" if batch[0].wait_store_ok else properties_json({names.WAIT: "false"}),
            body,
        )
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if queue is not None:
            return await self._send_once(self._target(plan, topic, queue), outgoing, limit_ms)
        return await self._send_anywhere(plan, outgoing, limit_ms)

    async def send_oneway(
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
        check_body(message.body, self._max_message_size)
        check_attributes(message)
        plan = await self._plan_of(message.topic)
        now_ms = self._now_ms()
        properties = properties_json(message_properties(message, self._ids.next(now_ms)))
        body, sys_flag = pack_body(bytes(message.body), self._compress_over, self._compress_kind, self._compress_level)
        if queue is None and selector is None and message.sharding_key is not None:
            selector = select_by_hash
        if queue is None:
            queue = (
                plan.next_target().queue if selector is None else self._select(plan, message, selector, selector_arg)
            )
        target = self._target(plan, message.topic, queue)
        address = await self._address(target)
        connection = await self._remoting.connect(address)
        connection.send(
            target.template.frame(
                self._next_opaque(),
                now_ms,
                properties,
                body,
                flag=message.flag,
                sys_flag=sys_flag,
                oneway=True,
            )
        )
        await connection.drain()

    async def resend_for_retry(
        self, message: MessageExt, group: str, *, max_reconsume_times: int, delay_level: int, timeout_ms: float
    ) -> SendResult:
        """Store a message in a group's retry topic as an ordinary one (client.md §13.4).

        Consumers do this when a broker would not take the message back.

        Args:
            message: the message, as delivered.
            group: the consumer group.
            max_reconsume_times: after so many attempts it goes to the dead letters.
            delay_level: when it is delivered again.
            timeout_ms: limit of all attempts together.
        """
        topic = names.retry_topic(group)
        body, sys_flag = pack_body(message.body, self._compress_over, self._compress_kind, self._compress_level)
        outgoing = Outgoing(
            topic,
            _SINGLE,
            message.msg_id,
            self._now_ms(),
            message.flag,
            sys_flag,
            properties_json(retry_properties(message, delay_level)),
            body,
            message.reconsume_times + 1,
            max_reconsume_times,
        )
        return await self._send_anywhere(await self._plan_of(topic), outgoing, timeout_ms)

    # --- attempts --------------------------------------------------------------------------------------------

    async def _send_anywhere(
        self, plan: Plan, outgoing: Outgoing, limit_ms: float, failed: Failed | None = None
    ) -> SendResult:
        started_s = self._monotonic() if failed is None else failed.started_s
        failure: TianzhouError | None = None
        unconfirmed: SendResult | None = None
        avoid: str | None = None
        attempt = 0
        go_on = True
        if failed is not None:
            failure, avoid, attempt = failed.error, failed.queue.broker_name, 1
            go_on = self._note_failure(failed)
        while go_on and attempt <= self._retry.times:
            now_s = self._monotonic()
            left_ms = self._retry.timeout_of(attempt, (now_s - started_s) * 1000, limit_ms)
            if left_ms <= 0:
                break
            queue = plan.turn.choose(plan.queues, avoid, self._faults, now_s * 1000)
            try:
                result = await self._send_once(plan.targets[queue], outgoing, left_ms)
            except TianzhouError as error:
                failure = error
                go_on = self._note_failure(Failed(error, queue, now_s))
            else:
                self._record(queue, now_s)
                if result.status is SendStatus.SEND_OK or not self._retry_not_stored:
                    return result
                unconfirmed = result
            avoid = queue.broker_name
            attempt += 1
        if unconfirmed is not None:
            return unconfirmed
        raise failure or RequestTimeout(
            f"no time was left to send to topic {outgoing.topic}: the limit is {limit_ms} ms"
        )

    def _note_failure(self, failed: Failed) -> bool:
        """Learn from a failed attempt; whether another one is worth while."""
        self._record(failed.queue, failed.started_s, failed=True)
        if failed.error.refresh_route:
            self._instance.spawn(self._instance.refresh_route(failed.queue.topic))
        _log.info("an attempt to send to %s failed: %s", failed.queue, failed.error)
        return self._retry.should_retry(failed.error)

    def _record(self, queue: MessageQueue, since_s: float, *, failed: bool = False) -> None:
        if self._faults.enabled:
            now_s = self._monotonic()
            self._faults.record(
                queue.broker_name, (now_s - since_s) * 1000, now_s * 1000, isolate=failed, reachable=not failed
            )

    async def _send_once(self, target: Target, outgoing: Outgoing, timeout_ms: float) -> SendResult:
        address = target.address or await self._address(target)
        opaque = self._next_opaque()
        frame = target.template.frame(
            opaque,
            outgoing.born_ms,
            outgoing.properties,
            outgoing.body,
            flag=outgoing.flag,
            sys_flag=outgoing.sys_flag,
            code=outgoing.code,
            reconsume_times=outgoing.reconsume_times,
            max_reconsume_times=outgoing.max_reconsume_times,
        )
        reply = await self._remoting.invoke_frame(address, opaque, frame, timeout_ms)
        return self._result(reply, target, outgoing.unique_keys)

    def _result(self, reply: Command, target: Target, unique_keys: str) -> SendResult:
        status = _STATUSES.get(reply.code)
        if status is None:
            raise self._refused(reply, target.address)
        header = reply.header or read_reply(_SINGLE, reply)
        queue = target.queue
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        return SendResult(
            status,
            unique_keys,
            header.msg_id,
            queue,
            header.queue_offset,
            header.transaction_id,
            header.msg_region,
            header.trace_on,
        )

    def _refused(self, reply: Command, address: str) -> TianzhouError:
        if reply.code == ResponseCode.GO_AWAY and (connection := self._remoting.connected(address)) is not None:
            connection.close()
        return broker_error(reply, address)

    # --- queues ----------------------------------------------------------------------------------------------

    async def _plan_of(self, topic: str) -> Plan:
        if not self._running:
            raise ClientError(f"the producer of group {self._group} is not running; use 'async with' or await start()")
        return await self._plans.make(topic)

    def _target(self, plan: Plan, topic: str, queue: MessageQueue) -> Target:
        if queue.topic != topic:
            raise ClientError(f"the message has topic {topic} and the queue topic {queue.topic}; they have to agree")
        return plan.targets.get(queue) or self._plans.target(queue)

    async def _address(self, target: Target) -> str:
        return target.address or await self._instance.master(target.queue.broker_name, target.queue.topic)

    @staticmethod
    def _select(plan: Plan, message: Message, selector: QueueSelector, selector_arg: Any) -> MessageQueue:
        queue = selector(plan.queues, message, selector_arg)
        if not isinstance(queue, MessageQueue):
            raise ClientError(f"the queue selector returned {queue!r}; it has to return one of the queues it was given")
        return queue
