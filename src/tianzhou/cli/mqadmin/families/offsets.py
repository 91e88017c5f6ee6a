"""Offsets of groups: progress, members, resets, copies (client.md §23.2)."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, NotFoundError, Table, cut, done, moment, pairs
from tianzhou.cli.mqadmin.own_files import write_own
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.model.timestamps import local_date

if TYPE_CHECKING:
    from tianzhou.admin import Admin, GroupLag
    from tianzhou.wire.bodies.clients import ConsumerConnection, ConsumerRunningInfo

RETRY: Final = "%RETRY%"
_PLACE = "%-64s  %-32s  %-4s  %-20s  %-20s  "
_NAMES = "#Topic|#Broker Name|#QID|#Broker Offset|#Consumer Offset|"
_PROGRESS = Table(_PLACE + "%-20s %-19s %s", _NAMES + "#Diff|#Inflight|#LastTime", _PLACE + "%-20s %-20s %s")
_CLIENTS = Table(
    _PLACE + "%-20s %-20s %-19s %s",
    _NAMES + "#Client IP|#Diff|#Inflight|#LastTime",
    _PLACE + "%-20s %-20s %-20s %s",
)
_GROUPS = Table("%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s", "#Group|#Count|#Version|#Type|#Model|#TPS|#Diff Total")


def last_time(timestamp_ms: int) -> str:
    """Return the time of the last message, `N/A` for none."""
    return moment(timestamp_ms) if timestamp_ms > 0 else "N/A"


async def existing_group(admin: Admin, group: str) -> None:
    """Raise an error unless the group has a retry topic, by which Apache's tools find it."""
    if not await admin.topics.exists(f"{RETRY}{group}"):
        raise NotFoundError(17, f"No topic route info in name server for the topic: {RETRY}{group}")


async def consumer_progress(admin: Admin, values: Values) -> Answer:
    """Show the progress of a group, or of all groups."""
    group = values.optional("groupName")
    if group is None:
        return await _all_progress(admin)
    topic = values.optional("topicName")
    if topic is None:
        await existing_group(admin, group)
    clients = values.truth("showClientIP")
    lag = await admin.groups.lag(group, topic, clients=clients)
    if not lag.queues and topic is None:
        raise NotFoundError(206, f"group {group} has consumed nothing, so there are no offsets to show")
    rows = []
    for one in lag.queues:
        member = [one.client_id.partition("@")[0] if one.client_id else "N/A"] if clients else []
        start = (cut(one.queue.topic, 64), cut(one.queue.broker_name, 32), one.queue.queue_id)
        offsets = (one.broker_offset, one.consumer_offset, *member, one.lag, one.inflight)
        rows.append((*start, *offsets, last_time(one.last_timestamp)))
    inflight = sum(one.inflight for one in lag.queues)
    table = _CLIENTS if clients else _PROGRESS
    after = f"\nConsume TPS: {lag.consume_tps:.2f}\nConsume Diff Total: {lag.total}\nConsume Inflight Total: {inflight}"
    answer = table.answer(rows, after=after)
    totals = {"consume_tps": lag.consume_tps, "diff_total": lag.total, "inflight_total": inflight}
    return Answer(answer.text, {"queues": answer.value} | totals)


async def _all_progress(admin: Admin) -> Answer:
    from tianzhou.admin import GroupLag

    rows = []
    for topic in await admin.topics.names():
        if topic.startswith(RETRY):
            group = topic.removeprefix(RETRY)
            lag, connection = GroupLag(group), None
            with contextlib.suppress(TianzhouError):
                lag = await admin.groups.lag(group)
            with contextlib.suppress(TianzhouError):
                connection = await admin.groups.connections(group)
            rows.append(_of_group(group, lag, connection))
    rows.sort(key=lambda row: -row[6])
    return _GROUPS.answer(rows)


def _of_group(group: str, lag: GroupLag, connection: ConsumerConnection | None) -> tuple[Any, ...]:
    from tianzhou.wire.codes import version_name

    version, kind, model, count = "OFFLINE", "", "", 0
    if connection is not None:
        count = len(connection.connection_set)
        version = version_name(min((one.version for one in connection.connection_set), default=0))
        consume = connection.consume_type.value if connection.consume_type else ""
        kind = {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}.get(consume, "POP")
        model = connection.message_model.value if connection.message_model else ""
    return cut(group, 64), count, version, kind, model, int(lag.consume_tps), lag.total


_MEMBERS = Table("%-10s %-40s %-20s %s", "#Index|#ClientId|#Version|#ConsumerRunningInfoFile")


async def consumer_status(admin: Admin, values: Values) -> Answer:
    """Show the reports of a group's members about themselves."""
    from tianzhou.wire.codes import version_name

    group, stack = values.get("consumerGroup"), values.truth("jstack")
    client = values.optional("clientId")
    if client is not None:
        info = await admin.groups.running_info(group, client, stack=stack)
        return Answer(running_info_text(info), _info_value(info))
    await existing_group(admin, group)
    connection = await admin.groups.connections(group, broker_addr=values.optional("brokerAddr"))
    if connection is None:
        raise NotFoundError(206, f"Not found the consumer group connection: {group} is not online")
    folder = Path(str(int(time.time() * 1000)))
    rows, infos = [], {}
    for number, member in enumerate(connection.connection_set, 1):
        try:
            info = await admin.groups.running_info(group, member.client_id, stack=stack)
        except TianzhouError:
            continue
        infos[member.client_id] = info
        file = folder / re.sub(r"[^\w@#.:%-]", "_", member.client_id)
        write_own(file, (running_info_text(info) + "\n").encode())
        rows.append((number, member.client_id, version_name(member.version), file))
    subscriptions = {
        name: sorted((one.topic, one.sub_string) for one in info.subscription_set) for name, info in infos.items()
    }
    same = len({str(one) for one in subscriptions.values()}) < 2
    verdict = (
        "\n\nSame subscription in the same group of consumer"
        if same
        else "\n\nWARN: Different subscription in the same group of consumer!!!"
    )
    verdict += "\n\nRebalance OK" if same and infos else ""
    table = _MEMBERS.answer(rows, after=verdict)
    value = {"members": {name: _info_value(info) for name, info in infos.items()}, "same_subscription": same}
    return Answer(table.text, value)


def _info_value(info: ConsumerRunningInfo) -> dict[str, Any]:
    from tianzhou.wire.bodies.clients import RUNNING_INFO
    from tianzhou.wire.json_dialect import loads

    value = dict(loads(RUNNING_INFO.dumps(info)))
    for table in ("mqTable", "mqPopTable"):
        value[table] = [{"queue": queue._asdict(), "state": state} for queue, state in (value.get(table) or {}).items()]
    return value


_OFFSETS = Table("%-64s  %-32s  %-4s  %-20s", "#Topic|#Broker Name|#QID|#Consumer Offset", "%-32s  %-32s  %-4s  %-20s")
_DETAIL = Table("%-64s  %-32s  %-4s  %-20s", "#Topic|#Broker Name|#QID|#ProcessQueueInfo")
_POP = Table("%-32s  %-32s  %-4s  %-20s", "#Topic|#Broker Name|#QID|#ProcessQueueInfo")
_SPEED = Table(
    "%-64s  %14s %14s %14s %14s %18s %25s",
    "#Topic|#Pull RT|#Pull TPS|#Consume RT|#ConsumeOK TPS|#ConsumeFailed TPS|#ConsumeFailedMsgsInHour",
    "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d",
)


def running_info_text(info: ConsumerRunningInfo) -> str:
    """Return a member's report about itself, in the form of Apache's tools."""
    sections = [("Consumer Properties", "\n".join(pairs(info.properties.items(), 40, ": ")))]
    lines = [
        f"{number:03d} Topic: {one.topic:<40} ClassFilter: {java_text.truth(one.class_filter_mode):<8} "
        f"SubExpression: {one.sub_string}"
        for number, one in enumerate(sorted(info.subscription_set, key=lambda one: one.topic), 1)
    ]
    sections.append(("Consumer Subscription", "\n".join(lines)))
    queues = sorted(info.mq_table.items())
    sections.append(("Consumer Offset", _OFFSETS.text((*queue, one.commit_offset) for queue, one in queues)))
    sections.append(("Consumer MQ Detail", _DETAIL.text((*queue, _process_queue(one)) for queue, one in queues)))
    popped = [(*queue, java_text.table(one)) for queue, one in sorted(info.mq_pop_table.items())]
    sections.append(("Consumer Pop Detail", _POP.text(popped)))
    speeds = [
        (
            topic, one.pull_rt, one.pull_tps, one.consume_rt, one.consume_ok_tps, one.consume_failed_tps,
            one.consume_failed_msgs,
        )
        for topic, one in sorted(info.status_table.items())
    ]  # fmt: skip
    sections.append(("Consumer RT&TPS", _SPEED.text(speeds)))
    sections.append(("User Consume Info", "\n".join(pairs(info.user_consumer_info.items(), 40, ": "))))
    if info.jstack:
        sections.append(("Consumer jstack", info.jstack))
    return "\n\n\n".join(f"#{title}#\n{text}" for title, text in sections)


def _process_queue(one: Any) -> str:
    from dataclasses import fields

    parts = []
    for field in fields(one):
        name = {"cached_msg_size_in_mib": "cachedMsgSizeInMiB", "dropped": "droped"}.get(field.name) or re.sub(
            "_(.)", lambda match: match[1].upper(), field.name
        )
        value = getattr(one, field.name)
        if name.endswith("Timestamp"):
            at = local_date(value)
            value = value if at is None else at.strftime("%Y%m%d%H%M%S") + f"{value % 1000:03d}"
        parts.append(f"{name}={java_text.truth(value) if isinstance(value, bool) else value}")
    return f"ProcessQueueInfo [{', '.join(parts)}]"


def parse_time(text: str, what: str = "timestamp") -> int:
    """Parse `now` (-1), a number of milliseconds, or `yyyy-MM-dd#HH:mm:ss:SSS`.

    Raises:
        ConfigError: the text has another form.
    """
    if text == "now":
        return -1
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    try:
        at = dt.datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").astimezone()
    except ValueError:
        raise ConfigError(f"--{what} {text}: expected now, milliseconds, or 2026-01-31#23:59:59:999") from None
    return int(at.timestamp() * 1000)


_RESET = Table("%-40s  %-40s  %-40s", "#brokerName|#queueId|#offset")


async def reset_offset_by_time(admin: Admin, values: Values) -> Answer:
    """Reset a group to a time."""
    from tianzhou.model import MessageQueue

    group, topic, text = values.get("group"), values.get("topic"), values.get("timestamp")
    timestamp, force = parse_time(text), values.truth("force", True)
    shown = int(time.time() * 1000) if text == "now" else timestamp
    said = f"timestamp(string)[{text}], timestamp(long)[{shown}]"
    broker, queue_id = values.optional("broker"), values.optional("queue")
    for name in ("queue", "offset"):
        values.number(name, 0)
    await admin.topics.route(topic)
    await _known_group(admin, group)
    if broker is not None and queue_id is not None:
        name = next(
            (one.broker_name for one in (await admin.topics.route(topic)).broker_datas if one.master == broker), ""
        )
        queue = MessageQueue(topic, name, values.number("queue"))
        where = {"to_offset": values.number("offset")} if values.optional("offset") else _where(timestamp)
        [change] = await admin.groups.reset(group, topic, queues=[queue], **where)
        start = (
            f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{queue_id}], "
            f"broker[{broker}], {said}"
        )
        return Answer(f"{start}\nreset consumer offset to {change.after}", [_change(change)])
    changes = await admin.groups.reset(group, topic, **_where(timestamp))
    start = (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
        f"force[{java_text.truth(force)}], {said}"
    )
    rows = [(cut(one.queue.broker_name, 32), one.queue.queue_id, one.after) for one in changes]
    return Answer(_RESET.answer(rows, before=start).text, [_change(one) for one in changes])


def _where(timestamp: int) -> dict[str, Any]:
    return {"to_latest": True} if timestamp == -1 else {"to_time_ms": timestamp}


def _change(one: Any) -> dict[str, Any]:
    return {
        "topic": one.queue.topic,
        "broker_name": one.queue.broker_name,
        "queue_id": one.queue.queue_id,
        "before": one.before,
        "offset": one.after,
    }


async def _known_group(admin: Admin, group: str) -> None:
    if not await admin.groups.config(group):
        raise NotFoundError(26, f"Group {group} does not exist")


async def skip_accumulated_message(admin: Admin, values: Values) -> Answer:
    """Reset a group to the end of a topic."""
    group, topic = values.get("group"), values.get("topic")
    await admin.topics.route(topic)
    await _known_group(admin, group)
    changes = await admin.groups.reset(group, topic, to_latest=True)
    rows = [(cut(one.queue.broker_name, 32), one.queue.queue_id, one.after) for one in changes]
    return Answer(_RESET.text(rows), [_change(one) for one in changes])


async def clone_group_offset(admin: Admin, values: Values) -> Answer:
    """Copy the offsets of a group to another group."""
    source, target, topic = values.get("srcGroup"), values.get("destGroup"), values.get("topic")
    await admin.topics.route(topic)
    await admin.groups.clone_offsets(source, target, topic, offline=values.truth("offline"))
    text = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    return done(text, source=source, target=target, topic=topic)


_G = Option("g", "group", "The consumer group.", required=True)
_T = Option("t", "topic", "The topic.", required=True)
_C = Option("c", "cluster", "Taken for Apache's sake: the route is found by the topic.")
_F = Option("f", "force", "Taken for Apache's sake: every reset is a forced one.")
_RUNNING = "Without -i it writes one file for each member below the current folder."
COMMANDS = (
    Subcommand(
        "consumerProgress",
        "Show how far a consumer group is behind, queue by queue, or all groups.",
        "-g billing",
        consumer_progress,
        (
            Option("g", "groupName", "The consumer group; all when not given."),
            Option("t", "topicName", "Only this topic."),
            Option("s", "showClientIP", "true: also which member reads a queue."),
            _C,
        ),
    ),
    Subcommand(
        "consumerStatus",
        "Show what the members of a group report about themselves, and whether they agree.",
        "-g billing -i 10.0.0.9@4711",
        consumer_status,
        (
            Option("g", "consumerGroup", "The consumer group.", required=True),
            Option("i", "clientId", "Only this member, on the screen."),
            Option("b", "brokerAddr", "Ask this broker for the members."),
            Option("s", "jstack", "With the stacks of its threads.", flag=True),
        ),
        remark=_RUNNING,
    ),
    Subcommand(
        "resetOffsetByTime",
        "Have a consumer group continue at a time, whether its members run or not.",
        "-g billing -t orders -s 2026-01-31#08:00:00:000",
        reset_offset_by_time,
        (
            _G,
            _T,
            Option("s", "timestamp", "now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS.", required=True),
            Option("b", "broker", "Only on this broker, host:port; with -q."),
            Option("q", "queue", "Only this queue."),
            Option("o", "offset", "To this offset of the queue, whatever the time."),
            _F,
            _C,
            Option("", "cplus", "Taken for Apache's sake: members of every language move.", flag=True),
        ),
    ),
    Subcommand(
        "skipAccumulatedMessage",
        "Have a consumer group continue behind the last message there is.",
        "-g billing -t orders",
        skip_accumulated_message,
        (_G, _T, _F, _C),
    ),
    Subcommand(
        "cloneGroupOffset",
        "Copy how far a consumer group has consumed a topic to another group.",
        "-s billing -d billing2 -t orders -o true",
        clone_group_offset,
        (
            Option("s", "srcGroup", "The group that is copied.", required=True),
            Option("d", "destGroup", "The group that gets the offsets.", required=True),
            _T,
            Option("o", "offline", "true: the first one may be without members."),
        ),
    ),
)
