"""The layer that stores messages in the outbox after a temporary failure, and while other messages wait there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

from tianzhou.client.hooks import MessageKind
from tianzhou.client.producer.message_builder import MessageBuilder
from tianzhou.client.producer.ordered_sends import OrderedSends, is_ordered, line_names, wanted_queue
from tianzhou.client.producer.publish_plan import PublishPlans
from tianzhou.client.producer.selector import choose_queue
from tianzhou.client.producer.send_request import REPLY, SendRequest
from tianzhou.client.validation import check_sendable
from tianzhou.errors import ClientError, RequestTimeout, TianzhouError
from tianzhou.model import MessageQueue, SendResult, SendStatus

if TYPE_CHECKING:
    from tianzhou.client.producer.outbox.outbox import Outbox

T = TypeVar("T")


def with_outbox(
    send: Callable[[SendRequest], Awaitable[T]],
    outbox: Outbox,
    builder: MessageBuilder,
    plans: PublishPlans,
    sends: OrderedSends,
    monotonic: Callable[[], float],
) -> Callable[[SendRequest], Awaitable[T | SendResult]]:
    """Return a layer that sends messages, or stores them in an outbox; while others wait there, it stores at once.

    Sends of one queue or one sharding key run one after the other. Their wait counts to their timeout.

    Args:
        send: the layer below.
        outbox: stores messages that no broker accepts now.
        builder: creates outbox entries.
        plans: queues that a selector can choose from when no broker answers.
        sends: the lines of this producer's sends.
        monotonic: returns the seconds of a monotonic clock.
    """

    async def current_queue(request: SendRequest) -> MessageQueue | None:
        plan = plans.table.get(request.prepared.topic)
        if plan is not None and not outbox.pending:
            with suppress(TianzhouError):  # the send raises the same error, and handles it
                plan = await plans.make(request.prepared.topic)
        return wanted_queue(request, plan)

    async def send_or_keep(request: SendRequest) -> T | SendResult:
        prepared = request.prepared
        if prepared.code == REPLY or prepared.kind is MessageKind.TRANSACTION_HALF:
            return await send(request)
        outbox.check_open()
        failure: TianzhouError | None = None
        with ExitStack() as turns:
            if is_ordered(request):
                started_s = monotonic()
                # The queue is looked up in the order of the calls. Until the topic's queues are known, sends to the
                # topic wait for the whole send, because they may go to the same queue.
                entrance = sends.enter([("entrance", prepared.topic)])
                turns.callback(entrance.leave)
                has_waited = await entrance.come()
                queue = await current_queue(request)
                if request.selector is not None and queue is not None:
                    request = request._replace(queue=queue, selector=None)  # a second call might choose another queue
                turn = sends.enter(line_names(request, queue))
                turns.callback(turn.leave)
                if prepared.topic in plans.table:
                    entrance.leave()
                if await turn.come() or has_waited:
                    left_ms = request.timeout_ms - (monotonic() - started_s) * 1000
                    if left_ms <= 0:
                        failure = RequestTimeout(
                            f"no time was left to send to topic {prepared.topic} after the sends before it: the limit "
                            f"is {request.timeout_ms} ms"
                        )
                    request = request._replace(timeout_ms=left_ms)
            if not outbox.pending and failure is None:
                try:
                    return await send(request)
                except TianzhouError as error:
                    if not await outbox.accepts(error):
                        raise
                    failure = error
            check_sendable(prepared.topic)
            queue = request.queue
            if queue is None and request.selector is not None:
                plan = plans.table.get(prepared.topic)
                if plan is None:
                    raise ClientError(
                        f"no broker answers, so the queues of topic {prepared.topic} are not known and a selector "
                        "cannot choose; give the message a sharding_key instead"
                    ) from failure
                queue = choose_queue(plan.queues, prepared.messages[0], request.selector, request.selector_arg)
            stored = outbox.keep(builder.outbox_entries(prepared, queue), failure)
        # The messages have their place, so later sends can continue and share a write of the store.
        await stored
        topic = prepared.messages[0].topic
        return SendResult(SendStatus.KEPT_IN_OUTBOX, prepared.unique_keys, "", queue or MessageQueue(topic, "", -1), -1)

    return send_or_keep
