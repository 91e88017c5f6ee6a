"""The layer that stores messages in the outbox when a send fails for now, and behind others that wait there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from tianzhou.client.hooks import MessageKind
from tianzhou.client.producer.message_builder import MessageBuilder
from tianzhou.client.producer.publish_plan import PublishPlans
from tianzhou.client.producer.selector import choose_queue
from tianzhou.client.producer.send_request import REPLY, SendRequest
from tianzhou.client.validation import check_sendable
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import MessageQueue, SendResult, SendStatus

if TYPE_CHECKING:
    from tianzhou.client.producer.outbox.outbox import Outbox

T = TypeVar("T")


def with_outbox(
    send: Callable[[SendRequest], Awaitable[T]], outbox: Outbox, builder: MessageBuilder, plans: PublishPlans
) -> Callable[[SendRequest], Awaitable[T | SendResult]]:
    """A layer that sends, or puts messages into an outbox: at once while others wait there.

    Args:
        send: the layer below.
        outbox: takes what no broker takes now.
        builder: makes entries of what was to be sent.
        plans: the queues that a selector may choose of although no broker answers.
    """

    async def send_or_keep(request: SendRequest) -> T | SendResult:
        prepared = request.prepared
        if prepared.code == REPLY or prepared.kind is MessageKind.TRANSACTION_HALF:
            return await send(request)
        failure: TianzhouError | None = None
        if not outbox.pending:
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
                    f"no broker answers, so the queues of topic {prepared.topic} are not known and a selector cannot "
                    "choose; give the message a sharding_key instead"
                ) from failure
            queue = choose_queue(plan.queues, prepared.messages[0], request.selector, request.selector_arg)
        await outbox.keep(builder.outbox_entries(prepared, queue), failure)
        topic = prepared.messages[0].topic
        return SendResult(SendStatus.KEPT_IN_OUTBOX, prepared.unique_keys, "", queue or MessageQueue(topic, "", -1), -1)

    return send_or_keep
