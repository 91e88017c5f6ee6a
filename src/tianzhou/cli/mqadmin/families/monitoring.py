"""Periodic checks of all groups: lag, members with different subscriptions, members that stall (client.md §23.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tianzhou.cli.mqadmin.answers import Answer, moment
from tianzhou.cli.mqadmin.families.offsets import RETRY
from tianzhou.cli.mqadmin.subcommand import Subcommand, Values
from tianzhou.errors import TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin, GroupLag, QueueLag
    from tianzhou.model import MessageQueue
    from tianzhou.wire.bodies.clients import ConsumerConnection, ConsumerRunningInfo

ROUND_S = 60
LATE_MESSAGES = 100_000
"""Lag of a group in a topic above which it is reported, even if the group has no members."""
STILL_MS: Final = 60_000
"""Time in ms without progress after which a queue with messages counts as stalled."""
SETTLED_MS: Final = 120_000
"""Time in ms after a member's start in which it may not have all subscriptions of the others yet."""
MOVED: Final = "OFFSET_MOVED_EVENT"
"""Topic in which brokers of RocketMQ 4 record that a member requested a deleted offset."""
MOST_EVENTS: Final = 32
"""Maximum events of a queue in a round."""
_PREFIX: Final = "[MONITOR] "
_NOTIFY: Final = "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: "


def is_pushed(properties: Mapping[str, object]) -> bool:
    """Whether a member is a push consumer, whose handlers are called with messages. Pull consumers fetch messages."""
    return properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"


def differs(infos: Mapping[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """Whether push consumers of a group have different subscriptions, or none.

    Args:
        infos: reports of the members, by client id.
        now_ms: the present time.
    """
    first = next(iter(infos.values())).properties
    started_ms = int(first.get("PROP_CONSUMER_START_TIMESTAMP") or 0)
    if not is_pushed(first) or now_ms - started_ms <= SETTLED_MS:
        return False
    each = {tuple(sorted((one.topic, one.sub_string) for one in info.subscription_set)) for info in infos.values()}
    return len(each) > 1 or () in each


def standing_still(info: ConsumerRunningInfo, now_ms: int) -> list[str]:
    """Return the problems of a push consumer's queues, one line each, in the form of Apache's tool.

    Args:
        info: report of the member.
        now_ms: the present time.
    """
    if not is_pushed(info.properties):
        return []
    orderly = str(info.properties.get("PROP_CONSUMEORDERLY")).lower() == "true"
    found = []
    for queue, one in sorted(info.mq_table.items()):
        name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        if orderly and not one.locked:
            found.append(f"{name} can't lock for a while, {now_ms - one.last_lock_timestamp}ms")
        elif orderly and one.dropped and one.try_unlock_times > 0:
            found.append(f"{name} unlock {one.try_unlock_times} times, still failed")
        elif not orderly and one.cached_msg_count and (still_ms := now_ms - one.last_consume_timestamp) > STILL_MS:
            found.append(f"{name} can't consume for a while, maybe blocked, {still_ms}ms")
    return found


def undone(group: str, topic: str, queues: Sequence[QueueLag], delay_ms: int, *, online: bool) -> Answer | None:
    """Return the lag of a group in a topic; None if there is no need for a report.

    Args:
        group: the group.
        topic: the topic.
        queues: queues of the topic.
        delay_ms: maximum time in ms over all queues between the last consumed message and the newest one.
        online: whether the group has members. Groups without members are reported only if they lag far behind.
    """
    behind, most = sum(one.lag for one in queues), max((one.lag for one in queues), default=0)
    oldest = min((one.last_timestamp for one in queues), default=0)
    lines = []
    if online:
        figures = f"undoneMsgsTotal={behind}, undoneMsgsSingleMQ={most}, undoneMsgsDelayTimeMills={delay_ms}"
        lines.append(f"{_PREFIX}reportUndoneMsgs: UndoneMsgs [consumerGroup={group}, topic={topic}, {figures}]")
    if behind > LATE_MESSAGES:
        lines.append(f"[{group}] is {behind} messages behind on topic {topic}, consumed up to {moment(oldest)}")
    value = {"group": group, "topic": topic, "behind": behind, "last_timestamp": oldest}
    value |= {"most_of_a_queue": most, "delay_ms": delay_ms}
    return Answer("\n".join(lines), value) if lines else None


def moved(body: bytes, stored_ms: int) -> Answer | None:
    """Parse a broker's record that a member requested deleted messages; None if the body is not such a record.

    Args:
        body: body of the message.
        stored_ms: store time of the message.
    """
    from tianzhou.wire.json_dialect import loads

    try:
        event = dict(loads(body))
        queue = dict(event["messageQueue"])
    except (TianzhouError, ValueError, KeyError, TypeError):
        return None
    place = f"topic={queue.get('topic')}, brokerName={queue.get('brokerName')}, queueId={queue.get('queueId')}"
    text = (
        f"{_PREFIX}reportDeleteMsgsEvent: DeleteMsgsEvent [offsetMovedEvent=OffsetMovedEvent "
        f"[consumerGroup={event.get('consumerGroup')}, messageQueue=MessageQueue [{place}], "
        f"offsetRequest={event.get('offsetRequest')}, offsetNew={event.get('offsetNew')}], "
        f"eventTimestamp={stored_ms}]"
    )
    return Answer(text, {"moved": event, "timestamp": stored_ms})


def start_monitoring(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Monitor all groups."""
    del values
    return _watched(admin)


async def _watched(admin: Admin) -> AsyncIterator[Answer]:
    seen: dict[MessageQueue, int] = {}
    while True:
        for topic in await admin.topics.names():
            if topic.startswith(RETRY):
                async for answer in _group(admin, topic.removeprefix(RETRY)):
                    yield answer
        async for answer in _moved(admin, seen):
            yield answer
        await asyncio.sleep(ROUND_S)


async def _group(admin: Admin, group: str) -> AsyncIterator[Answer]:
    try:
        lag, members = await admin.groups.lag(group), await admin.groups.connections(group)
    except TianzhouError as error:
        yield Answer(f"[{group}] {error}", {"group": group, "error": str(error)})
        return
    by_topic: dict[str, list[QueueLag]] = {}
    for one in lag.queues:
        by_topic.setdefault(one.queue.topic, []).append(one)
    for topic, queues in by_topic.items():
        delay_ms = await _delay_ms(admin, lag, topic) if members is not None else 0
        if (answer := undone(group, topic, queues, delay_ms, online=members is not None)) is not None:
            yield answer
    if members is not None:
        for line, value in await _complaints(admin, group, members):
            yield Answer(_NOTIFY + line, value)


async def _complaints(admin: Admin, group: str, members: ConsumerConnection) -> list[tuple[str, dict[str, Any]]]:
    """Return the problems of a group's members."""
    infos: dict[str, ConsumerRunningInfo] = {}
    for one in members.connection_set:
        try:
            infos[one.client_id] = await admin.groups.running_info(group, one.client_id)
        except TianzhouError:
            continue  # The member has disconnected, or its version does not report.
    now_ms = admin.instance.clock.now_ms()
    found: list[tuple[str, dict[str, Any]]] = []
    if infos and differs(infos, now_ms):
        found.append((f"ConsumerGroup: {group}, Subscription different", {"group": group, "same_subscription": False}))
    for client_id, info in sorted(infos.items()):
        for text in standing_still(info, now_ms):
            line = f"ConsumerGroup: {group}, ClientId: {client_id}, {text}"
            found.append((line, {"group": group, "client_id": client_id, "trouble": text}))
    return found


async def _delay_ms(admin: Admin, lag: GroupLag, topic: str) -> int:
    """Return the maximum time in ms over all queues between the last consumed message and the newest one."""
    masters, worst = await admin.cluster.masters(), 0
    for one in lag.queues:
        master = masters.get(one.queue.broker_name)
        if one.queue.topic != topic or not one.lag or one.last_timestamp <= 0 or master is None:
            continue
        try:
            newest = await admin.servers.messages(master, one.queue, one.broker_offset - 1, 1)
        except TianzhouError:
            continue
        worst = max([worst, *(message.store_timestamp - one.last_timestamp for message in newest)])
    return worst


async def _moved(admin: Admin, seen: dict[MessageQueue, int]) -> AsyncIterator[Answer]:
    """Yield the records of brokers since the last round; none in the first round."""
    for master in (await admin.cluster.masters()).values():
        try:
            ends = await admin.servers.topic_stats(master, MOVED)
            for queue, offsets in ends.offset_table.items():
                begin = seen.setdefault(queue, offsets.max_offset)
                seen[queue] = offsets.max_offset
                if begin >= offsets.max_offset:
                    continue
                count = min(offsets.max_offset - begin, MOST_EVENTS)
                for message in await admin.servers.messages(master, queue, offsets.max_offset - count, count):
                    if (answer := moved(message.body, message.store_timestamp)) is not None:
                        yield answer
        except TianzhouError:
            continue  # The lines of its groups report that it is away.


COMMANDS = (
    Subcommand(
        "startMonitoring",
        "Watch all consumer groups until Ctrl-C: what each has to consume yet, members that differ or stand still.",
        "-n 127.0.0.1:9876",
        start_monitoring,
    ),
)
