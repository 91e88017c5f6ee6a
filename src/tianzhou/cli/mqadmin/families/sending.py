"""Sends of a message, and their duration (client.md §23.3, §23.4)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, Table
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import TOPIC
from tianzhou.errors import ConfigError, TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin

_SENT = Table("%-32s  %-4s  %-20s    %s", "#Broker Name|#QID|#Send Result|#MsgId")
_RT = Table("%-32s  %-4s  %-20s    %s", "#Broker Name|#QID|#Send Result|#RT")


async def send_message(admin: Admin, values: Values) -> Answer:
    """Send a message."""
    from tianzhou.client.producer.producer import Producer
    from tianzhou.model import Message, MessageQueue

    topic, broker, queue_id = values.get("topic"), values.optional("broker"), values.optional("qid")
    if queue_id is not None and broker is None:
        raise ConfigError("--qid needs --broker; several brokers may have a queue of that number")
    queue = None
    if broker is not None:
        queue = MessageQueue(topic, broker, values.number("qid", 0))
    message = Message(topic, values.given["body"].encode(), values.optional("tags"), values.get("key"))
    async with Producer("PID_SMC", instance=admin.instance, trace=values.truth("msgTraceEnable")) as producer:
        result = await producer.send(message, queue=queue)
    row = (result.queue.broker_name, result.queue.queue_id, result.status.name, result.msg_id)
    answer = _SENT.answer([row])
    return Answer(answer.text, answer.value[0] | {"offset_msg_id": result.offset_msg_id})


async def check_msg_send_rt(admin: Admin, values: Values) -> Answer:
    """Measure the duration of sends to a topic, queue by queue."""
    from tianzhou.client.cluster.routes import publish_queues
    from tianzhou.client.producer.producer import Producer
    from tianzhou.model import Message

    topic, amount, body = values.get("topic"), values.number("amount", 100), b"a" * values.number("size", 128)
    rows, total = [], 0.0
    async with Producer("CHECK_MSG_SEND_RT", instance=admin.instance) as producer:
        route = await admin.instance.route(topic, default_topic="TBW102")
        queues = publish_queues(topic, route) if route is not None else []
        for number in range(amount):
            queue = queues[number % len(queues)] if queues else None
            begin = time.monotonic()
            try:
                result = await producer.send(Message(topic, body), queue=queue)
                queue, good = result.queue, True
            except TianzhouError:
                good = False
            spent = round((time.monotonic() - begin) * 1000)
            # The first send also opens connections and creates the topic, so do not count it.
            total += spent if number else 0
            rows.append((queue.broker_name if queue else "", queue.queue_id if queue else -1, good, spent))
            if not queues:
                route = await admin.topics.route(topic)
                queues = publish_queues(topic, route)
    average = total / max(amount - 1, 1)
    answer = _RT.answer(rows, after=f"Avg RT: {average:.2f}")
    return Answer(answer.text, {"sends": answer.value, "average_ms": average})


def send_msg_status(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Send messages to a broker and show each result."""
    return _send_msg_status(admin, values)


async def _send_msg_status(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    from tianzhou.client.producer.producer import Producer
    from tianzhou.model import Message, MessageQueue

    # Every broker has a topic of its own name.
    broker, count = values.get("brokerName"), values.number("count", 50)
    async with Producer("PID_SMS", instance=admin.instance) as producer:
        message = Message(broker, b"a" * values.number("messageSize", 128))
        await producer.send(message, queue=MessageQueue(broker, broker, 0))
        for _ in range(count):
            begin = time.monotonic()
            result = await producer.send(message, queue=MessageQueue(broker, broker, 0))
            spent = round((time.monotonic() - begin) * 1000)
            yield Answer(
                f"rt={spent}ms, SendResult={java_text.send_result(result)}",
                {"rt_ms": spent, "status": result.status.name, "msg_id": result.msg_id, "offset": result.queue_offset},
            )


COMMANDS = (
    Subcommand(
        "sendMessage",
        "Send a message.",
        "-t orders -p 'hello' -k order-1 -c paid",
        send_message,
        (
            TOPIC,
            Option("p", "body", "The body, as UTF-8 text.", required=True),
            Option("k", "key", "Its keys."),
            Option("c", "tags", "Its tag."),
            Option("b", "broker", "Name of the broker it goes to."),
            Option("i", "qid", "The queue it goes to; with -b."),
            Option("m", "msgTraceEnable", "true: traced."),
        ),
    ),
    Subcommand(
        "checkMsgSendRT",
        "Measure how long sends to a topic take.",
        "-t orders -a 10 -s 128",
        check_msg_send_rt,
        (
            TOPIC,
            Option("a", "amount", "Messages, 100 when not given."),
            Option("s", "size", "Bytes of each, 128 when not given."),
        ),
    ),
    Subcommand(
        "sendMsgStatus",
        "Send messages to a broker, into the topic of its name, and show each answer.",
        "-b broker-a -c 10",
        send_msg_status,
        (
            Option("b", "brokerName", "Name of the broker.", required=True),
            Option("s", "messageSize", "Bytes of each, 128 when not given."),
            Option("c", "count", "Messages, 50 when not given."),
        ),
    ),
)
