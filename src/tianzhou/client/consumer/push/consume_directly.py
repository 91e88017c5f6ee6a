"""Direct consumption of one message, outside its queue, on request of a tool (client.md §17.2)."""

from __future__ import annotations

from tianzhou.client.consumer.push.handlers import ConsumeContext, Handlers
from tianzhou.client.consumer.subscription import original_topic
from tianzhou.clock import Clock
from tianzhou.model import ConsumeResult, MessageExt, MessageQueue
from tianzhou.wire.bodies.clients import DirectConsumption

_RESULTS: dict[ConsumeResult | None, str] = {
    ConsumeResult.RECONSUME_LATER: "CR_LATER",
    ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT: "CR_LATER",
    ConsumeResult.COMMIT: "CR_COMMIT",
    ConsumeResult.ROLLBACK: "CR_ROLLBACK",
}


async def directly(
    handlers: Handlers, message: MessageExt, group: str, clock: Clock, *, orderly: bool
) -> DirectConsumption:
    """Call the handler of a message; its result has no other effect than the answer.

    Args:
        handlers: the consumer's handlers.
        message: the message.
        group: the consumer group.
        clock: source of time.
        orderly: whether the consumer consumes in order.

    Returns:
        The result; an error of the handler is also returned as a result.
    """
    message.topic = original_topic(message.topic, message.properties, group)
    context = ConsumeContext(MessageQueue(message.topic, message.broker_name, message.queue_id))
    answer = DirectConsumption(order=orderly)
    began_s = clock.monotonic()
    try:
        result = await handlers.call(message.topic, [message], context)
    except Exception as error:  # noqa: BLE001 - see above
        answer.consume_result = "CR_THROW_EXCEPTION"
        answer.remark = f"{type(error).__name__}: {error}"
    else:
        answer.consume_result = _RESULTS.get(result, "CR_SUCCESS")
    answer.auto_commit = context.auto_commit
    answer.spent_time_mills = int((clock.monotonic() - began_s) * 1000)
    return answer
