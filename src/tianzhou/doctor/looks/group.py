"""Observation of a consumer group: settings, members, progress, topics and failed messages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tianzhou.doctor.looks.asking import Asking
from tianzhou.doctor.looks.topic import newest_messages, see_topic
from tianzhou.doctor.observations import (
    BrokerSeen,
    ClusterSeen,
    GroupSeen,
    MemberSeen,
    MessageSeen,
    ProgressSeen,
    TopicSeen,
)
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, names
from tianzhou.wire.bodies.clients import ConsumerConnection, ConsumerRunningInfo
from tianzhou.wire.bodies.offsets import ConsumeStats, QueueTimeSpan, TopicStats

MOST_MEMBERS: Final = 64
"""Maximum number of members that are asked for their status."""
DEFAULT_RETENTION_HOURS: Final = 72.0


async def see_group(asking: Asking, cluster: ClusterSeen, group: str) -> GroupSeen:
    """Read the state of a consumer group.

    Args:
        asking: sends the requests.
        cluster: the servers.
        group: its name.
    """
    masters = list(cluster.masters)
    tables = await asking.each(masters, lambda one: group_table(asking, one))
    configs = {
        one.status.broker_name: table[group] for one, table in zip(masters, tables, strict=True) if group in table
    }
    answers = await asking.each(masters, lambda one: _members(asking, one, group))
    connections = {one.status.address: found for one, found in zip(masters, answers, strict=True) if found is not None}
    subscriptions = {topic: data for found in connections.values() for topic, data in found.subscription_table.items()}
    consumed = await asking.each(masters, lambda one: _stats(asking, one, group, None))
    read = {queue.topic for stats in consumed for queue in stats.offset_table}
    topics = {
        topic: await see_topic(asking, cluster, topic, samples=topic in subscriptions)
        for topic in sorted(read | set(subscriptions))
        if not topic.startswith(names.RETRY_PREFIX)
    }
    progress: list[ProgressSeen] = []
    consume_tps: dict[str, float] = {}
    for one in masters:
        for seen in topics.values():
            if one.status.broker_name in seen.configs:
                tps, of_broker = await _progress(asking, one, group, seen)
                consume_tps[seen.topic] = consume_tps.get(seen.topic, 0.0) + tps
                progress += of_broker
    return GroupSeen(
        group,
        asking.now_ms,
        configs,
        await _all_members(asking, group, connections),
        subscriptions,
        {
            client: expressions
            for found in connections.values()
            for client, expressions in (found.different_subscriptions or {}).items()
        },
        next((found.message_model for found in connections.values()), None),
        progress,
        consume_tps,
        {topic: seen for topic, seen in topics.items() if topic in subscriptions or seen.exists},
        [message for one in masters for message in await _retried(asking, one, group)],
        sum([await _dead_letters(asking, one, group) for one in masters]),
        {one.status.broker_name: one.number("fileReservedTime", DEFAULT_RETENTION_HOURS) for one in masters},
    )


async def group_table(asking: Asking, broker: BrokerSeen) -> dict[str, SubscriptionGroupConfig]:
    """Return all groups of a broker; they are read once."""
    address = broker.status.address
    none: dict[str, SubscriptionGroupConfig] = {}
    return await asking.once(address, "groups", lambda: asking.admin.servers.group_configs(address), none)


async def _members(asking: Asking, broker: BrokerSeen, group: str) -> ConsumerConnection | None:
    address = broker.status.address
    return await asking.ask(
        address, f"members of {group}", lambda: asking.admin.servers.connections(address, group), None
    )


async def _all_members(asking: Asking, group: str, connections: dict[str, ConsumerConnection]) -> list[MemberSeen]:
    found: dict[str, dict[str, list[str]]] = {}
    about: dict[str, tuple[str, int]] = {}
    for broker, one in connections.items():
        for each in one.connection_set:
            found.setdefault(each.client_id, {}).setdefault(broker, []).append(each.client_addr)
            about[each.client_id] = each.language, each.version

    async def member(client_id: str) -> MemberSeen:
        addresses = found[client_id]
        running: ConsumerRunningInfo | None = None
        for broker in addresses:
            running = await asking.ask(
                broker,
                f"running info of {client_id}",
                partial(asking.admin.servers.running_info, broker, group, client_id),
                None,
                relayed=True,
            )
            if running is not None:
                break
        question = f"running info of {client_id}"
        why = "" if running is not None else next(filter(None, (asking.why(one, question) for one in addresses)), "")
        language, version = about[client_id]
        return MemberSeen(client_id, addresses, language, version, running, why)

    asked = sorted(found)[:MOST_MEMBERS]
    if len(found) > MOST_MEMBERS:
        asking.note(group, f"running info of {len(found) - MOST_MEMBERS} members", f"only {MOST_MEMBERS} are asked")
    return await asking.each(asked, member)


async def _stats(asking: Asking, broker: BrokerSeen, group: str, topic: str | None) -> ConsumeStats:
    address = broker.status.address
    return await asking.ask(
        address,
        f"progress of {group}" + (f" in {topic}" if topic else ""),
        lambda: asking.admin.servers.consume_stats(address, group, topic),
        ConsumeStats(),
    )


async def _progress(
    asking: Asking, broker: BrokerSeen, group: str, seen: TopicSeen
) -> tuple[float, list[ProgressSeen]]:
    """Return the messages of a topic that a broker delivers to a group per second, and the group's progress there."""
    address = broker.status.address
    none: list[QueueTimeSpan] = []
    stats = await _stats(asking, broker, group, seen.topic)
    spans = await asking.ask(
        address,
        f"times of {group} in {seen.topic}",
        lambda: asking.admin.servers.time_spans(address, group, seen.topic),
        none,
    )
    waits: dict[MessageQueue, int] = {span.message_queue: span.delay_time for span in spans}
    return stats.consume_tps, [
        ProgressSeen(
            queue,
            at.min_offset if (at := seen.offsets.get(queue)) is not None else 0,
            one.broker_offset,
            one.consumer_offset,
            one.last_timestamp,
            waits.get(queue, 0),
        )
        for queue, one in sorted(stats.offset_table.items())
    ]


async def _topic_stats(asking: Asking, broker: BrokerSeen, topic: str) -> TopicStats:
    address = broker.status.address
    return await asking.ask(
        address, f"offsets of {topic}", lambda: asking.admin.servers.topic_stats(address, topic), TopicStats()
    )


async def _retried(asking: Asking, broker: BrokerSeen, group: str) -> Iterable[MessageSeen]:
    stats = await _topic_stats(asking, broker, names.retry_topic(group))
    return await newest_messages(asking, broker.status.address, stats)


async def _dead_letters(asking: Asking, broker: BrokerSeen, group: str) -> int:
    stats = await _topic_stats(asking, broker, names.dead_letter_topic(group))
    return sum(at.max_offset - at.min_offset for at in stats.offset_table.values())
