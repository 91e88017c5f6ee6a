"""Topics: create, change, delete, list, describe (traps.md 1 to 3, wire.md §9.1 to §9.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tianzhou.admin.reach import Reach, unless_absent
from tianzhou.client.validation import check_new_topic, check_topic
from tianzhou.errors import AlreadyExists, ClientError, ConfigError, RemotingError, RequestTimeout
from tianzhou.model import BrokerData, MessageQueue, TopicConfig, TopicRoute, names
from tianzhou.model.topic import PERM_INHERIT, PERM_READ, PERM_WRITE
from tianzhou.wire.bodies.groups import GROUP_LIST
from tianzhou.wire.bodies.offsets import TOPIC_STATS, TopicOffset, TopicStats
from tianzhou.wire.bodies.topics import TOPIC_CONFIG, TOPIC_LIST, TOPIC_TABLE
from tianzhou.wire.codes import V5_0_0, RequestCode, ResponseCode

if TYPE_CHECKING:
    from tianzhou.admin.queue_changes import QueueChange
    from tianzhou.admin.queue_numbers import QueuePlan

CREATE_ATTEMPTS = 5
VISIBLE_WITHIN_S = 5.0
VISIBLE_STEP_S = 0.05
MAX_QUEUES = 65_535
"""Maximum number of read queues, and of write queues, of a topic."""
PERMISSIONS = (0, PERM_WRITE, PERM_READ, PERM_READ | PERM_WRITE, PERM_READ | PERM_WRITE | PERM_INHERIT)
"""Valid permissions of a topic. A topic with permission 7 is served as one with 6."""


@dataclass(slots=True)
class TopicDescription:
    """The complete description of a topic.

    Attributes:
        topic: name of the topic.
        route: its queues and brokers.
        configs: its configuration by broker name.
        offsets: first and next offset of each queue, and the store time of its last message.
        groups: the groups that have consumed it.
    """

    topic: str
    route: TopicRoute
    configs: dict[str, TopicConfig] = field(default_factory=dict)
    offsets: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)

    @property
    def message_count(self) -> int:
        """Number of stored messages in all queues."""
        return sum(o.max_offset - o.min_offset for o in self.offsets.values())


class Topics:
    """Operations on topics.

    Args:
        reach: finds the servers and sends the requests.
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
        only_new: bool = False,
    ) -> list[str]:
        """Create a topic, or replace its configuration, and return when its route is visible.

        Args:
            topic: name of the topic.
            read_queue_nums: number of read queues per broker, 1 to `MAX_QUEUES`.
            write_queue_nums: number of write queues per broker, 1 to `MAX_QUEUES`.
            perm: one of `PERMISSIONS`, a sum of 4 (read) and 2 (write).
            order: whether the topic's queues stay fixed while brokers come and go; the numbers of queues are then
                stored at the name servers.
            attributes: attributes to set, such as `message.type`, or to remove with None; brokers before 5.0 ignore
                them.
            topic_sys_flag: a sum of 1 (the topic belongs to a unit) and 2 (units subscribe to it).
            cluster: the cluster whose masters get the topic; None takes all clusters.
            broker_addr: address of the only broker to change; None takes all brokers.
            only_new: whether to refuse an existing name. RocketMQ has no atomic request for this, so two tools that
                create the same topic at the same moment may both succeed.

        Returns:
            Addresses of the brokers that have the topic now.

        Raises:
            AlreadyExists: the topic exists, and `only_new` is set.
            ClientError: the name or a number is invalid, or the cluster does not exist.
            BrokerError: a broker refuses.
        """
        check_new_topic(topic)
        config = TopicConfig(topic, read_queue_nums, write_queue_nums, perm, topic_sys_flag=topic_sys_flag, order=order)
        _check_numbers(config)
        changes = _changes(attributes)
        if only_new and await self.exists(topic):
            raise AlreadyExists(f"topic {topic} exists already; change it with update, or choose another name")
        if broker_addr is not None:
            masters = {await self._name_of(broker_addr): broker_addr}
            default_topic = names.AUTO_CREATE_TOPIC
        else:
            default_topic, masters = await self._create_targets(cluster)
        for address in masters.values():
            await self._put(address, config, default_topic, changes)
        if order:
            await self._put_order_conf(topic, dict.fromkeys(masters, write_queue_nums))
        await self._until_visible(topic, dict.fromkeys(masters, (read_queue_nums, write_queue_nums)))
        return list(masters.values())

    async def _create_targets(self, cluster: str | None) -> tuple[str, dict[str, str]]:
        # RocketMQ's tools use the route of the topic that has the cluster's name; every broker has this topic.
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
                raise  # a server that did not answer in that time will not answer a repeated request either
            except RemotingError:
                # Setting the same configuration twice changes nothing, so a repeated request does no harm.
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

    async def _until_visible(self, topic: str, numbers: Mapping[str, tuple[int, int]]) -> None:
        deadline = self._reach.instance.clock.monotonic() + VISIBLE_WITHIN_S
        while True:
            route = await self._reach.route(topic)
            shown = {
                data.broker_name
                for data in (route.queue_datas if route is not None else [])
                if (data.read_queue_nums, data.write_queue_nums) == numbers.get(data.broker_name)
            }
            if shown == numbers.keys():
                return
            if self._reach.instance.clock.monotonic() >= deadline:
                missing = ", ".join(sorted(numbers.keys() - shown))
                raise ClientError(
                    f"broker {missing} has topic {topic}, but the name server does not show it yet; it will with the "
                    "broker's next registration"
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
        brokers: Collection[str] | None = None,
    ) -> dict[str, TopicConfig]:
        """Change some settings of a topic on every broker that has it. Other settings stay unchanged.

        Queue numbers change at once. `change_queues` changes them in an order in which consumers can read every
        message.

        Args:
            topic: name of the topic.
            read_queue_nums: number of read queues per broker, 1 to `MAX_QUEUES`.
            write_queue_nums: number of write queues per broker, 1 to `MAX_QUEUES`.
            perm: one of `PERMISSIONS`, a sum of 4 (read) and 2 (write).
            order: see `create`.
            attributes: attributes to set, or with None to remove.
            brokers: names of the brokers to change; None for all brokers that have the topic.

        Returns:
            The new configuration of the changed brokers, by broker name.

        Raises:
            ClientError: the topic does not exist, does not exist on one of these brokers, or a number is invalid.
            BrokerError: a broker refuses.
        """
        everywhere = await self.config(topic)
        if not everywhere:
            raise ClientError(f"topic {topic} does not exist; create it first")
        configs = on_brokers(topic, everywhere, brokers)
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
            await self._put_order_conf(topic, {name: c.write_queue_nums for name, c in everywhere.items()})
        await self._until_visible(
            topic, {name: (one.read_queue_nums, one.write_queue_nums) for name, one in configs.items()}
        )
        return configs

    async def plan_queues(
        self,
        topic: str,
        *,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        brokers: Collection[str] | None = None,
    ) -> QueuePlan:
        """Return the plan of `change_queues`: its steps, the dropped queues, and their unread messages by group.

        Broadcasting groups are left out, because their members store the offsets.

        Args:
            topic: name of the topic.
            read_queue_nums: number of read queues per broker, 1 to `MAX_QUEUES`; None leaves each broker's number.
            write_queue_nums: number of write queues per broker, 1 to `MAX_QUEUES`; None leaves each broker's number.
            brokers: names of the brokers to change; None for all brokers that have the topic.

        Raises:
            ClientError: the topic does not exist, does not exist on one of these brokers, or a number is invalid.
        """
        return await self._queue_changes(topic, read_queue_nums, write_queue_nums, brokers).plan()

    async def change_queues(
        self,
        topic: str,
        *,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        brokers: Collection[str] | None = None,
        drop_unread: bool = False,
    ) -> QueuePlan:
        """Change a topic's queue numbers in the order of `queue_steps`, and return the plan of the remaining steps.

        Queues of a broker are dropped only after every group has consumed them. Call again when the groups have
        consumed them. The call does not repeat finished steps.

        Args:
            topic: name of the topic.
            read_queue_nums: number of read queues per broker, 1 to `MAX_QUEUES`; None leaves each broker's number.
            write_queue_nums: number of write queues per broker, 1 to `MAX_QUEUES`; None leaves each broker's number.
            brokers: names of the brokers to change; None for all brokers that have the topic.
            drop_unread: whether to drop queues that have unread messages. The messages stay in the store. They are
                readable again when the topic has as many read queues as before.

        Returns:
            The plan of the remaining steps: empty when all steps are done, otherwise with the unread messages.

        Raises:
            ClientError: the topic does not exist, does not exist on one of these brokers, or a number is invalid.
            BrokerError: a broker refuses.
        """
        return await self._queue_changes(topic, read_queue_nums, write_queue_nums, brokers).run(drop_unread)

    def _queue_changes(
        self, topic: str, read: int | None, write: int | None, brokers: Collection[str] | None
    ) -> QueueChange:
        from tianzhou.admin.groups import Groups
        from tianzhou.admin.queue_changes import QueueChange

        for noun, value in (("read_queue_nums", read), ("write_queue_nums", write)):
            if value is not None:
                _check_number(topic, noun, value)
        return QueueChange(self, Groups(self._reach), self._reach, topic, read, write, brokers)

    async def put(self, broker_addr: str, config: TopicConfig) -> None:
        """Store a topic's configuration unchanged on one broker, without waiting for its route.

        Args:
            broker_addr: address of the broker.
            config: the configuration; its attributes stay as the broker has them.

        Raises:
            BrokerError: the broker refuses.
        """
        await self._put(broker_addr, config, names.AUTO_CREATE_TOPIC, None)

    async def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every broker of a cluster, or of all clusters, and from the name servers.

        Its messages are deleted as well. Deleting a missing topic is no error.

        Args:
            topic: name of the topic.
            cluster: the cluster to delete the topic from; None takes all clusters.
        """
        check_topic(topic)
        await self._reach.delete_topic(topic, (await self._reach.masters(cluster)).values(), cluster)
        await self._reach.each_name_server(RequestCode.DELETE_KV_CONFIG, namespace=names.ORDER_TOPIC_CONFIG, key=topic)

    # --- reading ---------------------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of a cluster's topics, sorted, including system topics."""
        if cluster is None:
            reply = await self._reach.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            reply = await self._reach.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=cluster)
        return sorted(TOPIC_LIST.loads(reply.body).topic_list)

    async def system_names(self) -> set[str]:
        """Return the brokers' system topics, and the topics that are named like clusters and brokers."""
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
        """Return a topic's queues and brokers.

        Raises:
            ClientError: the topic does not exist.
        """
        return await self._reach.existing_route(topic)

    async def clusters(self, topic: str) -> list[str]:
        """Return the clusters that have the topic."""
        return sorted({broker.cluster for broker in (await self.route(topic)).broker_datas})

    async def config(self, topic: str) -> dict[str, TopicConfig]:
        """Return a topic's configuration by broker name.

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
        """Return the first and next offset of every queue of a topic, including empty queues.

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
        """Return the groups that have consumed a topic.

        Raises:
            ClientError: the topic does not exist.
        """
        masters = await self._reach.masters_of(topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        found = await self._reach.load_each(masters.values(), code, GROUP_LIST, topic=topic)
        return sorted({group for groups in found.values() for group in groups})

    async def describe(self, topic: str) -> TopicDescription:
        """Return the complete description of a topic.

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
    """Return changes of attributes in the format of a request (wire.md §9.1)."""
    parts = [f"-{name}" if value is None else f"+{name}={value}" for name, value in (attributes or {}).items()]
    return ",".join(parts) or None


def on_brokers(topic: str, configs: dict[str, TopicConfig], brokers: Collection[str] | None) -> dict[str, TopicConfig]:
    """Return a topic's configurations on the named brokers.

    Args:
        topic: name of the topic.
        configs: its configurations by broker name.
        brokers: names of the brokers; None for all.

    Raises:
        ClientError: one of the brokers does not have the topic.
    """
    if brokers is None:
        return configs
    if missing := sorted(set(brokers) - configs.keys()):
        raise ClientError(
            f"topic {topic} is not on broker {', '.join(missing)}; it is on {', '.join(sorted(configs)) or 'none'}"
        )
    return {name: config for name, config in configs.items() if name in brokers}


def _check_numbers(config: TopicConfig) -> None:
    _check_number(config.topic_name, "read_queue_nums", config.read_queue_nums)
    _check_number(config.topic_name, "write_queue_nums", config.write_queue_nums)
    if config.perm not in PERMISSIONS:
        raise ConfigError(f"perm of topic {config.topic_name} is {config.perm}; add 4 for reading and 2 for writing")


def _check_number(topic: str, noun: str, value: int) -> None:
    if not 1 <= value <= MAX_QUEUES:
        raise ConfigError(f"{noun} of topic {topic} is {value}; it has to be 1 to {MAX_QUEUES}")
