# Written by scripts/facade; change what it is written from, then run it again.
"""Blocking admin operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self, Unpack

from tianzhou import admin
from tianzhou.admin.accounts import AccountFiles
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.dead_letters import Resent
from tianzhou.admin.delays import DelayLevel, Due
from tianzhou.admin.messages import FOREVER_MS, MAX_MESSAGES
from tianzhou.admin.progress import GroupLag, OffsetChange
from tianzhou.admin.queue_numbers import QueuePlan
from tianzhou.admin.queue_reading import MOST_BYTES
from tianzhou.admin.send_limits import LimitStatus
from tianzhou.admin.topics import TopicDescription
from tianzhou.admin.tracks import MessageTrack
from tianzhou.admin.transactions import HalfMessage, OpenTransactions
from tianzhou.admin.undeliverable import Redelivery, UndeliverableMessage
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ClientKeywords
from tianzhou.client.tracing.trace_reading import TraceRecord
from tianzhou.model import (
    BrokerData,
    ClusterInfo,
    MessageExt,
    MessageQueue,
    PullResult,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
    TransactionState,
)
from tianzhou.model.names import TRACE_TOPIC
from tianzhou.model.send_limit import LimitScope, SendLimit
from tianzhou.model.topic import PERM_READ, PERM_WRITE
from tianzhou.sync.background import Blocking
from tianzhou.wire.bodies.access import AclInfo, PlainAccounts, UserInfo
from tianzhou.wire.bodies.clients import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    DirectConsumption,
    ProducerInfo,
)
from tianzhou.wire.bodies.offsets import BrokerConsumeStats, ConsumeStats, QueueTimeSpan, QueueUnits, TopicStats
from tianzhou.wire.bodies.replication import HaStatus
from tianzhou.wire.bodies.tables import BrokerStats


class Topics(Blocking):
    """Operations on topics.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Topics

    def __init__(self, asynchronous: admin.Topics) -> None:
        super().__init__(asynchronous)

    def create(
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
        return self._run(
            self._async.create(
                topic,
                read_queue_nums=read_queue_nums,
                write_queue_nums=write_queue_nums,
                perm=perm,
                order=order,
                attributes=attributes,
                topic_sys_flag=topic_sys_flag,
                cluster=cluster,
                broker_addr=broker_addr,
                only_new=only_new,
            )
        )

    def update(
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
        return self._run(
            self._async.update(
                topic,
                read_queue_nums=read_queue_nums,
                write_queue_nums=write_queue_nums,
                perm=perm,
                order=order,
                attributes=attributes,
                brokers=brokers,
            )
        )

    def plan_queues(
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
        return self._run(
            self._async.plan_queues(
                topic, read_queue_nums=read_queue_nums, write_queue_nums=write_queue_nums, brokers=brokers
            )
        )

    def change_queues(
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
        return self._run(
            self._async.change_queues(
                topic,
                read_queue_nums=read_queue_nums,
                write_queue_nums=write_queue_nums,
                brokers=brokers,
                drop_unread=drop_unread,
            )
        )

    def put(self, broker_addr: str, config: TopicConfig) -> None:
        """Store a topic's configuration unchanged on one broker, without waiting for its route.

        Args:
            broker_addr: address of the broker.
            config: the configuration; its attributes stay as the broker has them.

        Raises:
            BrokerError: the broker refuses.
        """
        self._run(self._async.put(broker_addr, config))

    def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every broker of a cluster, or of all clusters, and from the name servers.

        Its messages are deleted as well. Deleting a missing topic is no error.

        Args:
            topic: name of the topic.
            cluster: the cluster to delete the topic from; None takes all clusters.
        """
        self._run(self._async.delete(topic, cluster=cluster))

    def names(self, *, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of a cluster's topics, sorted, including system topics."""
        return self._run(self._async.names(cluster=cluster))

    def system_names(self) -> set[str]:
        """Return the brokers' system topics, and the topics that are named like clusters and brokers."""
        return self._run(self._async.system_names())

    def exists(self, topic: str) -> bool:
        """Whether the name server knows the topic."""
        return self._run(self._async.exists(topic))

    def route(self, topic: str) -> TopicRoute:
        """Return a topic's queues and brokers.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.route(topic))

    def clusters(self, topic: str) -> list[str]:
        """Return the clusters that have the topic."""
        return self._run(self._async.clusters(topic))

    def config(self, topic: str) -> dict[str, TopicConfig]:
        """Return a topic's configuration by broker name.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.config(topic))

    def stats(self, topic: str) -> TopicStats:
        """Return the first and next offset of every queue of a topic, including empty queues.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.stats(topic))

    def groups(self, topic: str) -> list[str]:
        """Return the groups that have consumed a topic.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.groups(topic))

    def describe(self, topic: str) -> TopicDescription:
        """Return the complete description of a topic.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.describe(topic))


class Groups(Blocking):
    """Operations on consumer groups.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Groups

    def __init__(self, asynchronous: admin.Groups) -> None:
        super().__init__(asynchronous)

    def names(self, *, cluster: str | None = None, system: bool = False) -> list[str]:
        """Return the names of all groups, sorted.

        Args:
            cluster: the cluster whose groups to return; None takes all clusters.
            system: whether to include the groups that exist on every broker.
        """
        return self._run(self._async.names(cluster=cluster, system=system))

    def config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Return a group's configuration by broker name; empty when no broker has the group."""
        return self._run(self._async.config(group))

    def create(
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
        return self._run(
            self._async.create(group, cluster=cluster, broker_addr=broker_addr, only_new=only_new, **settings)
        )

    def create_several(self, configs: Iterable[SubscriptionGroupConfig], broker_addr: str) -> None:
        """Create several groups at once on a broker, or replace their configuration (225).

        Raises:
            BrokerError: the broker refuses, or does not support the request, as brokers of RocketMQ 4.
        """
        self._run(self._async.create_several(configs, broker_addr))

    def set_request_mode(
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
        self._run(
            self._async.set_request_mode(group, topic, mode, broker_addr, pop_share_queue_num=pop_share_queue_num)
        )

    def clone_offsets(self, source: str, target: str, topic: str, *, offline: bool = False) -> None:
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
        self._run(self._async.clone_offsets(source, target, topic, offline=offline))

    def update(self, group: str, **settings: Any) -> dict[str, SubscriptionGroupConfig]:
        """Change some settings of a group on every broker that has it. Other settings stay unchanged.

        Returns:
            The new configuration by broker name.

        Raises:
            ClientError: no broker has the group.
            ConfigError: a setting does not exist.
        """
        return self._run(self._async.update(group, **settings))

    def delete(
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
        self._run(
            self._async.delete(
                group,
                remove_offsets=remove_offsets,
                remove_topics=remove_topics,
                cluster=cluster,
                broker_addr=broker_addr,
            )
        )

    def connections(self, group: str, *, broker_addr: str | None = None) -> ConsumerConnection | None:
        """Return the group's connected members and their subscriptions; None when no member is connected.

        Args:
            group: the group.
            broker_addr: address of the only broker to ask; None asks all brokers.
        """
        return self._run(self._async.connections(group, broker_addr=broker_addr))

    def running_info(self, group: str, client_id: str, *, stack: bool = False) -> ConsumerRunningInfo:
        """Return the report of a connected member about itself (wire.md §7.11).

        Args:
            group: the group.
            client_id: the member.
            stack: whether the report includes a dump of the member's threads.
        """
        return self._run(self._async.running_info(group, client_id, stack=stack))

    def consume_directly(self, group: str, client_id: str, offset_msg_id: str, topic: str) -> DirectConsumption:
        """Let a connected member consume one message at once, outside its queues (wire.md §7.12).

        Args:
            group: the group.
            client_id: the member.
            offset_msg_id: the message's offset id.
            topic: the message's topic.
        """
        return self._run(self._async.consume_directly(group, client_id, offset_msg_id, topic))

    def lag(self, group: str, topic: str | None = None, *, clients: bool = False) -> GroupLag:
        """Return a group's lag queue by queue, also for a group without connected members.

        Args:
            group: the group.
            topic: one topic; None takes all topics that the group has consumed.
            clients: whether to find the member that reads each queue, which requires a request to every member.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.lag(group, topic, clients=clients))

    def reset(
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
        return self._run(
            self._async.reset(
                group,
                topic,
                to_time_ms=to_time_ms,
                to_offset=to_offset,
                to_earliest=to_earliest,
                to_latest=to_latest,
                to_offsets=to_offsets,
                queues=queues,
                dry_run=dry_run,
            )
        )


class Cluster(Blocking):
    """Operations on servers.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Cluster

    def __init__(self, asynchronous: admin.Cluster) -> None:
        super().__init__(asynchronous)

    @property
    def name_servers(self) -> list[str]:
        """Addresses of the name servers in use."""
        return self._async.name_servers

    def info(self) -> ClusterInfo:
        """Return all brokers and clusters that the name server knows."""
        return self._run(self._async.info())

    def names(self) -> list[str]:
        """Return the names of all clusters."""
        return self._run(self._async.names())

    def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the masters' addresses by broker name, for one cluster or all.

        Raises:
            ClientError: the cluster does not exist, or no broker has a master.
        """
        return self._run(self._async.masters(cluster))

    def status(self, cluster: str | None = None) -> list[BrokerStatus]:
        """Return every broker process with its report about itself, including processes that do not answer.

        Raises:
            ClientError: the cluster does not exist, or no broker is registered.
        """
        return self._run(self._async.status(cluster))

    def status_of(self, brokers: Iterable[BrokerData]) -> list[BrokerStatus]:
        """Return the status of the given brokers only.

        Args:
            brokers: broker names with their addresses, as name servers return them.
        """
        return self._run(self._async.status_of(brokers))

    def copies(self, address: str) -> HaStatus:
        """Return the replication status of a broker's log, as mqadmin's `haStatus` shows it.

        Args:
            address: address of a master or a slave.

        Raises:
            BrokerError: the broker does not support the request, as brokers of RocketMQ 4.
        """
        return self._run(self._async.copies(address))

    def runtime(self, address: str) -> dict[str, str]:
        """Return a broker's report about itself (wire.md §9.11)."""
        return self._run(self._async.runtime(address))

    def broker_config(self, address: str) -> dict[str, str]:
        """Return a broker's configuration: RocketMQ's keys and their values."""
        return self._run(self._async.broker_config(address))

    def update_broker_config(self, address: str, values: Mapping[str, str], *, at_next_start: bool = False) -> None:
        """Change a running broker's configuration.

        Args:
            address: address of the broker.
            values: RocketMQ's keys to their new values.
            at_next_start: whether to write the values only to the broker's file, for its next start. Only Tianzhou's
                brokers support this.

        Raises:
            BrokerError: a running broker cannot change one of the keys.
            ClientError: `at_next_start` is set and the broker is no broker of Tianzhou. The broker changed nothing.
        """
        self._run(self._async.update_broker_config(address, values, at_next_start=at_next_start))

    def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Return the configuration of every name server, by address."""
        return self._run(self._async.namesrv_config())

    def update_namesrv_config(self, values: Mapping[str, str]) -> None:
        """Change the configuration of every name server."""
        self._run(self._async.update_namesrv_config(values))

    def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Remove the write permission of a broker, so that producers send to other brokers before it is stopped.

        Returns:
            Number of affected topics, by name server.
        """
        return self._run(self._async.wipe_write_perm(broker_name))

    def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Restore the write permission of a broker after `wipe_write_perm`.

        Returns:
            Number of affected topics, by name server.
        """
        return self._run(self._async.add_write_perm(broker_name))

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a KV entry at every name server."""
        self._run(self._async.put_kv(namespace, key, value))

    def get_kv(self, namespace: str, key: str) -> str | None:
        """Return the value of a KV entry; None when there is none."""
        return self._run(self._async.get_kv(namespace, key))

    def kv_entries(self, namespace: str) -> dict[str, str]:
        """Return all KV entries of a namespace; empty when the namespace does not exist."""
        return self._run(self._async.kv_entries(namespace))

    def delete_kv(self, namespace: str, key: str) -> None:
        """Remove a KV entry from every name server."""
        self._run(self._async.delete_kv(namespace, key))


class Messages(Blocking):
    """Queries for messages.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Messages

    def __init__(self, asynchronous: admin.Messages) -> None:
        super().__init__(asynchronous)

    def view(self, topic: str, msg_id: str, failures: dict[str, str] | None = None) -> MessageExt:
        """Return a message by its unique key or its offset id.

        Args:
            topic: topic of the message.
            msg_id: the unique key that the producer assigned, or the offset id.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: there is no such message.
        """
        return self._run(self._async.view(topic, msg_id, failures))

    def by_offset_id(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """Return the message with an offset id, from the broker that the id names.

        Args:
            offset_msg_id: the offset id.
            topic: topic of the message; some brokers check permissions by it.

        Raises:
            ClientError: the name server does not know the broker that the id names.
            BrokerError: the broker has no message at this offset.
            ProtocolError: the id is no offset id.
        """
        return self._run(self._async.by_offset_id(offset_msg_id, topic=topic))

    def by_unique_key(self, topic: str, unique_key: str) -> MessageExt | None:
        """Return the first message with a unique key; None when there is none.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.by_unique_key(topic, unique_key))

    def all_by_unique_key(
        self, topic: str, unique_key: str, failures: dict[str, str] | None = None
    ) -> list[MessageExt]:
        """Return all messages with a unique key, the oldest first. A message that was sent again has the same key.

        Args:
            topic: the topic.
            unique_key: the unique key.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.all_by_unique_key(topic, unique_key, failures))

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = MAX_MESSAGES,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        failures: dict[str, str] | None = None,
    ) -> list[MessageExt]:
        """Return the messages with a business key, the oldest first.

        Args:
            topic: the topic.
            key: one key, as in `Message.keys`.
            max_num: maximum number of messages from each broker; brokers return at most 64.
            begin_ms: earliest store time, in ms since the epoch, inclusive.
            end_ms: latest store time, in ms since the epoch, inclusive.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(
            self._async.by_key(topic, key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, failures=failures)
        )

    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset and the next offset of a queue."""
        return self._run(self._async.bounds(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset of a queue whose message was stored at or after a time in ms since the epoch."""
        return self._run(self._async.offset_at(queue, timestamp_ms))

    def read(self, queue: MessageQueue, offset: int, *, expression: str = "*", max_messages: int = 32) -> PullResult:
        """Read once from a queue without a consumer group's offset: nothing is committed.

        Args:
            queue: the queue.
            offset: offset of the first message to read.
            expression: tags, such as `TagA || TagB`.
            max_messages: maximum number of messages.
        """
        return self._run(self._async.read(queue, offset, expression=expression, max_messages=max_messages))

    def tracks(self, message: MessageExt, failures: dict[str, str] | None = None) -> list[MessageTrack]:
        """Return the consumption state of a message in every group that consumes its topic.

        Args:
            message: the message.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        return self._run(self._async.tracks(message, failures))

    def by_time(
        self,
        topic: str,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        *,
        limit: int = 100,
        failures: dict[str, str] | None = None,
    ) -> list[MessageExt]:
        """Return the newest messages of a topic within a time range, the newest first.

        The query reads at most 64 MiB of records and bodies. Above this size it returns fewer messages than `limit`. To
        get earlier messages, query again with `end_ms` set to the store time of the last message.

        Args:
            topic: the topic.
            begin_ms: earliest store time, in ms since the epoch, inclusive.
            end_ms: latest store time, in ms since the epoch, inclusive.
            limit: maximum number of messages.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist, none of its brokers has a master, or the messages are too large.
        """
        return self._run(self._async.by_time(topic, begin_ms, end_ms, limit=limit, failures=failures))

    def newest_records(
        self, topic: str, each: int, *, most_bytes: int = MOST_BYTES
    ) -> list[tuple[MessageQueue, int, int, list[bytes]]]:
        """Return the newest records of every queue of a topic in wire format, for callers that decode them to columns.

        Args:
            topic: the topic.
            each: maximum number of messages per queue.
            most_bytes: maximum total size of the records, in bytes.

        Returns:
            By queue: the queue, the first offset, the offset after the last, and the records (wire.md §5).

        Raises:
            ClientError: the topic does not exist, or none of its brokers has a master.
        """
        return self._run(self._async.newest_records(topic, each, most_bytes=most_bytes))

    def trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC, failures: dict[str, str] | None = None
    ) -> list[TraceRecord]:
        """Return the trace records of a message by time. Clients write them only when tracing is enabled.

        Args:
            msg_id: unique key of the message.
            trace_topic: the topic of the trace records.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the trace topic does not exist.
        """
        return self._run(self._async.trace(msg_id, trace_topic=trace_topic, failures=failures))

    def by_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Return the message at an offset of a queue; None when the queue has no message there."""
        return self._run(self._async.by_offset(queue, offset))


class DeadLetters(Blocking):
    """Operations on dead letters of consumer groups.

    Args:
        asynchronous: the async one.
    """

    _async: admin.DeadLetters

    def __init__(self, asynchronous: admin.DeadLetters) -> None:
        super().__init__(asynchronous)

    def count(self, group: str, failures: dict[str, str] | None = None) -> int:
        """Return the number of dead letters of a group that brokers still store; 0 when there were never any.

        Args:
            group: the group.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        return self._run(self._async.count(group, failures))

    def list(
        self,
        group: str,
        *,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        limit: int = 200,
        failures: dict[str, str] | None = None,
    ) -> list[MessageExt]:
        """Return dead letters of a group, the newest first; empty when there were never any.

        Args:
            group: the group.
            begin_ms: earliest store time, in ms since the epoch, inclusive.
            end_ms: latest store time, in ms since the epoch, inclusive.
            limit: maximum number of messages, at most 10,000.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        return self._run(self._async.list(group, begin_ms=begin_ms, end_ms=end_ms, limit=limit, failures=failures))

    def resend(
        self,
        letters: Iterable[MessageExt],
        *,
        to: str | None = None,
        progress: Callable[[Resent], None] | None = None,
    ) -> Resent:
        """Send dead letters again as new messages (`tianzhou.model.dead_letters.resent`).

        The dead letters are not removed, so sending them twice creates two messages each. A failed letter does not stop
        the others. Cancelling the call keeps the messages that are already sent.

        Args:
            letters: dead letters, as `list` returns them.
            to: the topic to send to, for all its groups; None sends only to the letters' own group, as first deliveries
                with all retries.
            progress: called after each letter.
        """
        return self._run(self._async.resend(letters, to=to, progress=progress))


class Transactions(Blocking):
    """Operations on undecided transactions.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Transactions

    def __init__(self, asynchronous: admin.Transactions) -> None:
        super().__init__(asynchronous)

    def open(self, broker_name: str | None = None, failures: dict[str, str] | None = None) -> list[OpenTransactions]:
        """Return the undecided half messages, by broker.

        A decision is visible after the broker has stored it, which some brokers do seconds later.

        Args:
            broker_name: name of the only broker to read; None takes all.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        return self._run(self._async.open(broker_name, failures))

    def half(self, broker_name: str, queue_offset: int) -> tuple[HalfMessage, MessageExt]:
        """Return an undecided half message, and the message as it is stored.

        Args:
            broker_name: the broker.
            queue_offset: offset of the newest copy in the half queue.

        Raises:
            ClientError: the broker has no master, or has no such undecided half message.
        """
        return self._run(self._async.half(broker_name, queue_offset))

    def end(self, half: HalfMessage, state: TransactionState) -> None:
        """Commit or roll back a half message in place of its producer.

        A broker of Tianzhou ends a transaction only once, by the first decision. A broker of Apache delivers the
        message again for each commit, so this method refuses such a broker.

        Args:
            half: the half message, as `open` or `half` returns it.
            state: `COMMIT` or `ROLLBACK`.

        Raises:
            ClientError: the broker has no master, or is no broker of Tianzhou.
            BrokerError: the transaction has ended with the other decision, or the message cannot be stored.
        """
        self._run(self._async.end(half, state))


class Delays(Blocking):
    """Operations on delayed messages.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Delays

    def __init__(self, asynchronous: admin.Delays) -> None:
        super().__init__(asynchronous)

    def levels(self, failures: dict[str, str] | None = None) -> list[DelayLevel]:
        """Return the levels of all brokers, also levels in which no message waits.

        Args:
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        return self._run(self._async.levels(failures))

    def message(self, broker_name: str, level: int, queue_offset: int) -> tuple[Due, MessageExt]:
        """Return the due time of a waiting delayed message, and the message as it is stored.

        Args:
            broker_name: the broker.
            level: the delay level, from 1.
            queue_offset: offset in the level's queue.

        Raises:
            ClientError: the broker has no master, has no such level, or has delivered the message.
        """
        return self._run(self._async.message(broker_name, level, queue_offset))


class Undeliverable(Blocking):
    """Operations on messages that brokers have set aside.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Undeliverable

    def __init__(self, asynchronous: admin.Undeliverable) -> None:
        super().__init__(asynchronous)

    def list(self, broker_name: str | None = None) -> list[UndeliverableMessage]:
        """Return the messages that are set aside, grouped by broker, the oldest first.

        Args:
            broker_name: name of the only broker to read; None takes all.
        """
        return self._run(self._async.list(broker_name))

    def resend(self, messages: Iterable[UndeliverableMessage], *, to: str | None = None) -> Redelivery:
        """Let brokers deliver messages that they have set aside. A message that fails stays set aside.

        Args:
            messages: results of `list`.
            to: an existing topic to deliver to; None for the intended topic of each message.
        """
        return self._run(self._async.resend(messages, to=to))


class SendLimits(Blocking):
    """Operations on send limits. Each broker counts its own sends.

    Args:
        asynchronous: the async one.
    """

    _async: admin.SendLimits

    def __init__(self, asynchronous: admin.SendLimits) -> None:
        super().__init__(asynchronous)

    def set(self, limit: SendLimit, *, broker_name: str | None = None) -> list[str]:
        """Set a limit at the brokers of all clusters. It replaces a limit with the same scope and name.

        Args:
            limit: the limit.
            broker_name: name of the only broker to change; None takes all.

        Returns:
            Names of the brokers that have the limit now.

        Raises:
            TianzhouError: a broker refuses or does not answer; the text names the brokers that have the limit.
        """
        return self._run(self._async.set(limit, broker_name=broker_name))

    def delete(self, scope: LimitScope, name: str, *, broker_name: str | None = None) -> list[str]:
        """Delete a limit.

        Args:
            scope: scope of the limit.
            name: name of the limit's topic, group or client.
            broker_name: name of the only broker to change; None takes all.

        Returns:
            Names of the brokers that had the limit.

        Raises:
            ClientError: no broker has the limit.
            TianzhouError: a broker refuses or does not answer; the text names the brokers that have deleted the limit.
        """
        return self._run(self._async.delete(scope, name, broker_name=broker_name))

    def list(self, broker_name: str | None = None) -> list[LimitStatus]:
        """Return the limits, grouped by broker.

        Args:
            broker_name: name of the only broker to read; None takes all.

        Raises:
            TianzhouError: a broker does not support limits, refuses, or does not answer.
        """
        return self._run(self._async.list(broker_name))


class Access(Blocking):
    """Operations on users and policies.

    Each server stores its own users and policies. A change goes to all brokers of a cluster, including slaves, and to
    the name servers that have users. Apache's name servers have none.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Access

    def __init__(self, asynchronous: admin.Access) -> None:
        super().__init__(asynchronous)

    def create_user(
        self,
        username: str,
        password: str,
        *,
        user_type: str = "Normal",
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Create a user.

        Args:
            username: the user's name, which is the access key of its clients.
            password: the user's secret key.
            user_type: `Normal`, or `Super` for a user with all permissions.
            cluster: the cluster whose brokers get the user; None takes all clusters.
            broker_addr: address of the only server to change; None takes all servers.

        Returns:
            Addresses of the servers that have the user now.

        Raises:
            ClientError: the cluster does not exist.
            BrokerError: a server refuses, for example because the user exists there; other servers may have it now.
        """
        return self._run(
            self._async.create_user(username, password, user_type=user_type, cluster=cluster, broker_addr=broker_addr)
        )

    def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        status: str | None = None,
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Change a user. An argument of None leaves the present value.

        Args:
            username: the user's name.
            password: the new secret key; requests signed with the old key are refused at once.
            user_type: `Normal` or `Super`.
            status: `enable` or `disable`.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that changed the user.

        Raises:
            ClientError: all values are None, or the cluster does not exist.
            BrokerError: a server refuses, for example because it has no such user.
        """
        return self._run(
            self._async.update_user(
                username,
                password=password,
                user_type=user_type,
                status=status,
                cluster=cluster,
                broker_addr=broker_addr,
            )
        )

    def delete_user(self, username: str, *, cluster: str | None = None, broker_addr: str | None = None) -> list[str]:
        """Delete a user with its policies. Deleting a missing user is no error.

        Args:
            username: the user's name.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers, which do not have the user now.

        Raises:
            BrokerError: a server refuses.
        """
        return self._run(self._async.delete_user(username, cluster=cluster, broker_addr=broker_addr))

    def user(self, username: str, *, cluster: str | None = None, broker_addr: str | None = None) -> UserInfo | None:
        """Return a user without its password, as one broker stores it; None when the user does not exist.

        Args:
            username: the user's name.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        return self._run(self._async.user(username, cluster=cluster, broker_addr=broker_addr))

    def users(self, part: str = "", *, cluster: str | None = None, broker_addr: str | None = None) -> list[UserInfo]:
        """Return users without their passwords, as one broker stores them.

        Args:
            part: substring of the wanted users' names; empty selects all.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        return self._run(self._async.users(part, cluster=cluster, broker_addr=broker_addr))

    def users_with_passwords(self, broker_addr: str, part: str = "") -> list[UserInfo]:
        """Return a broker's users with their passwords, for a copy. Only Apache's brokers return passwords.

        Args:
            broker_addr: address of the broker.
            part: substring of the wanted users' names; empty selects all.
        """
        return self._run(self._async.users_with_passwords(broker_addr, part))

    def set_acl(
        self,
        username: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        decision: str = "Allow",
        source_ips: Sequence[str] = (),
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Allow or deny a user actions on resources. Earlier entries for the same resources are replaced.

        Args:
            username: the user.
            resources: `Topic:orders`, `Topic:orders*` (all topics with this prefix), `Group:*`, `Cluster:*`, or `*`.
            actions: `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`, or `All`.
            decision: `Allow` or `Deny`.
            source_ips: client addresses and CIDR ranges for which the entry applies; empty applies to all.
            policy_type: `Custom`, or `Default` for an entry that applies when no custom entry matches.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that have the policy now.

        Raises:
            ClientError: the cluster does not exist.
            BrokerError: a server refuses: it has no such user, or a value is invalid.
        """
        return self._run(
            self._async.set_acl(
                username,
                resources,
                actions,
                decision=decision,
                source_ips=source_ips,
                policy_type=policy_type,
                cluster=cluster,
                broker_addr=broker_addr,
            )
        )

    def delete_acl(
        self,
        username: str,
        resource: str | None = None,
        *,
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Remove a user's policy entries for a resource, or all policies of the user.

        Args:
            username: the user.
            resource: as in `set_acl`; None removes all policies.
            policy_type: type of the policy that has the entry.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers, which do not have the entry now.

        Raises:
            BrokerError: a server refuses: it has no such user, or the user has no policies.
        """
        return self._run(
            self._async.delete_acl(
                username, resource, policy_type=policy_type, cluster=cluster, broker_addr=broker_addr
            )
        )

    def acl(self, username: str, *, cluster: str | None = None, broker_addr: str | None = None) -> AclInfo | None:
        """Return a user's policies as one broker stores them; None when the user has none.

        Args:
            username: the user.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.

        Raises:
            BrokerError: the server refuses; Apache's brokers refuse when the user does not exist.
        """
        return self._run(self._async.acl(username, cluster=cluster, broker_addr=broker_addr))

    def acls(
        self, subject: str = "", resource: str = "", *, cluster: str | None = None, broker_addr: str | None = None
    ) -> list[AclInfo]:
        """Return policies as one broker stores them.

        Args:
            subject: substring of the wanted subjects, which are `User:` and a name; empty selects all.
            resource: substring of the resources of the wanted entries; empty selects all.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        return self._run(self._async.acls(subject, resource, cluster=cluster, broker_addr=broker_addr))


class Accounts(Blocking):
    """Operations on accounts of RocketMQ 4.x. `Access` has the operations on users of RocketMQ 5.3.

    All methods raise `BrokerError` when the broker refuses. Brokers without access control and brokers of RocketMQ 5.3
    refuse.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Accounts

    def __init__(self, asynchronous: admin.Accounts) -> None:
        super().__init__(asynchronous)

    def put(
        self,
        address: str,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool | None = None,
        white_remote_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: Iterable[str] = (),
        group_perms: Iterable[str] = (),
    ) -> None:
        """Create or change an account on a broker (50). None leaves a value unchanged, but `admin` becomes false.

        Args:
            address: address of the broker.
            access_key: access key, which names the account.
            secret_key: secret key that signs the account's requests.
            admin: whether the account has administrator permissions.
            white_remote_address: client addresses that need no signature.
            default_topic_perm: permission on topics by default: `DENY`, `PUB`, `SUB`, or `PUB|SUB`.
            default_group_perm: permission on groups by default, in the same form.
            topic_perms: permissions on single topics, such as `orders=PUB|SUB`.
            group_perms: permissions on single groups, such as `billing=SUB`.
        """
        self._run(
            self._async.put(
                address,
                access_key,
                secret_key=secret_key,
                admin=admin,
                white_remote_address=white_remote_address,
                default_topic_perm=default_topic_perm,
                default_group_perm=default_group_perm,
                topic_perms=topic_perms,
                group_perms=group_perms,
            )
        )

    def delete(self, address: str, access_key: str) -> None:
        """Delete an account from a broker (51)."""
        self._run(self._async.delete(address, access_key))

    def set_white_addresses(self, address: str, white_addresses: str, file: str | None = None) -> None:
        """Set the client addresses from which all requests need no signature (53).

        Args:
            address: address of the broker.
            white_addresses: addresses and ranges, separated by commas.
            file: path of the account file to change, when the broker has several.
        """
        self._run(self._async.set_white_addresses(address, white_addresses, file))

    def all(self, address: str) -> PlainAccounts:
        """Return all accounts of a broker (54). Apache's 4.9 returns secret keys, Tianzhou does not."""
        return self._run(self._async.all(address))

    def files(self, address: str) -> AccountFiles:
        """Return the versions of a broker's account files (52)."""
        return self._run(self._async.files(address))


class Servers(Blocking):
    """Operations on one broker or name server.

    All methods raise `BrokerError` when the server refuses or does not support the request, as brokers of RocketMQ 4 do
    for some requests. They raise `RemotingError` when the server does not answer.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Servers

    def __init__(self, asynchronous: admin.Servers) -> None:
        super().__init__(asynchronous)

    def cluster_info(self, address: str) -> ClusterInfo:
        """Return all brokers and clusters that a name server knows.

        Args:
            address: address of the name server.
        """
        return self._run(self._async.cluster_info(address))

    def route(self, address: str, topic: str) -> TopicRoute | None:
        """Return a topic's route from a name server; None when the topic has no route there.

        Args:
            address: address of the name server.
            topic: the topic.
        """
        return self._run(self._async.route(address, topic))

    def namesrv_config(self, address: str) -> dict[str, str]:
        """Return a name server's configuration: RocketMQ's keys and their values.

        Args:
            address: address of the name server.
        """
        return self._run(self._async.namesrv_config(address))

    def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Return the configurations of all topics of a broker.

        Args:
            address: address of the broker.
        """
        return self._run(self._async.topic_configs(address))

    def system_topics(self, address: str) -> list[str]:
        """Return a broker's system topics.

        Args:
            address: address of the broker.
        """
        return self._run(self._async.system_topics(address))

    def topic_stats(self, address: str, topic: str) -> TopicStats:
        """Return the offset range of a topic's queues on a broker, and the topic's incoming messages per second.

        Args:
            address: address of the broker.
            topic: the topic; the result has no queues when the broker does not have it.
        """
        return self._run(self._async.topic_stats(address, topic))

    def topic_groups(self, address: str, topic: str) -> list[str]:
        """Return the groups that have consumed a topic on a broker.

        Args:
            address: address of the broker.
            topic: the topic.
        """
        return self._run(self._async.topic_groups(address, topic))

    def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Return the configurations of all groups of a broker.

        Args:
            address: address of the broker.
        """
        return self._run(self._async.group_configs(address))

    def connections(self, address: str, group: str) -> ConsumerConnection | None:
        """Return a group's members connected to a broker, and their subscriptions; None when no member is connected.

        Args:
            address: address of the broker.
            group: the group.
        """
        return self._run(self._async.connections(address, group))

    def running_info(self, address: str, group: str, client_id: str) -> ConsumerRunningInfo:
        """Return the report of a group member about itself, requested over its connection to a broker (wire.md §7.11).

        Args:
            address: address of the broker.
            group: the group.
            client_id: the member.
        """
        return self._run(self._async.running_info(address, group, client_id))

    def consume_stats(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's progress in the queues of a broker.

        Args:
            address: address of the broker.
            group: the group; the result has no queues when the broker does not have it.
            topic: one topic; None takes all topics that the group has consumed.
        """
        return self._run(self._async.consume_stats(address, group, topic))

    def time_spans(self, address: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """Return store times of a topic's queues on a broker: of the first and last message, and at the group's offset.

        Args:
            address: address of the broker.
            group: the group.
            topic: the topic.
        """
        return self._run(self._async.time_spans(address, group, topic))

    def messages(self, address: str, queue: MessageQueue, offset: int, count: int) -> list[MessageExt]:
        """Return messages of a queue from an offset on. No group's offset changes.

        Args:
            address: address of the broker.
            queue: the queue.
            offset: offset of the first message.
            count: maximum number of messages.
        """
        return self._run(self._async.messages(address, queue, offset, count))

    def create_topics(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Create several topics at once, or replace their configuration (18)."""
        self._run(self._async.create_topics(address, configs))

    def producers(self, address: str) -> dict[str, list[ProducerInfo]]:
        """Return all producers that a broker knows, by group (328)."""
        return self._run(self._async.producers(address))

    def producer_connections(self, address: str, group: str) -> list[Connection]:
        """Return the members of a producer group that are connected to a broker (204)."""
        return self._run(self._async.producer_connections(address, group))

    def all_consume_stats(self, address: str, *, ordered: bool = False) -> BrokerConsumeStats:
        """Return the progress of all groups of a broker (317).

        Args:
            address: address of the broker.
            ordered: whether to return only groups that consume in order.
        """
        return self._run(self._async.all_consume_stats(address, ordered=ordered))

    def stats(self, address: str, name: str, key: str) -> BrokerStats:
        """Return one statistic of a broker over a minute, an hour and a day; zeros when the broker has none (315).

        Args:
            address: address of the broker.
            name: name of the statistic, such as `TOPIC_PUT_NUMS`.
            key: the measured object, such as a topic or `topic@group` (wire.md §9.9).
        """
        return self._run(self._async.stats(address, name, key))

    def queue_units(
        self, address: str, topic: str, queue_id: int, index: int, count: int = 10, group: str | None = None
    ) -> QueueUnits:
        """Return some units of a consume queue (321).

        Args:
            address: address of the broker.
            topic: the topic.
            queue_id: the queue.
            index: index of the first unit.
            count: maximum number of units.
            group: a consumer group whose filter is applied to the units.
        """
        return self._run(self._async.queue_units(address, topic, queue_id, index, count, group))

    def clean_expired_queues(self, address: str) -> None:
        """Delete consume queues of deleted topics and queues (306)."""
        self._run(self._async.clean_expired_queues(address))

    def clean_unused_topics(self, address: str) -> None:
        """Delete remaining data of deleted topics (316)."""
        self._run(self._async.clean_unused_topics(address))

    def delete_expired_logs(self, address: str) -> None:
        """Delete expired log files now, independent of the configured hour (329)."""
        self._run(self._async.delete_expired_logs(address))

    def reset_flush_offset(self, address: str, offset: int) -> None:
        """Set the offset up to which the master's log is flushed, at a slave (908)."""
        self._run(self._async.reset_flush_offset(address, offset))

    def epochs(self, address: str) -> dict[str, Any]:
        """Return the epochs of a broker's log; only brokers with a controller have them (1007)."""
        return self._run(self._async.epochs(address))

    def cold_read_limits(self, address: str) -> dict[str, Any]:
        """Return the limits of groups' reads of cold data (on disk only), in the broker's own format (2003)."""
        return self._run(self._async.cold_read_limits(address))

    def set_cold_read_limit(self, address: str, group: str, bytes_per_second: int) -> None:
        """Set the limit of a group's reads of cold data, in bytes per second (2001)."""
        self._run(self._async.set_cold_read_limit(address, group, bytes_per_second))

    def remove_cold_read_limit(self, address: str, group: str) -> None:
        """Remove the limit of a group's reads of cold data, so that the default limit applies (2002)."""
        self._run(self._async.remove_cold_read_limit(address, group))

    def set_read_ahead(self, address: str, mode: str) -> str:
        """Set the read-ahead mode of the log's files, and return the broker's remark (2004).

        Args:
            address: address of the broker.
            mode: `READ_AHEAD` or `READ_RANDOM`.
        """
        return self._run(self._async.set_read_ahead(address, mode))

    def rocksdb_progress(self, address: str, topic: str, since_ms: int = 0) -> dict[str, Any]:
        """Return the write progress of consume queues in RocksDB (354): `checkStatus` and `checkResult`."""
        return self._run(self._async.rocksdb_progress(address, topic, since_ms))

    def export_pop_records(self, address: str) -> None:
        """Let a broker of RocketMQ 5 export the records of POP consumers in the format of earlier versions (200056)."""
        self._run(self._async.export_pop_records(address))

    def add_to_container(self, container: str, config_path: str) -> None:
        """Let a broker container of RocketMQ 5 start another broker (902)."""
        self._run(self._async.add_to_container(container, config_path))

    def remove_from_container(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Let a broker container of RocketMQ 5 stop one of its brokers (903)."""
        self._run(self._async.remove_from_container(container, cluster, broker_name, broker_id))


class Admin(Blocking):
    """Administration operations, grouped by noun; a context manager.

    A group of operations is imported at its first use, because a command needs only one or two groups.

    Args:
        namesrv_addr: addresses of the name servers, see `ClientInstance`.
        instance: a client instance to share; by default, `Admin` creates and owns one.
        timeout_ms: limit of each request, in ms.
        client_options: options of the owned `ClientInstance`.
    """

    _async: admin.Admin

    def __init__(
        self,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        timeout_ms: int = 5_000,
        **client_options: Unpack[ClientKeywords],
    ) -> None:
        Blocking.__init__(self, admin.Admin(namesrv_addr, instance=instance, timeout_ms=timeout_ms, **client_options))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._async.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Start the client instance. No request is sent yet."""
        self._run(self._async.start())

    def stop(self) -> None:
        """Close the client instance, unless it is shared."""
        self._run(self._async.stop())

    @property
    def instance(self) -> ClientInstance:
        """The client instance that sends requests, in the background loop."""
        return self._async.instance

    @cached_property
    def topics(self) -> Topics:
        """Create, change, delete, list, describe topics."""
        return Topics(self._async.topics)

    @cached_property
    def groups(self) -> Groups:
        """Consumer groups: list, create, delete, lag, reset."""
        return Groups(self._async.groups)

    @cached_property
    def cluster(self) -> Cluster:
        """Brokers and name servers: status, configuration, write permission, KV entries."""
        return Cluster(self._async.cluster)

    @cached_property
    def messages(self) -> Messages:
        """Find messages, and read queues."""
        return Messages(self._async.messages)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Dead letters of groups: count, list, send again."""
        return DeadLetters(self._async.dead_letters)

    @cached_property
    def transactions(self) -> Transactions:
        """Undecided half messages."""
        return Transactions(self._async.transactions)

    @cached_property
    def undeliverable(self) -> Undeliverable:
        """Messages that brokers have set aside because they cannot deliver them."""
        return Undeliverable(self._async.undeliverable)

    @cached_property
    def send_limits(self) -> SendLimits:
        """Send limits that brokers enforce: set, list, delete."""
        return SendLimits(self._async.send_limits)

    @cached_property
    def delays(self) -> Delays:
        """Delayed messages that are not delivered yet."""
        return Delays(self._async.delays)

    @cached_property
    def access(self) -> Access:
        """Users and policies of RocketMQ 5.3."""
        return Access(self._async.access)

    @cached_property
    def accounts(self) -> Accounts:
        """Accounts of RocketMQ 4.x."""
        return Accounts(self._async.accounts)

    @cached_property
    def servers(self) -> Servers:
        """Operations on a single broker or name server, by its address: state, statistics, maintenance."""
        return Servers(self._async.servers)

    @cached_property
    def brokers(self) -> Servers:
        """Alias of `servers`. Operations on brokers were separate in earlier versions."""
        return Servers(self._async.brokers)
