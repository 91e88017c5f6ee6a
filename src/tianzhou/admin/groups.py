"""Consumer groups: list, create, delete, lag, reset (wire.md §7.10, §9.3, §9.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tianzhou.admin.offset_resets import LATEST_TIMESTAMP, OffsetResets
from tianzhou.admin.progress import GroupLag, OffsetChange, QueueLag, check_offset
from tianzhou.admin.reach import Reach, masters_among, unless_absent
from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.routes import subscribe_queues
from tianzhou.client.validation import DEFAULT_CONSUMER_GROUP, check_group
from tianzhou.errors import AlreadyExists, ClientError, ConfigError, TianzhouError
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, names
from tianzhou.wire.bodies.clients import (
    CONSUMER_CONNECTION,
    DIRECT_CONSUMPTION,
    MESSAGE_REQUEST_MODE,
    RUNNING_INFO,
    ConsumerConnection,
    ConsumerRunningInfo,
    DirectConsumption,
    MessageRequestMode,
)
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP, SUBSCRIPTION_GROUP_TABLE, SUBSCRIPTION_GROUPS
from tianzhou.wire.bodies.offsets import CONSUME_STATS, ConsumeStats
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.ids import parse_offset_msg_id

SYSTEM_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
        "CID_RMQ_SYS_TRANS",
        "CID_DefaultHeartBeatSyncerTopic",
    }
)
"""Groups that exist on every broker (wire.md §9.3)."""


class Groups:
    """Operations on consumer groups.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._resets = OffsetResets(reach, self.connections)

    # --- the groups themselves -------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None, system: bool = False) -> list[str]:
        """Return the names of all groups, sorted.

        Args:
            cluster: the cluster whose groups to return; None takes all clusters.
            system: whether to include the groups that exist on every broker.
        """
        found: set[str] = set()
        for table in (await self._tables(cluster)).values():
            found.update(table)
        return sorted(found if system else found - SYSTEM_GROUPS)

    async def _tables(self, cluster: str | None) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        masters = await self._reach.masters(cluster)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        found = await self._reach.load_each(masters.values(), code, SUBSCRIPTION_GROUP_TABLE)
        return {name: found[address].subscription_group_table for name, address in sorted(masters.items())}

    async def config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Return a group's configuration by broker name; empty when no broker has the group."""
        tables = await self._tables(None)
        return {name: table[group] for name, table in tables.items() if group in table}

    async def create(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker_addr: str | None = None,
        only_new: bool = False,
        **settings: Any,
    ) -> SubscriptionGroupConfig:
        """Create a group, or replace its configuration, on every broker.

        Omitted settings get their defaults, even when the group exists. `update` changes single settings.

        Args:
            group: name of the group.
            cluster: the cluster whose masters get the group; None takes all clusters.
            broker_addr: address of the only broker to change; None takes all brokers.
            only_new: whether to refuse a name that exists on a broker. RocketMQ has no atomic request for this, so two
                tools that create the same group at the same moment may both succeed.
            settings: fields of `SubscriptionGroupConfig`, such as `retry_max_times=3`.

        Raises:
            AlreadyExists: a broker has the group, and `only_new` is set.
            ClientError: the name is invalid.
            ConfigError: a setting does not exist.
        """
        check_group(group, default=DEFAULT_CONSUMER_GROUP)
        try:
            config = SubscriptionGroupConfig(group, **settings)
        except TypeError as error:
            known = ", ".join(f for f in SubscriptionGroupConfig.__dataclass_fields__ if f != "group_name")
            raise ConfigError(f"group {group}: {error}; settings are {known}") from None
        if only_new and await self.config(group):
            raise AlreadyExists(f"group {group} exists already; change it with update, or choose another name")
        await self._put(config, [broker_addr] if broker_addr else (await self._reach.masters(cluster)).values())
        return config

    async def create_several(self, configs: Iterable[SubscriptionGroupConfig], broker_addr: str) -> None:
        """Create several groups at once on a broker, or replace their configuration (225).

        Raises:
            BrokerError: the broker refuses, or does not support the request, as brokers of RocketMQ 4.
        """
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        await self._reach.call(broker_addr, code, body=SUBSCRIPTION_GROUPS.dumps(list(configs)))

    async def set_request_mode(
        self, group: str, topic: str, mode: str, broker_addr: str, *, pop_share_queue_num: int = 0
    ) -> None:
        """Set whether a group's members pull or pop a topic's messages (401).

        Args:
            group: the group.
            topic: the topic.
            mode: `PULL` or `POP`.
            broker_addr: address of the broker.
            pop_share_queue_num: number of queues that a member shares in POP mode.

        Raises:
            BrokerError: the broker refuses, or does not support POP.
        """
        body = MESSAGE_REQUEST_MODE.dumps(MessageRequestMode(topic, group, mode, pop_share_queue_num))
        await self._reach.call(broker_addr, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)

    async def clone_offsets(self, source: str, target: str, topic: str, *, offline: bool = False) -> None:
        """Copy the offsets of a group in a topic to another group (314).

        Args:
            source: the group with the offsets.
            target: the group that receives the offsets.
            topic: the topic.
            offline: whether to copy also when the source has no connected members.

        Raises:
            ClientError: the source has consumed nothing, so it has no retry topic.
            BrokerError: a broker refuses.
        """
        masters = await self._reach.masters_of(names.retry_topic(source))
        await self._reach.each(
            masters.values(),
            lambda address: self._reach.call(
                address,
                RequestCode.CLONE_GROUP_OFFSET,
                src_group=source,
                dest_group=target,
                topic=topic,
                offline=offline,
            ),
        )

    async def update(self, group: str, **settings: Any) -> dict[str, SubscriptionGroupConfig]:
        """Change some settings of a group on every broker that has it. Other settings stay unchanged.

        Returns:
            The new configuration by broker name.

        Raises:
            ClientError: no broker has the group.
            ConfigError: a setting does not exist.
        """
        configs = await self.config(group)
        if not configs:
            raise ClientError(f"no broker has group {group}; create it first")
        masters = await self._reach.masters()
        for name, config in configs.items():
            # Brokers read attributes as a list of changes, so an empty list leaves them unchanged.
            config.attributes = {}
            for setting, value in settings.items():
                if setting not in SubscriptionGroupConfig.__dataclass_fields__ or setting == "group_name":
                    raise ConfigError(f"group {group}: there is no setting {setting}")
                setattr(config, setting, value)
            await self._put(config, [masters[name]])
        return configs

    async def _put(self, config: SubscriptionGroupConfig, addresses: Iterable[str]) -> None:
        body = SUBSCRIPTION_GROUP.dumps(config)
        await self._reach.each(
            addresses,
            lambda address: self._reach.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body),
        )

    async def delete(
        self,
        group: str,
        *,
        remove_offsets: bool = True,
        remove_topics: bool = True,
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> None:
        """Delete a group from every broker of a cluster, or of all clusters.

        Args:
            group: name of the group.
            remove_offsets: whether to delete its offsets.
            remove_topics: whether to delete its retry and dead-letter topics with their messages.
            cluster: the cluster to delete the group from; None takes all clusters.
            broker_addr: address of the only broker to change; None takes all brokers.
        """
        addresses = [broker_addr] if broker_addr else list((await self._reach.masters(cluster)).values())

        async def one(address: str) -> None:
            request = self._reach.call(
                address,
                RequestCode.DELETE_SUBSCRIPTIONGROUP,
                group_name=group,
                clean_offset=remove_offsets,
                remove_offset=remove_offsets,
            )
            await unless_absent(request, None)

        await self._reach.each(addresses, one)
        if remove_topics:
            for topic in (names.retry_topic(group), names.dead_letter_topic(group)):
                if await self._reach.route(topic) is not None:
                    await self._reach.delete_topic(topic, addresses)

    # --- members ---------------------------------------------------------------------------------------------

    async def connections(self, group: str, *, broker_addr: str | None = None) -> ConsumerConnection | None:
        """Return the group's connected members and their subscriptions; None when no member is connected.

        Args:
            group: the group.
            broker_addr: address of the only broker to ask; None asks all brokers.
        """
        addresses = [broker_addr] if broker_addr else (await self._masters_of_group(group)).values()
        merged: ConsumerConnection | None = None
        for address in addresses:
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            request = self._reach.load(address, code, CONSUMER_CONNECTION, consumer_group=group)
            found = await unless_absent(request, None, ResponseCode.CONSUMER_NOT_ONLINE)
            if merged is None or found is None:
                merged = found if merged is None else merged
            else:
                known = {connection.client_id for connection in merged.connection_set}
                merged.connection_set += [c for c in found.connection_set if c.client_id not in known]
        return merged

    async def running_info(self, group: str, client_id: str, *, stack: bool = False) -> ConsumerRunningInfo:
        """Return the report of a connected member about itself (wire.md §7.11).

        Args:
            group: the group.
            client_id: the member.
            stack: whether the report includes a dump of the member's threads.
        """
        failure: TianzhouError | None = None
        for address in (await self._masters_of_group(group)).values():
            try:
                return await self._reach.load(
                    address,
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    RUNNING_INFO,
                    consumer_group=group,
                    client_id=client_id,
                    jstack_enable=stack,
                )
            except TianzhouError as error:
                failure = error
        raise failure or ClientError(f"no broker knows member {client_id} of group {group}")

    async def consume_directly(self, group: str, client_id: str, offset_msg_id: str, topic: str) -> DirectConsumption:
        """Let a connected member consume one message at once, outside its queues (wire.md §7.12).

        Args:
            group: the group.
            client_id: the member.
            offset_msg_id: the message's offset id.
            topic: the message's topic.
        """
        host, port, _ = parse_offset_msg_id(offset_msg_id)
        return await self._reach.load(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            DIRECT_CONSUMPTION,
            consumer_group=group,
            client_id=client_id,
            msg_id=offset_msg_id,
            topic=topic,
        )

    async def _masters_of_group(self, group: str) -> dict[str, str]:
        """Return the brokers with the group's retry topic, or all brokers when it has none."""
        route = await self._reach.route(names.retry_topic(group))
        masters = masters_among(route.broker_datas) if route is not None else {}
        return masters or await self._reach.masters()

    # --- lag -------------------------------------------------------------------------------------------------

    async def lag(self, group: str, topic: str | None = None, *, clients: bool = False) -> GroupLag:
        """Return a group's lag queue by queue, also for a group without connected members.

        Args:
            group: the group.
            topic: one topic; None takes all topics that the group has consumed.
            clients: whether to find the member that reads each queue, which requires a request to every member.

        Raises:
            ClientError: the topic does not exist.
        """
        masters = await (self._masters_of_group(group) if topic is None else self._reach.masters_of(topic))

        async def one(address: str) -> ConsumeStats:
            code = RequestCode.GET_CONSUME_STATS
            request = self._reach.load(address, code, CONSUME_STATS, consumer_group=group, topic=topic)
            return await unless_absent(request, ConsumeStats())

        owners = await self._owners(group) if clients else {}
        result = GroupLag(group)
        for stats in (await self._reach.each(masters.values(), one)).values():
            result.consume_tps += stats.consume_tps
            result.queues += [
                QueueLag(queue, p.broker_offset, p.consumer_offset, p.last_timestamp, owners.get(queue), p.pull_offset)
                for queue, p in stats.offset_table.items()
                if topic is None or queue.topic == topic
            ]
        result.queues.sort(key=lambda entry: entry.queue)
        return result

    async def _owners(self, group: str) -> dict[MessageQueue, str]:
        connection = await self.connections(group)
        members = [c.client_id for c in connection.connection_set] if connection is not None else []
        infos = await asyncio.gather(*(self.running_info(group, member) for member in members), return_exceptions=True)
        return {
            queue: member
            for member, info in zip(members, infos, strict=True)
            if isinstance(info, ConsumerRunningInfo)
            for queue in info.mq_table
        }

    # --- reset -----------------------------------------------------------------------------------------------

    async def reset(
        self,
        group: str,
        topic: str,
        *,
        to_time_ms: int | None = None,
        to_offset: int | None = None,
        to_earliest: bool = False,
        to_latest: bool = False,
        to_offsets: Mapping[MessageQueue, int] | None = None,
        queues: Collection[MessageQueue] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Move a group to other offsets in a topic, with or without connected members.

        Give exactly one of the four destinations, or `to_offsets`. Connected members of a RocketMQ 5 broker or of
        Tianzhou move at their next pull. Connected members of a 4.x broker move after about ten seconds.

        Args:
            group: the group.
            topic: the topic.
            to_time_ms: destination: the first message stored at or after this time, in ms since the epoch.
            to_offset: destination: this offset, which must be within the range of each queue.
            to_earliest: destination: the first stored message.
            to_latest: destination: behind the last stored message.
            to_offsets: offset by queue; a queue whose range ends before the offset gets the end of its range. Together
                with a destination, these are the offsets of an earlier dry run. They replace the destination, except
                where a broker passes the reset on to connected members: a 4.x broker, or
                useServerSideResetOffset=false.
            queues: the queues to reset; None takes all queues of `to_offsets`, or of the topic when a destination is
                given.
            dry_run: whether to return the changes without making them.

        Returns:
            The queues with the group's offsets before and after the reset.

        Raises:
            ClientError: no destination or several are given, the topic or a queue does not exist, or a broker that
                passes resets on to connected members cannot move them there.
            OffsetOutsideQueue: `to_offset` is below the first offset of a queue or above the offset behind its last
                message. Nothing was changed.
            BrokerError: a broker refuses.
        """
        destinations = sum([to_time_ms is not None, to_offset is not None, to_earliest, to_latest])
        if destinations > 1 or (not destinations and to_offsets is None):
            raise ClientError("a reset goes to one place: give one of to_time_ms, to_offset, to_earliest, to_latest")
        planned = to_offsets or {}
        if not destinations:
            queues = planned.keys() if queues is None else planned.keys() & set(queues)
        masters = await self._reach.masters_of(topic)
        route = await self._reach.route(topic)
        every = subscribe_queues(topic, route) if route is not None else []
        chosen = every if queues is None else sorted(queues)
        if unknown := [str(queue) for queue in chosen if queue not in every or queue.broker_name not in masters]:
            raise ClientError(f"{', '.join(unknown)}: no such queue, or its broker has no master now")

        async def plan(queue: MessageQueue) -> tuple[OffsetChange, int, int]:
            address, remoting = masters[queue.broker_name], self._reach.remoting
            before = await rpc.query_offset(remoting, address, group, queue)
            low, high = await asyncio.gather(
                rpc.min_offset(remoting, address, queue), rpc.max_offset(remoting, address, queue)
            )
            if queue in planned:
                after = planned[queue]
            elif to_time_ms is not None:
                after = await rpc.search_offset(remoting, address, queue, to_time_ms)
            elif to_offset is not None:
                after = to_offset
            else:
                after = low if to_earliest else high
            return OffsetChange(queue, before, after), low, high

        plans = await asyncio.gather(*map(plan, chosen))
        if to_offset is not None:
            check_offset(to_offset, [(change.queue, low, high) for change, low, high in plans])
        changes = [replace(change, after=min(max(change.after, low), high)) for change, low, high in plans]
        if dry_run:
            return changes
        timestamp = LATEST_TIMESTAMP if to_latest else 0 if to_earliest else to_time_ms
        for name, address in masters.items():
            ours = [change for change in changes if change.queue.broker_name == name]
            if ours:
                # Only a reset of all queues has a form that old brokers support.
                await self._resets.carry_out(address, group, topic, ours, timestamp if queues is None else None)
        return changes
