"""Topics: create, change, delete, list, describe (traps.md 1 to 3, wire.md §9.1 to §9.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from tianzhou.admin.reach import Reach, unless_absent
from tianzhou.client.validation import check_new_topic, check_topic
from tianzhou.errors import ClientError, ConfigError, RemotingError, RequestTimeout
from tianzhou.model import BrokerData, MessageQueue, TopicConfig, TopicRoute, names
from tianzhou.model.topic import PERM_INHERIT, PERM_READ, PERM_WRITE
from tianzhou.wire.bodies.groups import GROUP_LIST
from tianzhou.wire.bodies.offsets import TOPIC_STATS, TopicOffset, TopicStats
from tianzhou.wire.bodies.topics import TOPIC_CONFIG, TOPIC_LIST, TOPIC_TABLE
from tianzhou.wire.codes import V5_0_0, RequestCode, ResponseCode

CREATE_ATTEMPTS = 5
VISIBLE_WITHIN_S = 5.0
VISIBLE_STEP_S = 0.05
MAX_QUEUES = 65_535
"""Maximum number of queues of a topic, for reading and for writing."""
PERMISSIONS = (0, PERM_WRITE, PERM_READ, PERM_READ | PERM_WRITE, PERM_READ | PERM_WRITE | PERM_INHERIT)
"""Permissions that a topic may have. A topic with 7 is served as one with 6."""


@dataclass(slots=True)
class TopicDescription:
    """Everything there is to know about a topic.

    Attributes:
        topic: its name.
        route: its queues and brokers.
        configs: its configuration by broker name.
        offsets: first and next offset of each queue, and when its last message was stored.
        groups: the groups that have consumed it.
    """

    topic: str
    route: TopicRoute
    configs: dict[str, TopicConfig] = field(default_factory=dict)
    offsets: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)

    @property
    def message_count(self) -> int:
        """How many messages its queues hold."""
        return sum(o.max_offset - o.min_offset for o in self.offsets.values())


class Topics:
    """Operations on topics.

    Args:
        reach: finds and asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    # --- creating and changing -------------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        *,
        read_queue_nums: int = 8,
        write_queue_nums: int = 8,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: Mapping[str, str | None] | None = None,
        topic_sys_flag: int = 0,
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Create a topic, or replace its configuration, and return when its route shows it.

        Args:
            topic: its name.
            read_queue_nums: queues per broker that are read, 1 to `MAX_QUEUES`.
            write_queue_nums: queues per broker that are written, 1 to `MAX_QUEUES`.
            perm: one of `PERMISSIONS`, a sum of 4 (read) and 2 (write).
            order: whether its queues keep their order while brokers come and go; their numbers are then stored
                at the name servers.
            attributes: attributes to set, as `message.type`, or with None to remove; brokers before 5.0 ignore them.
            topic_sys_flag: a sum of 1 (a topic of a unit) and 2 (units subscribe to it).
            cluster: the cluster whose masters get it; None takes all clusters.
            broker_addr: one broker alone.

        Returns:
            Addresses of the brokers that have it now.

        Raises:
            ClientError: name or numbers cannot be used, or there is no such cluster.
            BrokerError: a broker refuses.
        """
        check_new_topic(topic)
        config = TopicConfig(topic, read_queue_nums, write_queue_nums, perm, topic_sys_flag=topic_sys_flag, order=order)
        _check_numbers(config)
        changes = _changes(attributes)
        if broker_addr is not None:
            masters = {await self._name_of(broker_addr): broker_addr}
            default_topic = names.AUTO_CREATE_TOPIC
        else:
            default_topic, masters = await self._create_targets(cluster)
        for address in masters.values():
            await self._put(address, config, default_topic, changes)
        if order:
            await self._put_order_conf(topic, dict.fromkeys(masters, write_queue_nums))
        await self._until_visible(config, set(masters))
        return list(masters.values())

    async def _create_targets(self, cluster: str | None) -> tuple[str, dict[str, str]]:
        # RocketMQ's tools take the route of the topic that is named like the cluster; every broker has it.
        by_cluster: dict[str, list[BrokerData]] = {}
        for broker in await self._reach.brokers(cluster):
            by_cluster.setdefault(broker.cluster, []).append(broker)
        masters: dict[str, str] = {}
        for name, brokers in by_cluster.items():
            route = await self._reach.route(name)
            for broker in route.broker_datas if route is not None else brokers:
                if broker.master is not None:
                    masters[broker.broker_name] = broker.master
        if not masters:
            raise ClientError("no broker has a master now, so no topic can be created; start one")
        return cluster or next(iter(by_cluster)), masters

    async def _put(self, address: str, config: TopicConfig, default_topic: str, attributes: str | None) -> None:
        for attempt in range(CREATE_ATTEMPTS):
            try:
                await self._reach.call(
                    address,
                    RequestCode.UPDATE_AND_CREATE_TOPIC,
                    topic=config.topic_name,
                    default_topic=default_topic,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm,
                    topic_filter_type=config.topic_filter_type,
                    topic_sys_flag=config.topic_sys_flag,
                    order=config.order,
                    attributes=attributes,
                )
            except RequestTimeout:
                raise  # a server that is silent for so long will be silent again
            except RemotingError:
                # Setting the same configuration twice changes nothing, so asking again does no harm.
                if attempt == CREATE_ATTEMPTS - 1:
                    raise
            else:
                return

    async def _put_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        await self._reach.each_name_server(
            RequestCode.PUT_KV_CONFIG,
            namespace=names.ORDER_TOPIC_CONFIG,
            key=topic,
            value=";".join(f"{broker}:{count}" for broker, count in sorted(queues.items())),
        )

    async def _until_visible(self, config: TopicConfig, broker_names: set[str]) -> None:
        deadline = self._reach.instance.clock.monotonic() + VISIBLE_WITHIN_S
        while True:
            route = await self._reach.route(config.topic_name)
            shown = {
                data.broker_name
                for data in (route.queue_datas if route is not None else [])
                if data.write_queue_nums == config.write_queue_nums and data.read_queue_nums == config.read_queue_nums
            }
            if broker_names <= shown:
                return
            if self._reach.instance.clock.monotonic() >= deadline:
                missing = ", ".join(sorted(broker_names - shown))
                raise ClientError(
                    f"broker {missing} has topic {config.topic_name}, but the name server does not show it yet; it "
                    "will with the broker's next registration"
                )
            await asyncio.sleep(VISIBLE_STEP_S)

    async def _name_of(self, address: str) -> str:
        info = await self._reach.cluster_info()
        for broker in info.broker_addr_table.values():
            if address in broker.broker_addrs.values():
                return broker.broker_name
        known = ", ".join(a for b in info.broker_addr_table.values() for a in b.broker_addrs.values()) or "none"
        raise ClientError(f"no broker is registered with address {address}; known are {known}")

    async def update(
        self,
        topic: str,
        *,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
    ) -> dict[str, TopicConfig]:
        """Change parts of a topic's configuration on every broker that has it; other settings stay.

        Args:
            topic: its name.
            read_queue_nums: queues per broker that are read, 1 to `MAX_QUEUES`.
            write_queue_nums: queues per broker that are written, 1 to `MAX_QUEUES`.
            perm: one of `PERMISSIONS`, a sum of 4 (read) and 2 (write).
            order: see `create`.
            attributes: attributes to set, or with None to remove.

        Returns:
            The new configuration by broker name.

        Raises:
            ClientError: the topic does not exist, or a number cannot be used.
            BrokerError: a broker refuses.
        """
        configs = await self.config(topic)
        if not configs:
            raise ClientError(f"topic {topic} does not exist; create it first")
        changes = _changes(attributes)
        masters = await self._reach.masters_of(topic)
        for broker_name, config in configs.items():
            config.read_queue_nums = config.read_queue_nums if read_queue_nums is None else read_queue_nums
            config.write_queue_nums = config.write_queue_nums if write_queue_nums is None else write_queue_nums
            config.perm = config.perm if perm is None else perm
            config.order = config.order if order is None else order
            _check_numbers(config)
            await self._put(masters[broker_name], config, names.AUTO_CREATE_TOPIC, changes)
            for name, value in (attributes or {}).items():
                if value is None:
                    config.attributes.pop(name, None)
                else:
                    config.attributes[name] = value
        if any(config.order for config in configs.values()):
            await self._put_order_conf(topic, {name: c.write_queue_nums for name, c in configs.items()})
        await self._until_visible(next(iter(configs.values())), set(configs))
        return configs

    async def put(self, broker_addr: str, config: TopicConfig) -> None:
        """Have one broker take a topic's configuration as it is, without waiting for its route.

        Args:
            broker_addr: the broker.
            config: the configuration; its attributes are left as the broker has them.

        Raises:
            BrokerError: the broker refuses.
        """
        await self._put(broker_addr, config, names.AUTO_CREATE_TOPIC, None)

    async def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every broker of a cluster, or of all, and from the name servers.

        Its messages go with it. Deleting what does not exist is no error.

        Args:
            topic: its name.
            cluster: the cluster to delete it from.
        """
        check_topic(topic)
        await self._reach.delete_topic(topic, (await self._reach.masters(cluster)).values(), cluster)
        await self._reach.each_name_server(RequestCode.DELETE_KV_CONFIG, namespace=names.ORDER_TOPIC_CONFIG, key=topic)

    # --- reading ---------------------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """The names of all topics, or of a cluster's, sorted; system topics included."""
        if cluster is None:
            reply = await self._reach.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            reply = await self._reach.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=cluster)
        return sorted(TOPIC_LIST.loads(reply.body).topic_list)

    async def system_names(self) -> set[str]:
        """Topics every broker has for its own use, and those named like clusters and brokers."""
        info = await self._reach.cluster_info()
        masters = await self._reach.masters()
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        found = await self._reach.load_each(masters.values(), code, TOPIC_LIST)
        own = {topic for topics in found.values() for topic in topics.topic_list}
        return own | set(info.cluster_addr_table) | set(info.broker_addr_table)

    async def exists(self, topic: str) -> bool:
        """Whether the name server knows the topic."""
        return await self._reach.route(topic) is not None

    async def route(self, topic: str) -> TopicRoute:
        """A topic's queues and brokers.

        Raises:
            ClientError: the topic does not exist.
        """
        return await self._reach.existing_route(topic)

    async def clusters(self, topic: str) -> list[str]:
        """The clusters that have the topic."""
        return sorted({broker.cluster for broker in (await self.route(topic)).broker_datas})

    async def config(self, topic: str) -> dict[str, TopicConfig]:
        """A topic's configuration by broker name.

        Raises:
            ClientError: the topic does not exist.
        """
        masters = await self._reach.masters_of(topic)

        async def one(address: str) -> TopicConfig | None:
            if await self._reach.version(address) < V5_0_0:
                table = await self._reach.load(address, RequestCode.GET_ALL_TOPIC_CONFIG, TOPIC_TABLE)
                return table.topic_config_table.get(topic)
            code = RequestCode.GET_TOPIC_CONFIG
            return await unless_absent(self._reach.load(address, code, TOPIC_CONFIG, topic=topic, lo=True), None)

        found = await self._reach.each(masters.values(), one)
        return {name: config for name, address in sorted(masters.items()) if (config := found[address]) is not None}

    async def stats(self, topic: str) -> TopicStats:
        """First and next offset of every queue of a topic, also of the empty ones.

        Raises:
            ClientError: the topic does not exist.
        """
        masters = await self._reach.masters_of(topic)
        code, merged = RequestCode.GET_TOPIC_STATS_INFO, TopicStats()
        for found in (await self._reach.load_each(masters.values(), code, TOPIC_STATS, topic=topic)).values():
            merged.offset_table |= found.offset_table
            merged.topic_put_tps += found.topic_put_tps
        merged.offset_table = dict(sorted(merged.offset_table.items()))
        return merged

    async def groups(self, topic: str) -> list[str]:
        """The groups that have consumed a topic.

        Raises:
            ClientError: the topic does not exist.
        """
        masters = await self._reach.masters_of(topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        found = await self._reach.load_each(masters.values(), code, GROUP_LIST, topic=topic)
        return sorted({group for groups in found.values() for group in groups})

    async def describe(self, topic: str) -> TopicDescription:
        """Everything there is to know about a topic.

        Raises:
            ClientError: the topic does not exist.
        """
        route = await self.route(topic)
        configs, stats, groups = await asyncio.gather(self.config(topic), self.stats(topic), self._known_groups(topic))
        return TopicDescription(topic, route, configs, stats.offset_table, groups)

    async def _known_groups(self, topic: str) -> list[str]:
        unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR
        nobody: list[str] = []
        return await unless_absent(self.groups(topic), nobody, *unknown)


def _changes(attributes: Mapping[str, str | None] | None) -> str | None:
    """Changes of attributes as a request has them (wire.md §9.1)."""
    parts = [f"-{name}" if value is None else f"+{name}={value}" for name, value in (attributes or {}).items()]
    return ",".join(parts) or None


def _check_numbers(config: TopicConfig) -> None:
    for noun, value in (("read_queue_nums", config.read_queue_nums), ("write_queue_nums", config.write_queue_nums)):
        if not 1 <= value <= MAX_QUEUES:
            raise ConfigError(f"{noun} of topic {config.topic_name} is {value}; it has to be 1 to {MAX_QUEUES}")
    if config.perm not in PERMISSIONS:
        raise ConfigError(f"perm of topic {config.topic_name} is {config.perm}; add 4 for reading and 2 for writing")
