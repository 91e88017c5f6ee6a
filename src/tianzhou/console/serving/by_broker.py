"""Topics and groups from the brokers that answer, while other brokers do not answer.

The console's client first requests a topic or group from all brokers together, which fails when one of them does not
answer. Then it asks each broker separately, with a separate timeout, so that the page shows the other answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from tianzhou.admin import Admin
from tianzhou.admin.progress import GroupLag, QueueLag
from tianzhou.admin.topics import TopicDescription
from tianzhou.errors import RemotingError, TianzhouError
from tianzhou.model import TopicConfig
from tianzhou.model.topic import SubscriptionGroupConfig
from tianzhou.wire.bodies.clients import ConsumerConnection
from tianzhou.wire.bodies.offsets import TopicStats

T = TypeVar("T")
ALL_WITHIN_S: Final = 2.0
"""Maximum seconds to wait for all brokers together, before each broker is asked separately."""
EACH_WITHIN_S: Final = 2.0
"""Maximum seconds to wait for each broker."""


@dataclass(slots=True)
class Answers(Generic[T]):
    """Combined answers of brokers.

    Attributes:
        found: the combined answers.
        failures: why brokers have not answered, by name.
    """

    found: T
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class GroupDescription:
    """A group with its settings, progress and members.

    Attributes:
        configs: configuration by broker name.
        lag: progress by queue.
        members: connected members; None when no member is connected.
    """

    configs: dict[str, SubscriptionGroupConfig]
    lag: GroupLag
    members: ConsumerConnection | None


async def ask_each(
    masters: Mapping[str, str], ask: Callable[[str], Awaitable[T]], within_s: float = EACH_WITHIN_S
) -> Answers[dict[str, T]]:
    """Return the answers of the brokers that answer, by broker name.

    Args:
        masters: addresses by broker name.
        ask: sends the requests to an address.
        within_s: timeout for each broker, in seconds.
    """
    answers: Answers[dict[str, T]] = Answers({})

    async def one(name: str, address: str) -> None:
        try:
            async with asyncio.timeout(within_s):
                answers.found[name] = await ask(address)
        except TimeoutError:
            answers.failures[name] = f"no answer within {within_s:g} s from {address}"
        except (TianzhouError, OSError) as error:
            answers.failures[name] = str(error)

    await asyncio.gather(*(one(name, address) for name, address in masters.items()))
    return answers


async def _together(work: Awaitable[T]) -> T | None:
    """Return the answer of all brokers; None when a broker has not answered in time."""
    try:
        async with asyncio.timeout(ALL_WITHIN_S):
            return await work
    except (TimeoutError, RemotingError, OSError):
        return None


async def describe_topic(admin: Admin, topic: str) -> Answers[TopicDescription]:
    """Return a topic from the brokers that answer.

    Raises:
        ClientError: the topic does not exist.
        RemotingError: no name server answers.
    """
    if (whole := await _together(admin.topics.describe(topic))) is not None:
        return Answers(whole)
    route, servers = await admin.topics.route(topic), admin.servers
    masters = {data.broker_name: data.master for data in route.broker_datas if data.master is not None}

    async def one(address: str) -> tuple[TopicStats, list[str], TopicConfig | None]:
        stats = await servers.topic_stats(address, topic)
        groups, configs = await asyncio.gather(servers.topic_groups(address, topic), servers.topic_configs(address))
        return stats, groups, configs.get(topic)

    answers = await ask_each(masters, one)
    found = TopicDescription(topic, route)
    for name, (stats, groups, config) in sorted(answers.found.items()):
        found.offsets |= stats.offset_table
        found.groups += [group for group in groups if group not in found.groups]
        if config is not None:
            found.configs[name] = config
    found.offsets = dict(sorted(found.offsets.items()))
    found.groups.sort()
    return Answers(found, answers.failures)


async def describe_group(admin: Admin, group: str) -> Answers[GroupDescription]:
    """Return a group from the brokers that answer. Queues have no members when a broker is missing.

    Raises:
        ClientError: no broker is registered.
        RemotingError: no name server answers.
    """
    groups, servers = admin.groups, admin.servers
    together = asyncio.gather(groups.config(group), groups.lag(group, clients=True), groups.connections(group))
    if (whole := await _together(together)) is not None:
        return Answers(GroupDescription(*whole))
    masters = await admin.cluster.masters()
    configs = await ask_each(masters, servers.group_configs)
    stats = await ask_each(
        {name: masters[name] for name in configs.found}, lambda address: servers.consume_stats(address, group)
    )
    members = await ask_each(
        {name: masters[name] for name in stats.found}, lambda address: servers.connections(address, group)
    )
    lag = GroupLag(group)
    for one in stats.found.values():
        lag.consume_tps += one.consume_tps
        lag.queues += [
            QueueLag(queue, at.broker_offset, at.consumer_offset, at.last_timestamp, None, at.pull_offset)
            for queue, at in one.offset_table.items()
        ]
    lag.queues.sort(key=lambda entry: entry.queue)
    own = {name: table[group] for name, table in sorted(configs.found.items()) if group in table}
    connected = next((one for one in members.found.values() if one is not None), None)
    return Answers(GroupDescription(own, lag, connected), configs.failures | stats.failures | members.failures)
