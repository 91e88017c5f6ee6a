"""Attempts to send: which queue, how often, and what is learnt from failures (client.md §5)."""

from __future__ import annotations

import logging
from typing import Any

from tianzhou._hot.headers import SendReplyHeader
from tianzhou.client.cluster.remedies import broker_error
from tianzhou.client.hooks import Hooks, SendContext, begin, check_forbidden, end
from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.latency_faults import LatencyFaults
from tianzhou.client.producer.publish_plan import BATCH, SINGLE, Failed, Outgoing, Plan, Plans, Target
from tianzhou.client.producer.selector import QueueSelector, select_by_hash
from tianzhou.client.retry import RetryPolicy
from tianzhou.client.validation import check_queue
from tianzhou.errors import BrokerError, ClientError, RemotingError, RequestTimeout, TianzhouError
from tianzhou.model import Message, MessageQueue, SendResult, SendStatus
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply

_log = logging.getLogger(__name__)

_new_tuple = tuple.__new__
_STATUSES = {status.value: status for status in SendStatus}


class Attempts:
    """Sends what is ready to be framed.

    Args:
        instance: reaches the brokers.
        group: the producer group, as users know it.
        plans: the queues of each topic.
        retry: how a send is repeated.
        faults: what is known about slow brokers.
        hooks: what the user wants to be called.
        retry_not_stored: repeat also when flush or replication was not confirmed.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        plans: Plans,
        retry: RetryPolicy,
        faults: LatencyFaults,
        hooks: Hooks,
        *,
        retry_not_stored: bool,
    ) -> None:
        self._instance = instance
        self._group = group
        self._plans = plans
        self._retry = retry
        self._faults = faults
        self._hooks = hooks
        self._retry_not_stored = retry_not_stored
        self._remoting = instance.remoting
        self._monotonic = instance.clock.monotonic
        self._next_opaque = instance.remoting.group.opaques.next

    def target(
        self,
        plan: Plan,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: Any,
    ) -> Target | None:
        """Where a message has to go, None when any queue will do.

        Raises:
            ClientError: queue or selector do not fit the message.
        """
        first = next(iter(outgoing.messages), None)
        if queue is None and first is not None and outgoing.code != BATCH:
            queue = choose(plan, first, selector, selector_arg)
        if queue is None:
            return None
        check_queue(queue)
        if first is not None and queue.topic != first.topic:
            raise ClientError(
                f"the message has topic {first.topic} and the queue topic {queue.topic}; they have to agree"
            )
        return plan.targets.get(queue) or self._plans.target(queue, outgoing.topic)

    async def anywhere(
        self, plan: Plan, outgoing: Outgoing, limit_ms: float, failed: Failed | None = None
    ) -> SendResult:
        """Send to the topic's queues in turn, until one attempt ends well or there is no point in another.

        Args:
            plan: the topic's queues.
            outgoing: what is sent.
            limit_ms: limit of all attempts together.
            failed: the first attempt, when it was made already.
        """
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
                result = await self.once(plan.targets[queue], outgoing, left_ms)
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
        self._record(failed.queue, failed.started_s, failed.error)
        if failed.error.refresh_route:
            topic = self._plans.wire_topic(failed.queue.topic)
            self._instance.spawn(self._instance.refresh_route(topic))
        _log.info("an attempt to send to %s failed: %s", failed.queue, failed.error)
        return self._retry.should_retry(failed.error)

    def _record(self, queue: MessageQueue, since_s: float, error: TianzhouError | None = None) -> None:
        if not self._faults.enabled:
            return
        now_s = self._monotonic()
        reachable = True
        if isinstance(error, RemotingError):
            # Without a detector nobody would turn it on again.
            reachable = not self._faults.detecting
        elif isinstance(error, BrokerError):
            reachable = False
        self._faults.record(
            queue.broker_name,
            (now_s - since_s) * 1000,
            now_s * 1000,
            isolate=isinstance(error, (RemotingError, BrokerError)),
            reachable=reachable,
        )

    async def once(self, target: Target, outgoing: Outgoing, timeout_ms: float) -> SendResult:
        """One attempt, with the hooks around it.

        Raises:
            ClientError: a hook forbids it, or the broker has no master.
            BrokerError: the broker refused it.
            RemotingError: there was no answer.
        """
        address = await self.address(target, outgoing.topic)
        if not self._hooks:
            return await self._invoke(target, address, outgoing, timeout_ms)
        context = self._context(target, address, outgoing)
        check_forbidden(self._hooks.forbidden, context)
        afters = begin(self._hooks.send, context)
        try:
            context.result = await self._invoke(target, address, outgoing, timeout_ms)
        except BaseException as error:
            context.error = error
            raise
        finally:
            end(afters, context)
        return context.result

    async def oneway(self, target: Target, outgoing: Outgoing) -> None:
        """Send without waiting for an answer, with the hooks around it.

        Raises:
            ClientError: a hook forbids it, or the broker has no master.
            RemotingError: the broker cannot be reached.
        """
        address = await self.address(target, outgoing.topic)
        context = self._context(target, address, outgoing, oneway=True)
        check_forbidden(self._hooks.forbidden, context)
        afters = begin(self._hooks.send, context)
        try:
            frame = self._frame(target, outgoing, self._next_opaque(), oneway=True)
            await self._remoting.send_frame(address, frame)
        except BaseException as error:
            context.error = error
            raise
        finally:
            end(afters, context)

    async def address(self, target: Target, topic: str) -> str:
        """Where a queue's broker takes messages.

        Args:
            target: the queue.
            topic: its topic as the servers know it.

        Raises:
            ClientError: the broker has no master now.
        """
        return target.address or self._instance.send_address(
            await self._instance.master(target.queue.broker_name, topic)
        )

    def _context(self, target: Target, address: str, outgoing: Outgoing, *, oneway: bool = False) -> SendContext:
        return SendContext(
            self._group,
            outgoing.messages,
            target.queue,
            address,
            outgoing.kind,
            oneway,
            len(outgoing.body),
            outgoing.unique_keys,
        )

    async def _invoke(self, target: Target, address: str, outgoing: Outgoing, timeout_ms: float) -> SendResult:
        opaque = self._next_opaque()
        frame = self._frame(target, outgoing, opaque)
        reply = await self._remoting.invoke_frame(address, opaque, frame, timeout_ms)
        return self.result(reply, target, address, outgoing.unique_keys)

    @staticmethod
    def _frame(target: Target, outgoing: Outgoing, opaque: int, *, oneway: bool = False) -> bytes:
        return target.template.frame(
            opaque,
            outgoing.born_ms,
            outgoing.properties,
            outgoing.body,
            flag=outgoing.flag,
            sys_flag=outgoing.sys_flag,
            code=outgoing.code,
            oneway=oneway,
            reconsume_times=outgoing.reconsume_times,
            max_reconsume_times=outgoing.max_reconsume_times,
        )

    def result(self, reply: Command, target: Target, address: str, unique_keys: str) -> SendResult:
        """What a broker's reply says.

        Raises:
            BrokerError: the message was refused.
        """
        status = _STATUSES.get(reply.code)
        if status is None:
            if reply.code == ResponseCode.GO_AWAY and (connection := self._remoting.connected(address)) is not None:
                connection.close()
            raise broker_error(reply, address)
        header = reply.header
        if type(header) is not SendReplyHeader:
            header = read_reply(SINGLE, reply)
        queue = target.queue
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        # By hand: the call that a named tuple makes of its arguments takes as long as all of the above.
        return _new_tuple(
            SendResult,
            (
                status,
                unique_keys,
                header.msg_id,
                queue,
                header.queue_offset,
                header.transaction_id,
                header.msg_region,
                header.trace_on,
            ),
        )


def choose(plan: Plan, message: Message, selector: QueueSelector | None, selector_arg: Any) -> MessageQueue | None:
    """The queue a selector or the message's sharding key chooses; None without either.

    Raises:
        ClientError: the selector raised, or returned no queue.
    """
    if selector is None:
        if message.sharding_key is None:
            return None
        selector = select_by_hash
    try:
        queue = selector(plan.queues, message, selector_arg)
    except Exception as error:
        raise ClientError(
            f"the queue selector failed for a message of topic {message.topic}: {type(error).__name__}: {error}; it is "
            "called with the list of queues, the message and selector_arg"
        ) from error
    if not isinstance(queue, MessageQueue):
        raise ClientError(f"the queue selector returned {queue!r}; it has to return one of the queues it was given")
    return queue
