"""The layer that accepts only SEND_OK as an acknowledgement, and retries until the timeout (client.md §5).

A status other than SEND_OK means that the message is stored, but may not survive the next failure. A retry may store
it once more, with the same unique key: the price of zero loss is duplicates.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tianzhou.client.producer.publish_plan import PublishPlan, PublishPlans
from tianzhou.client.producer.send_failures import FailureKind, failure_kind, is_missing_topic
from tianzhou.client.producer.send_request import Layer, SendRequest
from tianzhou.client.retry import RETRY_ON_OTHER_BROKER, SendRetries
from tianzhou.errors import BrokerError, ClientError, NotDurable, TianzhouError
from tianzhou.model import SendResult, SendStatus
from tianzhou.supervision import start_owned

_log = logging.getLogger(__name__)

ROUND_MS: Final = 6_000
"""Maximum ms of one round of attempts. It is longer than brokers wait for their disk (`syncFlushTimeout`, 5 s) and for
their slaves (`slaveTimeout`, 3 s), so that a round ends with their status."""
LOOK_EVERY_S: Final = 1.0
"""Seconds between two refreshes of the topic's route while a round has no answer. A hanging master sends none, and
another broker may replace it long before the end of the round."""
FIRST_PAUSE_MS: Final = 250
LONGEST_PAUSE_MS: Final = 4_000
ADVICE: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: (
        "the broker's disk did not have it within syncFlushTimeout; look at that disk, or raise syncFlushTimeout"
    ),
    SendStatus.SLAVE_NOT_AVAILABLE: (
        "no slave of the broker is connected, or near enough (haMaxGapNotInSync); start its slave, or see what keeps it"
        " away: `mqadmin haStatus`"
    ),
    SendStatus.FLUSH_SLAVE_TIMEOUT: (
        "the broker's slaves did not have it within slaveTimeout; look at their disks and network, or raise"
        " slaveTimeout"
    ),
}
"""Meaning of each status, and its remedy."""


class OtherMasterError(Exception):
    """Another broker has become master while a round had no answer."""


def pause_ms(rounds: int) -> int:
    """Return the ms to wait after this number of failed rounds."""
    return int(min(FIRST_PAUSE_MS * 2.0 ** max(rounds - 1, 0), LONGEST_PAUSE_MS))


def not_durable(result: SendResult, rounds: int, limit_ms: float) -> NotDurable:
    """Return the error for a message that is stored, but not confirmed to be safe."""
    status = result.status
    return NotDurable(
        f"message {result.msg_id} is stored in {result.queue} at offset {result.queue_offset}, but {status.name}: "
        f"{ADVICE.get(status, 'the broker does not promise that it is safe')}; given up after {rounds} "
        f"{'round' if rounds == 1 else 'rounds'} within {limit_ms:g} ms (durable_timeout_ms)",
        status=status.name,
        msg_id=result.msg_id,
    )


def while_master(send: Layer, plans: PublishPlans, refresh: Callable[[str], Awaitable[object]]) -> Layer:
    """Return a layer that sends, and raises `OtherMasterError` when another broker becomes master before an answer.

    Args:
        send: the layer below.
        plans: plans of topics that were sent to before.
        refresh: refreshes the route of a topic, by the servers' name.
    """

    async def send_to_masters(request: SendRequest) -> SendResult:
        loop, topic = asyncio.get_running_loop(), request.prepared.topic
        before, looking = plans.table.get(topic), None

        async def look() -> None:
            known = _masters(before)
            while True:
                await _quietly(refresh(topic), 2 * LOOK_EVERY_S)
                with suppress(TianzhouError):  # a topic may have no master for a moment
                    found = _masters(await plans.make(topic))
                    if known and found != known:
                        limit.reschedule(loop.time())
                        return
                    known = found
                await asyncio.sleep(LOOK_EVERY_S)

        def begin_to_look() -> None:
            nonlocal looking
            looking = start_owned(look(), "producer")

        timer = loop.call_later(LOOK_EVERY_S, begin_to_look)
        try:
            async with asyncio.timeout(None) as limit:
                return await send(request)
        except TimeoutError:
            if limit.expired():
                raise OtherMasterError from None
            raise
        finally:
            timer.cancel()
            if looking is not None:
                looking.cancel()

    return send_to_masters


def until_durable(
    send: Layer,
    policy: SendRetries,
    plans: PublishPlans,
    refresh: Callable[[str], Awaitable[object]],
    monotonic: Callable[[], float],
    round_ms: float = ROUND_MS,
) -> Layer:
    """Return a layer that sends in rounds until the broker confirms that the message is safe, or the timeout.

    Args:
        send: the layer below; one call is a round of attempts on as many brokers as its own rules allow.
        policy: errors that are worth another round.
        plans: plans of topics that were sent to before; such a topic without a master will get one.
        refresh: refreshes the route of a topic, by the servers' name.
        monotonic: returns the seconds of a monotonic clock.
        round_ms: maximum ms of a round.
    """

    def worth_while(error: TianzhouError, topic: str) -> bool:
        if isinstance(error, BrokerError) and error.code in policy.codes - RETRY_ON_OTHER_BROKER:
            return True
        # A topic that was sent to before has no route while all its brokers are down.
        return failure_kind(error) is not FailureKind.PERMANENT or (is_missing_topic(error) and topic in plans.table)

    send_to_masters = while_master(send, plans, refresh)

    async def send_until_durable(request: SendRequest) -> SendResult:
        prepared, limit_ms = request.prepared, request.timeout_ms
        if not all(message.wait_store_ok for message in prepared.messages):
            raise ClientError(
                "wait_store_ok=False asks for an acknowledgement before the message is safe, durable=True for none "
                "before; send it with another producer"
            )
        end_s = monotonic() + limit_ms / 1000
        rounds, left_ms = 0, limit_ms
        unconfirmed: SendResult | None = None
        while True:
            rounds += 1
            failure: TianzhouError | None = None
            try:
                result = await send_to_masters(request._replace(timeout_ms=min(left_ms, round_ms)))
            except OtherMasterError:
                left_ms = (end_s - monotonic()) * 1000
                continue
            except TianzhouError as error:
                if not worth_while(error, prepared.topic):
                    raise
                failure = error
            else:
                if result.status is SendStatus.SEND_OK:
                    return result
                unconfirmed = result
            wait_s = pause_ms(rounds) / 1000
            if monotonic() + wait_s >= end_s:
                if unconfirmed is not None:
                    raise not_durable(unconfirmed, rounds, limit_ms) from failure
                assert failure is not None
                raise failure
            _log.info("a message to topic %s is not safe yet, round %d: %s", prepared.topic, rounds, failure or result)
            await asyncio.sleep(wait_s)
            await _quietly(refresh(prepared.topic), end_s - monotonic())
            left_ms = (end_s - monotonic()) * 1000

    return send_until_durable


def _masters(plan: PublishPlan | None) -> frozenset[str]:
    """Return the addresses of the brokers that accept a topic's messages."""
    return frozenset() if plan is None else frozenset(target.address for target in plan.targets.values())


async def refuse_oneway(request: SendRequest) -> None:
    """Reject a one-way send.

    Raises:
        ClientError: always, because no broker acknowledges one-way sends.
    """
    raise ClientError(
        f"send_oneway to topic {request.prepared.topic} is never acknowledged, and durable=True wants every message to "
        "be; use send, or another producer"
    )


async def _quietly(refreshing: Awaitable[object], limit_s: float) -> None:
    # The old route does no harm. The next round raises the error of the broker.
    try:
        async with asyncio.timeout(max(limit_s / 2, 0.01)):
            await refreshing
    except (TianzhouError, TimeoutError) as error:
        _log.debug("no new route: %s", error)
