"""The layer that chooses the queue, retries on another one after a failure, and learns from failures (client.md §5)."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.answer_times import AnswerTimes
from tianzhou.client.producer.latency_faults import LatencyFaults
from tianzhou.client.producer.options import BY_LATENCY, ProducerOptions
from tianzhou.client.producer.publish_plan import PublishPlan, PublishPlans, PublishTarget
from tianzhou.client.producer.selector import choose_queue
from tianzhou.client.producer.send_request import BATCH, SendRequest
from tianzhou.client.producer.transport import AnyTransport
from tianzhou.client.retry import SendRetries
from tianzhou.client.validation import check_queue
from tianzhou.errors import BrokerError, ClientError, RemotingError, RequestTimeout, TianzhouError
from tianzhou.model import MessageQueue, SendResult, SendStatus
from tianzhou.wire.codes import ResponseCode

_LOOK_EVERY_S: Final = 1.0
"""Minimum seconds between two refreshes of a topic's route after rejections and timeouts, which may last long."""

_log = logging.getLogger(__name__)


class FailedAttempt(NamedTuple):
    """A failed first attempt, and the plan of its queue."""

    plan: PublishPlan
    queue: MessageQueue
    started_s: float
    error: TianzhouError


class Delivery:
    """The layer that sends once to a given queue, or to the topic's queues in turn, with retries.

    Args:
        instance: source of time and of routes, which are refreshed after failures.
        options: they have the rules for retries.
        plans: the queues of each topic.
        faults: known faults of brokers.
        transport: makes one attempt.
    """

    def __init__(
        self,
        instance: ClientInstance,
        options: ProducerOptions,
        plans: PublishPlans,
        faults: LatencyFaults,
        transport: AnyTransport,
    ) -> None:
        self._instance = instance
        self._plans = plans
        self._faults = faults
        self._times = AnswerTimes() if options.queue_selector == BY_LATENCY else None
        self._transport = transport
        self._retry = SendRetries(
            options.retry_times_when_send_failed,
            frozenset(options.retry_response_codes),
            options.send_msg_max_timeout_per_request_ms,
        )
        self._retry_not_stored = options.retry_another_broker_when_not_store_ok or options.durable
        # A further attempt at the same broker would store one more copy there.
        self._only_elsewhere = options.durable
        self._monotonic = instance.clock.monotonic
        self._looked_s: dict[str, float] = {}

    async def send(self, request: SendRequest, failed: FailedAttempt | None = None) -> SendResult:
        """Send until an attempt succeeds or a retry is useless; to a given queue there is only one attempt.

        Args:
            request: the send.
            failed: the first attempt, when it was already made.

        Raises:
            ClientError: queue or selector do not fit the message, or nothing can be sent now.
            BrokerError: the last broker rejected the message.
            RemotingError: the last broker did not answer.
        """
        prepared = request.prepared
        failure: TianzhouError | None = None
        avoid: str | None = None
        attempt, worth_while = 0, True
        if failed is None:
            plan = await self._plans.make(prepared.topic)
            target = self._wanted(plan, request)
            if target is not None:
                try:
                    return await self._transport.send(target, prepared, request.timeout_ms)
                except TianzhouError as error:
                    self._look_for_route(prepared.topic, error)
                    raise
            started_s = self._monotonic()
        else:
            plan, queue, started_s, failure = failed
            avoid, attempt = queue.broker_name, 1
            worth_while = self._learn(queue, started_s, failure)
        unconfirmed: SendResult | None = None
        while worth_while and attempt <= self._retry.times:
            now_s = self._monotonic()
            left_ms = self._retry.timeout_of(attempt, (now_s - started_s) * 1000, request.timeout_ms)
            if left_ms <= 0:
                break
            queue = plan.turn.choose(plan.queues, avoid, self._faults, now_s * 1000, self._times)
            try:
                result = await self._transport.send(plan.targets[queue], prepared, left_ms)
            except TianzhouError as error:
                failure = error
                worth_while = self._learn(queue, now_s, error)
            else:
                self._record(queue, now_s)
                if result.status is SendStatus.SEND_OK or not self._retry_not_stored:
                    return result
                unconfirmed = result
                if self._only_elsewhere and all(other.broker_name == queue.broker_name for other in plan.queues):
                    return result
            avoid = queue.broker_name
            attempt += 1
        if unconfirmed is not None:
            return unconfirmed
        raise failure or RequestTimeout(
            f"no time was left to send to topic {prepared.topic}: the limit is {request.timeout_ms} ms"
        )

    async def send_oneway(self, request: SendRequest) -> None:
        """Send once, without waiting for an answer.

        Raises:
            ClientError: queue or selector do not fit the message, or nothing can be sent now.
            RemotingError: the broker cannot be reached.
        """
        plan = await self._plans.make(request.prepared.topic)
        target = self._wanted(plan, request)
        if target is None:
            target = plan.next_target() if self._times is None else self._fastest(plan, self._times)
        await self._transport.send_oneway(target, request.prepared)

    def _fastest(self, plan: PublishPlan, times: AnswerTimes) -> PublishTarget:
        """Return a target at the broker with the lowest answer time."""
        return plan.targets[plan.turn.choose(plan.queues, None, self._faults, self._monotonic() * 1000, times)]

    def _wanted(self, plan: PublishPlan, request: SendRequest) -> PublishTarget | None:
        """Return the target that a message has to be sent to; None when any queue will do."""
        prepared, queue = request.prepared, request.queue
        first = next(iter(prepared.messages), None)
        if queue is None and first is not None and (prepared.code != BATCH or request.selector is not None):
            queue = choose_queue(plan.queues, first, request.selector, request.selector_arg)
        if queue is None:
            return None
        check_queue(queue)
        if first is not None and queue.topic != first.topic:
            raise ClientError(
                f"the message has topic {first.topic} and the queue topic {queue.topic}; they have to agree"
            )
        return plan.targets.get(queue) or self._plans.target(queue, prepared.topic)

    def _learn(self, queue: MessageQueue, started_s: float, error: TianzhouError) -> bool:
        """Record a failed attempt, and return whether to retry."""
        self._record(queue, started_s, error)
        self._look_for_route(self._plans.wire_topic(queue.topic), error)
        _log.info("an attempt to send to %s failed: %s", queue, error)
        return self._retry.should_retry(error)

    def _look_for_route(self, wire_topic: str, error: TianzhouError) -> None:
        """Refresh the topic's route when another broker may accept messages now."""
        if not error.refresh_route:
            # The master hangs, or is no longer master. A full disk has the same answer, and may stay full for hours.
            is_refusal = isinstance(error, BrokerError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE
            now_s = self._monotonic()
            if not (is_refusal or isinstance(error, RequestTimeout)):
                return
            if now_s - self._looked_s.get(wire_topic, -_LOOK_EVERY_S) < _LOOK_EVERY_S:
                return
            self._looked_s[wire_topic] = now_s
        self._instance.spawn(self._instance.refresh_route(wire_topic))

    def _record(self, queue: MessageQueue, started_s: float, error: TianzhouError | None = None) -> None:
        now_s = self._monotonic()
        if self._times is not None:
            latency_ms = (now_s - started_s) * 1000
            self._times.record(queue.broker_name, latency_ms, now_s * 1000, failed=error is not None)
        if not self._faults.enabled:
            return
        reachable = True
        if isinstance(error, RemotingError):
            # Only a detector marks a broker as reachable again.
            reachable = not self._faults.detecting
        elif isinstance(error, BrokerError):
            reachable = False
        self._faults.record(
            queue.broker_name,
            (now_s - started_s) * 1000,
            now_s * 1000,
            isolate=isinstance(error, (RemotingError, BrokerError)),
            reachable=reachable,
        )
