"""Reading queues: whole topics, one queue, a file of compacted messages (client.md §23.3)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer
from tianzhou.cli.mqadmin.families.offsets import parse_time
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import TOPIC
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.model import MessageExt, MessageQueue

PULL_MESSAGES: Final = 32
LINE: Final = "-" * 56


def print_msg(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Print the messages of a topic."""
    return _print_msg(admin, values)


async def _print_msg(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    for queue in await _queues(admin, values.get("topic")):
        low, high = await _bounds(admin, queue, values)
        yield Answer(
            f"minOffset={low}, maxOffset={high}, {java_text.queue(queue)}",
            {"queue": queue._asdict(), "min_offset": low, "max_offset": high},
        )
        show_body = values.truth("printBody", True)
        async for answer in _messages(admin, queue, low, high, values, show_body, nothing=True):
            yield answer
        yield Answer(LINE, {"end_of": queue._asdict()})


async def _queues(admin: Admin, topic: str) -> list[MessageQueue]:
    from tianzhou.client.cluster.routes import subscribe_queues

    return sorted(subscribe_queues(topic, await admin.topics.route(topic)))


async def _bounds(admin: Admin, queue: MessageQueue, values: Values) -> tuple[int, int]:
    low, high = await admin.messages.bounds(queue)
    if values.optional("beginTimestamp"):
        low = await admin.messages.offset_at(queue, parse_time(values.get("beginTimestamp"), "beginTimestamp"))
    if values.optional("endTimestamp"):
        high = await admin.messages.offset_at(queue, parse_time(values.get("endTimestamp"), "endTimestamp"))
    return low, high


async def _messages(
    admin: Admin,
    queue: MessageQueue,
    offset: int,
    end: int,
    values: Values,
    show_body: bool,
    *,
    nothing: bool = False,
) -> AsyncIterator[Answer]:
    """Yield the messages of a queue from one offset to before another."""
    expression = values.get("subExpression") or "*"
    while offset < end:
        found = await admin.messages.read(queue, offset, expression=expression, max_messages=PULL_MESSAGES)
        messages = [one for one in found.messages if one.queue_offset < end]
        for message in messages:
            message.properties |= {"MIN_OFFSET": str(found.min_offset), "MAX_OFFSET": str(found.max_offset)}
            yield _message(message, values.get("charsetName") or "UTF-8", show_body)
        if found.status.name != "FOUND":
            if nothing:
                text = (
                    f"{java_text.queue(queue)} no matched msg. status={found.status.name}, offset={found.next_offset}"
                )
                yield Answer(text, {"queue": queue._asdict(), "status": found.status.name})
            if found.next_offset <= offset:
                return
        offset = max(found.next_offset, offset + 1)


def _message(message: MessageExt, charset: str, show_body: bool) -> Answer:
    try:
        body = message.body.decode(charset, "backslashreplace") if show_body else "NOT PRINT BODY"
    except LookupError:
        raise ConfigError(f"--charsetName {charset}: no such character set; UTF-8 is one") from None
    text = f"MSGID: {message.msg_id} {java_text.message(message)} BODY: {body}"
    return Answer(text, java_text.message_value(message))


def print_msg_by_queue(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Print or count the messages of one queue."""
    return _print_msg_by_queue(admin, values)


async def _print_msg_by_queue(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    from tianzhou.model import MessageQueue

    queue = MessageQueue(values.get("topic"), values.get("brokerName"), values.number("queueId"))
    low, high = await _bounds(admin, queue, values)
    shown, counts = values.truth("print msg"), Counter[str]()
    async for answer in _messages(admin, queue, low, high, values, values.truth("printBody")):
        counts[answer.value["tags"] or "null"] += 1
        if shown:
            yield answer
    if values.truth("calculate"):
        rows = counts.most_common()
        lines = [f"Tag: {tag:<30} Count: {count}" for tag, count in rows]
        yield Answer("\n".join(lines), [{"tag": tag, "count": count} for tag, count in rows])


def consume_message(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Print messages of a topic or a queue, beginning at an offset or a time."""
    return _consume_message(admin, values)


async def _consume_message(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    from tianzhou.model import MessageQueue

    topic, most = values.get("topic"), values.number("MessageNumber", 128)
    broker, queue_id = values.optional("brokerName"), values.optional("queueId")
    if queue_id is not None and broker is None:
        raise ConfigError("--queueId needs --brokerName; several brokers may have a queue of that number")
    if values.optional("offset") and queue_id is None:
        raise ConfigError("--offset needs --brokerName and --queueId; each queue has its own offsets")
    if most <= 0:
        raise ConfigError(f"--MessageNumber {most}: expected 1 or more")
    for name in ("beginTimestamp", "endTimestamp"):
        text = values.optional(name)
        if text is not None and parse_time(text, name) > time.time() * 1000:
            raise ConfigError(f"--{name} {text}: lies in the future; give a time before now")
    queues = [one for one in await _queues(admin, topic) if broker is None or one.broker_name == broker]
    if queue_id is not None:
        queues = [MessageQueue(topic, str(broker), values.number("queueId"))]
    for queue in queues:
        low, high = await _bounds(admin, queue, values)
        offset = values.number("offset", low)
        if not low <= offset <= high:
            raise ConfigError(f"--offset {offset}: {java_text.queue(queue)} has offsets from {low} to {high}")
        if high - offset > most:
            whose = "oldler" if queue_id is not None else "older"
            of_queue = "" if queue_id is not None else f" of the {queue.queue_id} queue"
            note = f"The {whose} {most} message{of_queue} will be provided"
            yield Answer(note, {"queue": queue._asdict(), "limit": most})
            high = offset + most - 1
        async for answer in _consumed(admin, queue, offset, high):
            yield answer
        most -= min(most, high - offset)
        if most <= 0:
            return


async def _consumed(admin: Admin, queue: MessageQueue, offset: int, last: int) -> AsyncIterator[Answer]:
    """Yield the messages of a queue up to an offset, inclusive, and a line per pull in the form of Apache's tool."""
    while offset <= last:
        count = min(PULL_MESSAGES, last - offset + 1)
        found = await admin.messages.read(queue, offset, max_messages=count)
        status, before, offset = found.status.name, offset, found.next_offset
        place = {"queue": queue._asdict(), "status": status, "next_offset": offset}
        if status == "FOUND":
            yield Answer("Consume ok", place)
            for message in found.messages:
                message.properties |= {"MIN_OFFSET": str(found.min_offset), "MAX_OFFSET": str(found.max_offset)}
                yield _message(message, "UTF-8", True)
        elif status == "NO_MATCHED_MSG":
            yield Answer(f"{java_text.queue(queue)} no matched msg. status={status}, offset={offset}", place)
        if status in ("NO_NEW_MSG", "OFFSET_ILLEGAL"):
            yield Answer(f"{java_text.queue(queue)} print msg finished. status={status}, offset={offset}", place)
            return
        if offset <= before:
            return


async def dump_compaction_log(admin: Admin, values: Values) -> Answer:
    """Print the messages of a file."""
    from tianzhou.records.codec import decode_records
    from tianzhou.wire.pulled import to_message

    del admin
    data = _content(values.get("file"))
    texts: list[str] = []
    found: list[dict[str, Any]] = []
    for record in decode_records(_records(data)):
        for message in to_message(record, ""):
            texts.append(java_text.message(message))
            found.append(java_text.message_value(message))
    return Answer("\n".join(texts), found)


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror}; name a file of a compacted topic") from error


def _records(data: bytes) -> bytes:
    """Return the records of a file up to its first blank record. Files are longer than their records."""
    end = 0
    while end + 4 <= len(data):
        size = int.from_bytes(data[end : end + 4], "big")
        if size < 8 or end + size > len(data):
            break
        end += size
    return data[:end]


_TIMES = (
    Option("b", "beginTimestamp", "Stored at or after it: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."),
    Option("e", "endTimestamp", "Stored before it."),
)
_TAGS = Option("s", "subExpression", "Only these tags, as TagA || TagB.")
_CHARSET = Option("c", "charsetName", "Character set of the bodies, UTF-8 when not given.")
COMMANDS = (
    Subcommand(
        "printMsg",
        "Print the messages of a topic, queue by queue.",
        "-t orders -s TagA -b now",
        print_msg,
        (
            TOPIC,
            _CHARSET,
            _TAGS,
            *_TIMES,
            Option("d", "printBody", "false: without bodies."),
            Option("l", "lmqParentTopic", "Taken for Apache's sake: the route is found by the topic."),
        ),
    ),
    Subcommand(
        "printMsgByQueue",
        "Print the messages of one queue, or count them by tag.",
        "-t orders -a broker-a -i 0 -p true",
        print_msg_by_queue,
        (
            TOPIC,
            Option("a", "brokerName", "Name of the broker.", required=True),
            Option("i", "queueId", "The queue.", required=True),
            _CHARSET,
            _TAGS,
            *_TIMES,
            Option("p", "print msg", "true: print them."),
            Option("d", "printBody", "true: with bodies."),
            Option("f", "calculate", "true: count them by tag."),
        ),
    ),
    Subcommand(
        "consumeMessage",
        "Print messages of a topic or of one queue; no group's offset changes.",
        "-t orders -b broker-a -i 0 -o 12 -c 10",
        consume_message,
        (
            TOPIC,
            Option("b", "brokerName", "Only this broker's queues."),
            Option("i", "queueId", "Only this queue; with -b."),
            Option("o", "offset", "From this offset on; with -b and -i."),
            Option("g", "consumerGroup", "Taken for Apache's sake: it is read as no group."),
            Option("s", "beginTimestamp", "Stored at or after it: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."),
            Option("e", "endTimestamp", "Stored before it."),
            Option("c", "MessageNumber", "At most so many messages, 128 when not given."),
        ),
    ),
    Subcommand(
        "dumpCompactionLog",
        "Print the messages of a file of a compacted topic.",
        "-f store/compaction/compactionLog/orders/0/00000000000000000000",
        dump_compaction_log,
        (Option("f", "file", "The file.", required=True),),
        alone=True,
    ),
)
