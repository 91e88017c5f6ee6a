"""Observation of a topic: its route at each name server, its configuration and offsets, its newest messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tianzhou.doctor.looks.asking import Asking
from tianzhou.doctor.observations import BrokerSeen, ClusterSeen, MessageSeen, TopicSeen
from tianzhou.model import MessageExt, MessageQueue, TopicConfig, TopicRoute
from tianzhou.wire.bodies.offsets import TopicOffset, TopicStats

SAMPLES: Final = 8
"""Number of newest messages to read of each queue."""
SAMPLED_QUEUES: Final = 16


async def see_topic(asking: Asking, cluster: ClusterSeen, name: str, *, samples: bool = True) -> TopicSeen:
    """Read the state of a topic.

    Args:
        asking: sends the requests.
        cluster: the servers.
        name: the topic.
        samples: whether to read its newest messages.
    """
    masters = list(cluster.masters)
    servers = asking.admin.servers

    async def route(address: str) -> TopicRoute | None:
        return await asking.ask(address, f"route of {name}", lambda: servers.route(address, name), None)

    answering = [one.address for one in cluster.name_servers if one.info is not None]
    routes = dict(zip(answering, await asking.each(answering, route), strict=True))
    tables = await asking.each(masters, lambda one: topic_table(asking, one))
    configs = {one.status.broker_name: table[name] for one, table in zip(masters, tables, strict=True) if name in table}

    async def stats(one: BrokerSeen) -> TopicStats:
        address = one.status.address
        if one.status.broker_name not in configs:
            return TopicStats()
        return await asking.ask(address, f"offsets of {name}", lambda: servers.topic_stats(address, name), TopicStats())

    offsets: dict[MessageQueue, TopicOffset] = {}
    newest: list[MessageSeen] = []
    put_tps = 0.0
    for one, found in zip(masters, await asking.each(masters, stats), strict=True):
        offsets |= found.offset_table
        put_tps += found.topic_put_tps
        if samples:
            newest += await newest_messages(asking, one.status.address, found)
    return TopicSeen(
        name,
        routes,
        configs,
        offsets,
        put_tps,
        newest,
        frozenset(one.status.broker_name for one in masters),
        frozenset(one.status.broker_name for one in masters if one.setting("autoCreateTopicEnable", "true") == "true"),
    )


async def topic_table(asking: Asking, broker: BrokerSeen) -> dict[str, TopicConfig]:
    """Return all topics of a broker; they are read once."""
    address = broker.status.address
    none: dict[str, TopicConfig] = {}
    return await asking.once(address, "topics", lambda: asking.admin.servers.topic_configs(address), none)


async def newest_messages(
    asking: Asking, address: str, stats: TopicStats, count: int = SAMPLES
) -> Sequence[MessageSeen]:
    """Return the newest messages of a topic's queues on a broker, without their bodies."""
    queues = [(queue, at) for queue, at in stats.offset_table.items() if at.max_offset > at.min_offset]

    async def read(found: tuple[MessageQueue, TopicOffset]) -> list[MessageExt]:
        queue, at = found
        start = max(at.max_offset - count, at.min_offset)
        none: list[MessageExt] = []
        return await asking.ask(
            address, f"messages of {queue}", lambda: asking.admin.servers.messages(address, queue, start, count), none
        )

    messages = [message for found in await asking.each(queues[:SAMPLED_QUEUES], read) for message in found]
    return [
        MessageSeen(
            MessageQueue(one.topic, one.broker_name, one.queue_id), one.queue_offset, one.msg_id, one.tags,
            one.properties, one.born_timestamp, one.store_timestamp, one.born_host, one.reconsume_times,
        )
        for one in messages
    ]  # fmt: skip
