"""Queries of messages by id, key, unique key and offset, and of their traces (client.md §23.3)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, NotFoundError, Table, moment, pairs
from tianzhou.cli.mqadmin.own_files import write_own
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import TOPIC
from tianzhou.errors import ConfigError, TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin, MessageTrack
    from tianzhou.model import MessageExt

_NONE = "query message by key finished, but no message."
LONG_MAX = 2**63 - 1


async def query_msg_by_id(admin: Admin, values: Values) -> Answer:
    """Show messages by their ids, let a member consume them, or send them again."""
    texts, found = [], []
    for msg_id in values.listed("msgId"):
        message = await _by_id(admin, values.get("topic"), msg_id)
        if values.optional("consumerGroup") and values.optional("clientId"):
            answer = await _consumed(admin, values, message)
        elif "sendMessage" in values.given:
            if not values.truth("sendMessage"):
                continue
            answer = await _sent_again(admin, msg_id, message)
        else:
            answer = await _shown(admin, message, values.optional("bodyFormat"))
        texts.append(answer.text)
        found.append(answer.value)
    return Answer("\n".join(texts), found)


async def _by_id(admin: Admin, topic: str, msg_id: str) -> MessageExt:
    try:
        return await admin.messages.by_offset_id(msg_id, topic=topic)
    except (TianzhouError, ValueError):
        found = await admin.messages.by_unique_key(topic, msg_id)
        if found is None:
            raise NotFoundError(208, _NONE) from None
        return found


async def _consumed(admin: Admin, values: Values, message: MessageExt) -> Answer:
    from dataclasses import asdict

    group, client = values.get("consumerGroup"), values.get("clientId")
    result = await admin.groups.consume_directly(group, client, message.offset_msg_id, message.topic)
    text = (
        f"ConsumeMessageDirectlyResult [order={java_text.truth(result.order)}, "
        f"autoCommit={java_text.truth(result.auto_commit)}, consumeResult={result.consume_result}, "
        f"remark={'null' if result.remark is None else result.remark}, spentTimeMills={result.spent_time_mills}]"
    )
    return Answer(text, asdict(result))


async def _sent_again(admin: Admin, msg_id: str, message: MessageExt) -> Answer:
    from tianzhou.client.producer.producer import Producer
    from tianzhou.model import Message

    async with Producer("ReSendMsgById", instance=admin.instance) as producer:
        again = Message(
            message.topic, message.body, message.tags, message.keys, message.flag, dict(message.user_properties)
        )
        result = await producer.send(again)
    text = f"prepare resend msg. originalMsgId={msg_id}{java_text.send_result(result)}"
    return Answer(text, {"original": msg_id, "msg_id": result.msg_id, "status": result.status.name})


async def _shown(admin: Admin, message: MessageExt, body_format: str | None, *, short: bool = False) -> Answer:
    path = _body_file(message)
    hosts = [("Born Host", message.born_host), ("Store Host", message.store_host)]
    fields: list[tuple[str, Any]] = [] if short else [("OffsetID", message.offset_msg_id)]
    fields += [
        ("Topic", message.topic),
        ("Tags", f"[{message.tags if message.tags is not None else 'null'}]"),
        ("Keys", f"[{message.keys or 'null'}]"),
        ("Queue ID", message.queue_id),
        ("Queue Offset", message.queue_offset),
        ("CommitLog Offset", message.commitlog_offset),
        ("Reconsume Times", message.reconsume_times),
        ("Born Timestamp", moment(message.born_timestamp, milliseconds=True)),
        ("Store Timestamp", moment(message.store_timestamp, milliseconds=True)),
        *hosts,
        ("System Flag", message.sys_flag),
        ("Properties", java_text.table(message.properties) if message.properties else ""),
        ("Message Body Path", path),
    ]
    if body_format is not None:
        fields.append(("Message Body", _decoded(message.body, body_format)))
    lines = pairs(((f"{name}:", value) for name, value in fields), 20, " ")
    try:
        tracks = await admin.messages.tracks(message)
    except TianzhouError:
        tracks = []
    told = [_track(one) for one in tracks]
    told = told or ["WARN: No Consumer"]
    text = "\n".join([*lines, "", "", *(["".join(told)] if short else told)]).rstrip("\n")
    value = java_text.message_value(message) | {"body_path": path}
    return Answer(text, value | {"tracks": [{"group": one.group, "kind": one.kind, "why": one.why} for one in tracks]})


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "backslashreplace")
    except LookupError:
        raise ConfigError(f"--bodyFormat {charset}: no such character set; UTF-8 is one") from None


def _track(one: MessageTrack) -> str:
    return f"MessageTrack [consumerGroup={one.group}, trackType={one.kind}, exceptionDesc={one.why or 'null'}]"


def _body_file(message: MessageExt) -> str:
    """Write the body to a file, as Apache's tools do. Return its path, or the reason why it was not written."""
    # The key comes from an untrusted producer, and the folder may be writable for all users.
    named = message.msg_id if re.fullmatch(r"[\w-]{1,128}", message.msg_id) else message.offset_msg_id
    file = Path(tempfile.gettempdir()) / "rocketmq" / "msgbodys" / named
    try:
        write_own(file, message.body, private_folder=True)
    except OSError as error:
        return f"{file}: {error.strerror}"
    return str(file)


_BY_KEY = Table("%-50s %4s %40s", "#Message ID|#QID|#Offset", "%-50s %4d %40d")


async def query_msg_by_key(admin: Admin, values: Values) -> Answer:
    """List messages with a key."""
    found = await admin.messages.by_key(
        values.get("topic"),
        values.get("msgKey"),
        max_num=values.number("maxNum", 64),
        begin_ms=values.number("beginTimestamp", 0),
        end_ms=values.number("endTimestamp", LONG_MAX),
    )
    if not found:
        raise NotFoundError(208, _NONE)
    return _BY_KEY.answer((one.msg_id, one.queue_id, one.queue_offset) for one in found)


async def query_msg_by_unique_key(admin: Admin, values: Values) -> Answer:
    """Show the message with a unique key, or all messages with it."""
    topic, key = values.get("topic"), values.get("msgId")
    if values.truth("showAll"):
        every = await admin.messages.all_by_unique_key(topic, key)
        if not every:
            raise NotFoundError(208, _NONE)
        answers = [await _shown(admin, one, None, short=True) for one in every]
        return Answer("\n".join(one.text for one in answers), [one.value for one in answers])
    message = await admin.messages.by_unique_key(topic, key)
    if message is None:
        raise NotFoundError(208, _NONE)
    if values.optional("consumerGroup") and values.optional("clientId"):
        return await _consumed(admin, values, message)
    return await _shown(admin, message, None, short=True)


async def query_msg_by_offset(admin: Admin, values: Values) -> Answer:
    """Show the message at an offset of a queue."""
    from tianzhou.model import MessageQueue

    queue = MessageQueue(values.get("topic"), values.get("brokerName"), values.number("queueId"))
    offset = values.number("offset")
    found = await admin.messages.read(queue, offset, max_messages=1)
    message = next((one for one in found.messages if one.queue_offset == offset), None)
    if message is None:
        raise NotFoundError(208, f"queue {java_text.queue(queue)} holds no message at offset {values.get('offset')}")
    # Java's clients add these properties, so Apache's tools show them.
    message.properties |= {"MIN_OFFSET": str(found.min_offset), "MAX_OFFSET": str(found.max_offset)}
    return await _shown(admin, message, values.optional("bodyFormat"))


_PUB = Table(
    "%-10s %-20s %-20s %-20s %-10s %-10s",
    "#Type|#ProducerGroup|#ClientHost|#SendTime|#CostTimes|#Status",
)
_SUB = Table(
    "%-10s %-20s %-20s %-20s %-10s %-10s",
    "#Type|#ConsumerGroup|#ClientHost|#ConsumerTime|#CostTimes|#Status",
)


async def query_msg_trace_by_id(admin: Admin, values: Values) -> Answer:
    """Show the producer and the consumers of a message, from its traces."""
    topic, msg_id = values.get("traceTopic") or "RMQ_SYS_TRACE_TOPIC", values.get("msgId")
    found = await admin.messages.by_key(
        topic,
        msg_id,
        max_num=values.number("maxNum", 64),
        begin_ms=values.number("beginTimestamp", 0),
        end_ms=values.number("endTimestamp", LONG_MAX),
    )
    if not found:
        raise NotFoundError(208, _NONE)
    published, consumed = traced([(one.body, one.born_host) for one in found], msg_id)
    blocks, value = [], {"published": published, "consumed": consumed}
    if published:
        blocks.append(_PUB.text(_traced(one) for one in published))
    by_group: dict[str, list[dict[str, Any]]] = {}
    for one in consumed:
        by_group.setdefault(one["group"], []).append(one)
    blocks += [_SUB.text(_traced(one) for one in rows) for rows in by_group.values()]
    return Answer("\n\n".join(blocks), value)


def traced(bodies: Iterable[tuple[bytes, str]], msg_id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the sends and the deliveries of a message, ordered by their beginning, in the terms of the tool.

    Args:
        bodies: bodies of messages of the trace topic, each with the host that sent it.
        msg_id: the unique key of the message. Records of other messages are left out.
    """
    from tianzhou.client.tracing.trace_reading import TraceKind, parse

    published: list[dict[str, Any]] = []
    begun: dict[str, dict[str, Any]] = {}
    for body, host in bodies:
        for one in parse(body.decode("utf-8", "replace")):
            if one.msg_id != msg_id:
                continue
            status = "success" if one.success else "failed"
            common = {"group": one.group, "client_host": host_of(one.client_host or host), "time": one.timestamp_ms}
            if one.kind is TraceKind.SENT:
                stored = {"topic": one.topic, "keys": one.keys, "store_host": one.detail}
                published.append({"type": "Pub", **common, "cost": one.cost_ms, "status": status, **stored})
            elif one.kind is TraceKind.CONSUMING:
                begun.setdefault(one.request_id, {}).update(type="Sub", **common)
            elif one.kind is TraceKind.CONSUMED:
                begun.setdefault(one.request_id, {}).update(cost=one.cost_ms, status=status)
    unknown = {"type": "Sub", "group": "", "client_host": "", "time": 0, "cost": 0, "status": "unknown"}
    return published, sorted((unknown | one for one in begun.values()), key=lambda one: int(one["time"]))


def host_of(address: str) -> str:
    """Return the host of an address, in the form of Apache's tool.

    Args:
        address: `host:port`, or a host alone.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or (":" in host and not host.startswith("[")):
        return address
    return host.strip("[]")


def _traced(one: dict[str, Any]) -> tuple[Any, ...]:
    return one["type"], one["group"], one["client_host"], moment(one["time"]), f"{one['cost']}ms", one["status"]


_CLUSTER = Option("c", "cluster", "Taken for Apache's sake: the route is found by the topic.")
_CONSUME = (
    Option("g", "consumerGroup", "Have a member of this group consume it at once; with -d."),
    Option("d", "clientId", "The member."),
)
_BODY = Option("f", "bodyFormat", "Also print the body, read in this character set.")
_SINCE = (
    Option("b", "beginTimestamp", "Stored at or after it, milliseconds."),
    Option("e", "endTimestamp", "Stored at or before it, milliseconds."),
)
COMMANDS = (
    Subcommand(
        "queryMsgById",
        "Show messages by their ids, and which groups have consumed them.",
        "-t orders -i 7F00000100002A9F0000000000000000",
        query_msg_by_id,
        (
            TOPIC,
            Option("i", "msgId", "Ids, joined by commas: offset ids or unique keys.", required=True),
            *_CONSUME,
            Option("s", "sendMessage", "true: send them again."),
            Option("u", "unitName", "Taken for Apache's sake."),
            _BODY,
            _CLUSTER,
        ),
    ),
    Subcommand(
        "queryMsgByKey",
        "List the messages with a key.",
        "-t orders -k order-1",
        query_msg_by_key,
        (
            TOPIC,
            Option("k", "msgKey", "The key.", required=True),
            *_SINCE,
            Option("m", "maxNum", "Messages of each broker, 64 when not given."),
            _CLUSTER,
        ),
    ),
    Subcommand(
        "queryMsgByUniqueKey",
        "Show the message with a unique key, the id that its producer gave it.",
        "-t orders -i 7F0000010E8C00B4AAC2000000000000",
        query_msg_by_unique_key,
        (
            TOPIC,
            Option("i", "msgId", "The unique key.", required=True),
            *_CONSUME,
            Option("a", "showAll", "All messages with it.", flag=True),
            _CLUSTER,
        ),
    ),
    Subcommand(
        "queryMsgByOffset",
        "Show the message at an offset of a queue.",
        "-t orders -b broker-a -i 0 -o 12",
        query_msg_by_offset,
        (
            TOPIC,
            Option("b", "brokerName", "Name of the broker.", required=True),
            Option("i", "queueId", "The queue.", required=True),
            Option("o", "offset", "The offset.", required=True),
            _BODY,
        ),
    ),
    Subcommand(
        "queryMsgTraceById",
        "Show who sent and consumed a message, of clients that trace.",
        "-i 7F0000010E8C00B4AAC2000000000000",
        query_msg_trace_by_id,
        (
            Option("i", "msgId", "The unique key.", required=True),
            Option("t", "traceTopic", "The topic of traces, RMQ_SYS_TRACE_TOPIC when not given."),
            *_SINCE,
            Option("c", "maxNum", "Messages of each broker, 64 when not given."),
        ),
    ),
)
