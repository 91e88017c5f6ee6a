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
            only_new: whether to refuse a name that exists. RocketMQ has no such request, so of two tools that create
                the same topic at the same moment both may succeed.

        Returns:
            Addresses of the brokers that have it now.

        Raises:
            AlreadyExists: the topic exists, and `only_new` is set.
            ClientError: name or numbers cannot be used, or there is no such cluster.
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
        """Change parts of a topic's configuration on every broker that has it; other settings stay.

        Queue numbers change at once. `change_queues` changes them in an order that loses no message from sight.

        Args:
            topic: its name.
            read_queue_nums: queues per broker that are read, 1 to `MAX_QUEUES`.
            write_queue_nums: queues per broker that are written, 1 to `MAX_QUEUES`.
            perm: one of `PERMISSIONS`, a sum of 4 (read) and 2 (write).
            order: see `create`.
            attributes: attributes to set, or with None to remove.
            brokers: names of the brokers to change it on; None for all that have it.

        Returns:
            The new configuration by broker name, of the changed brokers.

        Raises:
            ClientError: the topic does not exist, not on one of these brokers, or a number cannot be used.
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
        """Return what `change_queues` would do: steps, queues that go, and their unread messages by group.

        Groups that broadcast are left out, because their members store the offsets.

        Args:
            topic: its name.
            read_queue_nums: queues per broker that are read, 1 to `MAX_QUEUES`; None leaves each broker's number.
            write_queue_nums: queues per broker that are written, 1 to `MAX_QUEUES`; None leaves each broker's number.
            brokers: names of the brokers to change; None for all that have it.

        Raises:
            ClientError: the topic does not exist, not on one of these brokers, or a number cannot be used.
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
        """Change a topic's queue numbers in the order of `queue_steps`, and return what is left to do.

        A broker's queues go only while every group has consumed them. Call again when the groups have: the steps that
        are done are not repeated.

        Args:
            topic: its name.
            read_queue_nums: queues per broker that are read, 1 to `MAX_QUEUES`; None leaves each broker's number.
            write_queue_nums: queues per broker that are written, 1 to `MAX_QUEUES`; None leaves each broker's number.
            brokers: names of the brokers to change; None for all that have it.
            drop_unread: whether queues go with their unread messages. The messages stay in the store, out of reach
                until the topic has as many read queues again.

        Returns:
            The plan of what is left: without steps when everything is done, else with the unread messages.

        Raises:
            ClientError: the topic does not exist, not on one of these brokers, or a number cannot be used.
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
        """Have one broker take a topic's configuration as it is, without waiting for its route.

        Args:
            broker_addr: the broker.
            config: the configuration; its attributes are left as the broker has them.

        Raises:
            BrokerError: the broker refuses.
        """
        self._run(self._async.put(broker_addr, config))

    def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every broker of a cluster, or of all, and from the name servers.

        Its messages go with it. Deleting what does not exist is no error.

        Args:
            topic: its name.
            cluster: the cluster to delete it from.
        """
        self._run(self._async.delete(topic, cluster=cluster))

    def names(self, *, cluster: str | None = None) -> list[str]:
        """The names of all topics, or of a cluster's, sorted; system topics included."""
        return self._run(self._async.names(cluster=cluster))

    def system_names(self) -> set[str]:
        """Topics every broker has for its own use, and those named like clusters and brokers."""
        return self._run(self._async.system_names())

    def exists(self, topic: str) -> bool:
        """Whether the name server knows the topic."""
        return self._run(self._async.exists(topic))

    def route(self, topic: str) -> TopicRoute:
        """A topic's queues and brokers.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.route(topic))

    def clusters(self, topic: str) -> list[str]:
        """The clusters that have the topic."""
        return self._run(self._async.clusters(topic))

    def config(self, topic: str) -> dict[str, TopicConfig]:
        """A topic's configuration by broker name.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.config(topic))

    def stats(self, topic: str) -> TopicStats:
        """First and next offset of every queue of a topic, also of the empty ones.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.stats(topic))

    def groups(self, topic: str) -> list[str]:
        """The groups that have consumed a topic.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.groups(topic))

    def describe(self, topic: str) -> TopicDescription:
        """Everything there is to know about a topic.

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
        """The names of all groups, sorted.

        Args:
            cluster: only those of a cluster's brokers.
            system: also those every broker has.
        """
        return self._run(self._async.names(cluster=cluster, system=system))

    def config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """A group's configuration by broker name; empty when no broker has it."""
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

        Settings that are not given get their defaults, also those of a group that exists. `update` changes single ones.

        Args:
            group: its name.
            cluster: the cluster whose masters get it; None takes all clusters.
            broker_addr: one broker alone.
            only_new: whether to refuse a name that a broker has. RocketMQ has no such request, so of two tools that
                create the same group at the same moment both may succeed.
            settings: fields of `SubscriptionGroupConfig`, as `retry_max_times=3`.

        Raises:
            AlreadyExists: a broker has the group, and `only_new` is set.
            ClientError: the name cannot be used.
            ConfigError: there is no such setting.
        """
        return self._run(
            self._async.create(group, cluster=cluster, broker_addr=broker_addr, only_new=only_new, **settings)
        )

    def create_several(self, configs: Iterable[SubscriptionGroupConfig], broker_addr: str) -> None:
        """Create several groups at once on a broker, or replace their configuration (225).

        Raises:
            BrokerError: the broker refuses, or does not know the request, as those of RocketMQ 4.
        """
        self._run(self._async.create_several(configs, broker_addr))

    def set_request_mode(
        self, group: str, topic: str, mode: str, broker_addr: str, *, pop_share_queue_num: int = 0
    ) -> None:
        """Have a group's members pull a topic, or pop it (401).

        Args:
            group: the group.
            topic: the topic.
            mode: `PULL` or `POP`.
            broker_addr: the broker.
            pop_share_queue_num: how many queues a member shares when it pops.

        Raises:
            BrokerError: the broker refuses, or does not serve POP.
        """
        self._run(
            self._async.set_request_mode(group, topic, mode, broker_addr, pop_share_queue_num=pop_share_queue_num)
        )

    def clone_offsets(self, source: str, target: str, topic: str, *, offline: bool = False) -> None:
        """Copy how far a group has consumed a topic to another group (314).

        Args:
            source: the group that is copied.
            target: the group that gets the offsets.
            topic: the topic.
            offline: whether the source may be without members.

        Raises:
            ClientError: the source has consumed nothing, so it has no retry topic.
            BrokerError: a broker refuses.
        """
        self._run(self._async.clone_offsets(source, target, topic, offline=offline))

    def update(self, group: str, **settings: Any) -> dict[str, SubscriptionGroupConfig]:
        """Change parts of a group's configuration on every broker that has it; other settings stay.

        Returns:
            The new configuration by broker name.

        Raises:
            ClientError: no broker has the group.
            ConfigError: there is no such setting.
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
        """Delete a group from every broker of a cluster, or of all.

        Args:
            group: its name.
            remove_offsets: also how far it has consumed.
            remove_topics: also its retry and dead letter topics, with the messages in them.
            cluster: the cluster to delete it from.
            broker_addr: one broker alone.
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
        """The group's connected members and what they subscribe to; None when nobody is connected.

        Args:
            group: the group.
            broker_addr: ask one broker alone.
        """
        return self._run(self._async.connections(group, broker_addr=broker_addr))

    def running_info(self, group: str, client_id: str, *, stack: bool = False) -> ConsumerRunningInfo:
        """What a connected member reports about itself (wire.md §7.11).

        Args:
            group: the group.
            client_id: the member.
            stack: whether it adds a dump of its threads.
        """
        return self._run(self._async.running_info(group, client_id, stack=stack))

    def consume_directly(self, group: str, client_id: str, offset_msg_id: str, topic: str) -> DirectConsumption:
        """Have a connected member consume one message at once, outside its queues (wire.md §7.12).

        Args:
            group: the group.
            client_id: the member.
            offset_msg_id: the message's offset id.
            topic: the message's topic.
        """
        return self._run(self._async.consume_directly(group, client_id, offset_msg_id, topic))

    def lag(self, group: str, topic: str | None = None, *, clients: bool = False) -> GroupLag:
        """How far a group is behind, queue by queue; for offline groups as well.

        Args:
            group: the group.
            topic: one topic; None takes all the group has consumed.
            clients: also find out which member reads which queue, which asks every member.

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
        """Have a group continue elsewhere in a topic, whether its members are connected or not.

        Give exactly one of the four destinations, or `to_offsets`. Connected members of a RocketMQ 5 broker or of
        Tianzhou move at their next pull; those of a 4.x broker after about ten seconds.

        Args:
            group: the group.
            topic: the topic.
            to_time_ms: to the first message stored at or after this time, milliseconds since the epoch.
            to_offset: to this offset, which each of the queues has to hold.
            to_earliest: to the first message there is.
            to_latest: behind the last message there is.
            to_offsets: offset by queue; a queue whose range ends before that offset takes the end of its range. Beside
                a destination these are the offsets of an earlier dry run: they replace the destination, except where
                a broker passes the reset on to connected members: a 4.x broker, or useServerSideResetOffset=false.
            queues: only these queues; None takes all of `to_offsets`, or of the topic beside a destination.
            dry_run: only tell what would happen.

        Returns:
            The queues with the group's offset before and afterwards.

        Raises:
            ClientError: none or several destinations are given, the topic or a queue does not exist, or a broker that
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
        """All brokers and clusters the name server knows."""
        return self._run(self._async.info())

    def names(self) -> list[str]:
        """The names of all clusters."""
        return self._run(self._async.names())

    def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Broker names and their masters' addresses, of a cluster or of all.

        Raises:
            ClientError: there is no such cluster, or no broker has a master.
        """
        return self._run(self._async.masters(cluster))

    def status(self, cluster: str | None = None) -> list[BrokerStatus]:
        """Every broker process, with what it reports about itself; those that do not answer are listed too.

        Raises:
            ClientError: there is no such cluster, or no broker.
        """
        return self._run(self._async.status(cluster))

    def status_of(self, brokers: Iterable[BrokerData]) -> list[BrokerStatus]:
        """`status` of brokers that are known already, and of no others.

        Args:
            brokers: names with their addresses, as name servers have them.
        """
        return self._run(self._async.status_of(brokers))

    def copies(self, address: str) -> HaStatus:
        """How far copies of a broker's log are, as `haStatus` shows it.

        Args:
            address: of a master, or of a slave.

        Raises:
            BrokerError: it does not know the question, as those of RocketMQ 4.
        """
        return self._run(self._async.copies(address))

    def runtime(self, address: str) -> dict[str, str]:
        """What a broker reports about itself (wire.md §9.11)."""
        return self._run(self._async.runtime(address))

    def broker_config(self, address: str) -> dict[str, str]:
        """A broker's configuration, RocketMQ's keys to values."""
        return self._run(self._async.broker_config(address))

    def update_broker_config(self, address: str, values: Mapping[str, str], *, at_next_start: bool = False) -> None:
        """Change a running broker's configuration.

        Args:
            address: the broker.
            values: RocketMQ's keys to their new values.
            at_next_start: write them to the broker's file alone, for its next start. Only Tianzhou's brokers do this.

        Raises:
            BrokerError: a key may not be changed while the broker runs.
            ClientError: the broker is no broker of Tianzhou, and `at_next_start` is set; nothing was changed.
        """
        self._run(self._async.update_broker_config(address, values, at_next_start=at_next_start))

    def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Every name server's configuration, by address."""
        return self._run(self._async.namesrv_config())

    def update_namesrv_config(self, values: Mapping[str, str]) -> None:
        """Change the configuration of every name server."""
        self._run(self._async.update_namesrv_config(values))

    def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Have producers leave a broker alone, before it is stopped.

        Returns:
            How many topics that touches, by name server.
        """
        return self._run(self._async.wipe_write_perm(broker_name))

    def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_perm`.

        Returns:
            How many topics that touches, by name server.
        """
        return self._run(self._async.add_write_perm(broker_name))

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a KV entry at every name server."""
        self._run(self._async.put_kv(namespace, key, value))

    def get_kv(self, namespace: str, key: str) -> str | None:
        """A KV entry, None when there is none."""
        return self._run(self._async.get_kv(namespace, key))

    def kv_entries(self, namespace: str) -> dict[str, str]:
        """All KV entries of a namespace; none when there is no such namespace."""
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
        """Return a message by either of its ids.

        Args:
            topic: its topic.
            msg_id: the unique key that the producer gave it, or its offset id.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: there is none.
        """
        return self._run(self._async.view(topic, msg_id, failures))

    def by_offset_id(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """The message at an offset id, from the broker the id names.

        Args:
            offset_msg_id: the id.
            topic: its topic, which some brokers check permissions by.

        Raises:
            ClientError: the id names no broker the name server knows.
            BrokerError: the broker holds no message there.
            ProtocolError: it is no offset id.
        """
        return self._run(self._async.by_offset_id(offset_msg_id, topic=topic))

    def by_unique_key(self, topic: str, unique_key: str) -> MessageExt | None:
        """The first message with a unique key, None when there is none.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.by_unique_key(topic, unique_key))

    def all_by_unique_key(
        self, topic: str, unique_key: str, failures: dict[str, str] | None = None
    ) -> list[MessageExt]:
        """Return all messages with a unique key, the oldest first: a message that was sent again keeps its key.

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
        """The messages with a business key, oldest first.

        Args:
            topic: the topic.
            key: one key, as in `Message.keys`.
            max_num: maximum messages of each broker; brokers give at most 64.
            begin_ms: stored at or after this time, milliseconds since the epoch.
            end_ms: stored at or before this time.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(
            self._async.by_key(topic, key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, failures=failures)
        )

    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset a queue holds and the one its next message will get."""
        return self._run(self._async.bounds(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset of a queue whose message was stored at or after a time, milliseconds since the epoch."""
        return self._run(self._async.offset_at(queue, timestamp_ms))

    def read(self, queue: MessageQueue, offset: int, *, expression: str = "*", max_messages: int = 32) -> PullResult:
        """Read from a queue once, as no consumer: nothing is committed.

        Args:
            queue: the queue.
            offset: the first wanted offset.
            expression: tags, as `TagA || TagB`.
            max_messages: maximum of messages.
        """
        return self._run(self._async.read(queue, offset, expression=expression, max_messages=max_messages))

    def tracks(self, message: MessageExt, failures: dict[str, str] | None = None) -> list[MessageTrack]:
        """Return what became of a message in every group that consumes its topic.

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

        The query reads at most 64 MiB of records and bodies. Above this size it returns fewer messages than `limit`.
        For those before them, ask again up to the last one's store time.

        Args:
            topic: the topic.
            begin_ms: stored at or after this time, milliseconds since the epoch.
            end_ms: stored at or before this time.
            limit: most messages.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the topic does not exist, none of its brokers has a master, or the messages are too large.
        """
        return self._run(self._async.by_time(topic, begin_ms, end_ms, limit=limit, failures=failures))

    def newest_records(
        self, topic: str, each: int, *, most_bytes: int = MOST_BYTES
    ) -> list[tuple[MessageQueue, int, int, list[bytes]]]:
        """The newest records of every queue of a topic as they are on the wire, for whoever makes columns of them.

        Args:
            topic: the topic.
            each: most messages of each queue.
            most_bytes: most bytes of records altogether.

        Returns:
            By queue: the queue, the first offset wanted, the one after the last, and the records (wire.md §5).

        Raises:
            ClientError: the topic does not exist, or none of its brokers has a master.
        """
        return self._run(self._async.newest_records(topic, each, most_bytes=most_bytes))

    def trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC, failures: dict[str, str] | None = None
    ) -> list[TraceRecord]:
        """What producers and consumers have noted about a message, by time; they note it when they are told to trace.

        Args:
            msg_id: its unique key.
            trace_topic: where they note it.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.

        Raises:
            ClientError: the trace topic does not exist.
        """
        return self._run(self._async.trace(msg_id, trace_topic=trace_topic, failures=failures))

    def by_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """The message at an offset of a queue, None when the queue holds none there."""
        return self._run(self._async.by_offset(queue, offset))


class DeadLetters(Blocking):
    """What groups have given up on.

    Args:
        asynchronous: the async one.
    """

    _async: admin.DeadLetters

    def __init__(self, asynchronous: admin.DeadLetters) -> None:
        super().__init__(asynchronous)

    def count(self, group: str, failures: dict[str, str] | None = None) -> int:
        """Return the number of dead letters of a group that brokers still hold; 0 when it never had any.

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
        """Return dead letters of a group, the newest first; none when it never had any.

        Args:
            group: the group.
            begin_ms: stored at or after this time, milliseconds since the epoch.
            end_ms: stored at or before this time.
            limit: most messages, 10,000 at most.
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

        The dead letters stay where they are: sending them twice is two messages each. A letter that fails does not
        hold the others up. Cancel the call to stop; messages that are sent stay sent.

        Args:
            letters: dead letters, as `list` returns them.
            to: the topic they go to, all of whose groups get them; None for the group that they are of alone, as first
                deliveries with all its retries.
            progress: is called after each letter.
        """
        return self._run(self._async.resend(letters, to=to, progress=progress))


class Transactions(Blocking):
    """Transactions that are not decided.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Transactions

    def __init__(self, asynchronous: admin.Transactions) -> None:
        super().__init__(asynchronous)

    def open(self, broker_name: str | None = None, failures: dict[str, str] | None = None) -> list[OpenTransactions]:
        """Return the half messages without a decision, by broker.

        A decision is seen when the broker has written it down, which some do seconds later.

        Args:
            broker_name: one broker alone; None takes all.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        return self._run(self._async.open(broker_name, failures))

    def half(self, broker_name: str, queue_offset: int) -> tuple[HalfMessage, MessageExt]:
        """Return a half message without a decision, and the message as it is stored.

        Args:
            broker_name: the broker.
            queue_offset: offset of the newest copy in the half queue.

        Raises:
            ClientError: the broker has no master, or has no such half message without a decision.
        """
        return self._run(self._async.half(broker_name, queue_offset))

    def end(self, half: HalfMessage, state: TransactionState) -> None:
        """Commit or roll back a half message in place of its producer.

        A broker of Tianzhou ends a transaction once, whoever decides first. A broker of Apache delivers the message
        again for each commit, so this method refuses it.

        Args:
            half: the half message, as `open` or `half` returns it.
            state: `COMMIT` or `ROLLBACK`.

        Raises:
            ClientError: the broker has no master, or is no broker of Tianzhou.
            BrokerError: the transaction has ended otherwise, or the message cannot be stored.
        """
        self._run(self._async.end(half, state))


class Delays(Blocking):
    """Delayed messages.

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
        """Return a delayed message that waits, and the message as it is stored.

        Args:
            broker_name: the broker.
            level: the delay level, from 1.
            queue_offset: offset in the level's queue.

        Raises:
            ClientError: the broker has no master, has no such level, or has delivered the message.
        """
        return self._run(self._async.message(broker_name, level, queue_offset))


class Undeliverable(Blocking):
    """Messages that brokers have set aside.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Undeliverable

    def __init__(self, asynchronous: admin.Undeliverable) -> None:
        super().__init__(asynchronous)

    def list(self, broker_name: str | None = None) -> list[UndeliverableMessage]:
        """Return the messages that are set aside, broker by broker, the oldest first.

        Args:
            broker_name: one broker alone; None takes all.
        """
        return self._run(self._async.list(broker_name))

    def resend(self, messages: Iterable[UndeliverableMessage], *, to: str | None = None) -> Redelivery:
        """Have brokers deliver messages that they have set aside; a message that fails stays where it is.

        Args:
            messages: of `list`.
            to: the topic to deliver to, which has to exist; None for the topic that each was to go to.
        """
        return self._run(self._async.resend(messages, to=to))


class SendLimits(Blocking):
    """Limits of senders. Each broker counts its own sends.

    Args:
        asynchronous: the async one.
    """

    _async: admin.SendLimits

    def __init__(self, asynchronous: admin.SendLimits) -> None:
        super().__init__(asynchronous)

    def set(self, limit: SendLimit, *, broker_name: str | None = None) -> list[str]:
        """Set a limit at the brokers of all clusters, in the place of one of the same scope and name.

        Args:
            limit: the limit.
            broker_name: one broker alone; None takes all.

        Returns:
            Names of the brokers that have it.

        Raises:
            TianzhouError: a broker refuses or does not answer; the text names the brokers that have the limit.
        """
        return self._run(self._async.set(limit, broker_name=broker_name))

    def delete(self, scope: LimitScope, name: str, *, broker_name: str | None = None) -> list[str]:
        """Delete a limit.

        Args:
            scope: of the limit.
            name: of its topic, group or client.
            broker_name: one broker alone; None takes all.

        Returns:
            Names of the brokers that had it.

        Raises:
            ClientError: no broker has it.
            TianzhouError: a broker refuses or does not answer; the text names the brokers that have deleted it.
        """
        return self._run(self._async.delete(scope, name, broker_name=broker_name))

    def list(self, broker_name: str | None = None) -> list[LimitStatus]:
        """Return the limits, broker by broker.

        Args:
            broker_name: one broker alone; None takes all.

        Raises:
            TianzhouError: a broker does not know limits, refuses, or does not answer.
        """
        return self._run(self._async.list(broker_name))


class Access(Blocking):
    """Operations on users and policies.

    Each server has its own: changes go to all brokers of a cluster, slaves included, and to those name servers that
    have users, as Apache's have none.

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
            username: its name, the access key of its clients.
            password: its secret key.
            user_type: `Normal`, or `Super` for one that may do everything.
            cluster: the cluster whose brokers get it; None takes all clusters.
            broker_addr: one server alone.

        Returns:
            Addresses of the servers that have it now.

        Raises:
            ClientError: there is no such cluster.
            BrokerError: a server refuses, as one that has the user; others may have it now.
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
        """Change a user; what is None stays.

        Args:
            username: its name.
            password: its new secret key; who signs with the old one is refused at once.
            user_type: `Normal` or `Super`.
            status: `enable` or `disable`.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that changed it.

        Raises:
            ClientError: nothing is to be changed, or there is no such cluster.
            BrokerError: a server refuses, as one that has no such user.
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
        """Delete a user with its policies; one that does not exist is no error.

        Args:
            username: its name.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that do not have it now.

        Raises:
            BrokerError: a server refuses.
        """
        return self._run(self._async.delete_user(username, cluster=cluster, broker_addr=broker_addr))

    def user(self, username: str, *, cluster: str | None = None, broker_addr: str | None = None) -> UserInfo | None:
        """A user as one broker has it, without its password; None when there is none.

        Args:
            username: its name.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        return self._run(self._async.user(username, cluster=cluster, broker_addr=broker_addr))

    def users(self, part: str = "", *, cluster: str | None = None, broker_addr: str | None = None) -> list[UserInfo]:
        """Users as one broker has them, without their passwords.

        Args:
            part: what their names contain.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        return self._run(self._async.users(part, cluster=cluster, broker_addr=broker_addr))

    def users_with_passwords(self, broker_addr: str, part: str = "") -> list[UserInfo]:
        """Users as a broker has them, to be copied; only Apache's brokers tell passwords.

        Args:
            broker_addr: the broker.
            part: what their names contain.
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
        """Allow or deny a user actions on resources; takes the place of what was said about these before.

        Args:
            username: the user.
            resources: `Topic:orders`, `Topic:orders*` (all that begin so), `Group:*`, `Cluster:*`, or `*`.
            actions: `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`, or `All`.
            decision: `Allow` or `Deny`.
            source_ips: addresses and CIDR ranges it holds for; none for all.
            policy_type: `Custom`, or `Default` for where no custom entry matches.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that have it now.

        Raises:
            ClientError: there is no such cluster.
            BrokerError: a server refuses: it has no such user, or a value cannot be read.
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
        """Remove what was said about a resource, or all policies of a user.

        Args:
            username: the user.
            resource: as in `set_acl`; None removes all policies.
            policy_type: which policy has the entry.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that do not have it now.

        Raises:
            BrokerError: a server refuses: it has no such user, or the user has no policies.
        """
        return self._run(
            self._async.delete_acl(
                username, resource, policy_type=policy_type, cluster=cluster, broker_addr=broker_addr
            )
        )

    def acl(self, username: str, *, cluster: str | None = None, broker_addr: str | None = None) -> AclInfo | None:
        """Policies of a user as one broker has them; None when it has none.

        Args:
            username: the user.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.

        Raises:
            BrokerError: the server refuses; Apache's does so when there is no such user.
        """
        return self._run(self._async.acl(username, cluster=cluster, broker_addr=broker_addr))

    def acls(
        self, subject: str = "", resource: str = "", *, cluster: str | None = None, broker_addr: str | None = None
    ) -> list[AclInfo]:
        """Policies as one broker has them.

        Args:
            subject: what their subjects, `User:` and a name, contain.
            resource: what the resources of their entries contain.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        return self._run(self._async.acls(subject, resource, cluster=cluster, broker_addr=broker_addr))


class Accounts(Blocking):
    """Operations on accounts of RocketMQ 4.x; those of 5.3 are `Access`.

    All of them raise `BrokerError` when the broker refuses, as one without access control and those of RocketMQ 5.3.

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
        """Create an account on a broker, or change it; what is None stays, but for `admin`, which becomes false (50).

        Args:
            address: the broker.
            access_key: names the account.
            secret_key: what it signs with.
            admin: whether it may administer.
            white_remote_address: addresses that need no signature.
            default_topic_perm: what it may do with topics: `DENY`, `PUB`, `SUB`, or `PUB|SUB`.
            default_group_perm: the same with groups.
            topic_perms: exceptions, as `orders=PUB|SUB`.
            group_perms: exceptions, as `billing=SUB`.
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
        """Set which addresses need no signature whoever signs (53).

        Args:
            address: the broker.
            white_addresses: addresses and ranges, separated by commas.
            file: the account file they are written to, where a broker has several.
        """
        self._run(self._async.set_white_addresses(address, white_addresses, file))

    def all(self, address: str) -> PlainAccounts:
        """All accounts of a broker (54); those of Tianzhou tell no secret, those of Apache's 4.9 do."""
        return self._run(self._async.all(address))

    def files(self, address: str) -> AccountFiles:
        """Versions of a broker's account files (52)."""
        return self._run(self._async.files(address))


class Servers(Blocking):
    """Operations on one broker or name server.

    All of them raise `BrokerError` when the server refuses, or does not know the request as brokers of RocketMQ 4
    some, and `RemotingError` when it does not answer.

    Args:
        asynchronous: the async one.
    """

    _async: admin.Servers

    def __init__(self, asynchronous: admin.Servers) -> None:
        super().__init__(asynchronous)

    def cluster_info(self, address: str) -> ClusterInfo:
        """All brokers and clusters that a name server knows.

        Args:
            address: of the name server.
        """
        return self._run(self._async.cluster_info(address))

    def route(self, address: str, topic: str) -> TopicRoute | None:
        """A topic's route as a name server has it; None when it has none.

        Args:
            address: of the name server.
            topic: the topic.
        """
        return self._run(self._async.route(address, topic))

    def namesrv_config(self, address: str) -> dict[str, str]:
        """A name server's configuration, RocketMQ's keys to values.

        Args:
            address: of the name server.
        """
        return self._run(self._async.namesrv_config(address))

    def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """All topics of a broker.

        Args:
            address: of the broker.
        """
        return self._run(self._async.topic_configs(address))

    def system_topics(self, address: str) -> list[str]:
        """Topics that a broker has for its own use.

        Args:
            address: of the broker.
        """
        return self._run(self._async.system_topics(address))

    def topic_stats(self, address: str, topic: str) -> TopicStats:
        """First and next offset of a topic's queues on a broker, and messages that come in per second.

        Args:
            address: of the broker.
            topic: the topic; without queues when the broker does not have it.
        """
        return self._run(self._async.topic_stats(address, topic))

    def topic_groups(self, address: str, topic: str) -> list[str]:
        """Groups that have consumed a topic on a broker.

        Args:
            address: of the broker.
            topic: the topic.
        """
        return self._run(self._async.topic_groups(address, topic))

    def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """All groups of a broker.

        Args:
            address: of the broker.
        """
        return self._run(self._async.group_configs(address))

    def connections(self, address: str, group: str) -> ConsumerConnection | None:
        """Members of a group that are connected to a broker, and what they subscribe; None when nobody is.

        Args:
            address: of the broker.
            group: the group.
        """
        return self._run(self._async.connections(address, group))

    def running_info(self, address: str, group: str, client_id: str) -> ConsumerRunningInfo:
        """What a member of a group says about itself, asked over its connection to a broker (wire.md §7.11).

        Args:
            address: of the broker.
            group: the group.
            client_id: the member.
        """
        return self._run(self._async.running_info(address, group, client_id))

    def consume_stats(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """How far a group is in the queues of a broker.

        Args:
            address: of the broker.
            group: the group; without queues when the broker does not have it.
            topic: one topic; None takes all that the group has consumed.
        """
        return self._run(self._async.consume_stats(address, group, topic))

    def time_spans(self, address: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """Store times of the messages at both ends of a topic's queues on a broker, and where a group is.

        Args:
            address: of the broker.
            group: the group.
            topic: the topic.
        """
        return self._run(self._async.time_spans(address, group, topic))

    def messages(self, address: str, queue: MessageQueue, offset: int, count: int) -> list[MessageExt]:
        """Messages of a queue from an offset on; nobody's offset is moved.

        Args:
            address: of the broker.
            queue: the queue.
            offset: of the first one.
            count: how many at most.
        """
        return self._run(self._async.messages(address, queue, offset, count))

    def create_topics(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Create several topics at once, or replace their configuration (18)."""
        self._run(self._async.create_topics(address, configs))

    def producers(self, address: str) -> dict[str, list[ProducerInfo]]:
        """All producers that a broker knows, by group (328)."""
        return self._run(self._async.producers(address))

    def producer_connections(self, address: str, group: str) -> list[Connection]:
        """Members of a producer group that are connected to a broker (204)."""
        return self._run(self._async.producer_connections(address, group))

    def all_consume_stats(self, address: str, *, ordered: bool = False) -> BrokerConsumeStats:
        """How far all groups of a broker are (317).

        Args:
            address: the broker.
            ordered: only groups that consume in order.
        """
        return self._run(self._async.all_consume_stats(address, ordered=ordered))

    def stats(self, address: str, name: str, key: str) -> BrokerStats:
        """One figure of a broker over a minute, an hour and a day; zeros when it has none (315).

        Args:
            address: the broker.
            name: of the figure, as `TOPIC_PUT_NUMS`.
            key: what it is of, as a topic, or `topic@group` (wire.md §9.9).
        """
        return self._run(self._async.stats(address, name, key))

    def queue_units(
        self, address: str, topic: str, queue_id: int, index: int, count: int = 10, group: str | None = None
    ) -> QueueUnits:
        """Some units of a consume queue (321).

        Args:
            address: the broker.
            topic: the topic.
            queue_id: the queue.
            index: the first unit.
            count: how many.
            group: a consumer group, whose filter is tried on them.
        """
        return self._run(self._async.queue_units(address, topic, queue_id, index, count, group))

    def clean_expired_queues(self, address: str) -> None:
        """Delete consume queues of topics and queues that are gone (306)."""
        self._run(self._async.clean_expired_queues(address))

    def clean_unused_topics(self, address: str) -> None:
        """Delete what is kept of topics that are gone (316)."""
        self._run(self._async.clean_unused_topics(address))

    def delete_expired_logs(self, address: str) -> None:
        """Delete expired files of the log now, whatever the hour (329)."""
        self._run(self._async.delete_expired_logs(address))

    def reset_flush_offset(self, address: str, offset: int) -> None:
        """Tell a slave how far its master's log is flushed (908)."""
        self._run(self._async.reset_flush_offset(address, offset))

    def epochs(self, address: str) -> dict[str, Any]:
        """Epochs of a broker's log, of brokers whose master a controller elects (1007)."""
        return self._run(self._async.epochs(address))

    def cold_read_limits(self, address: str) -> dict[str, Any]:
        """What groups may read of data that has left the memory, in the broker's own words (2003)."""
        return self._run(self._async.cold_read_limits(address))

    def set_cold_read_limit(self, address: str, group: str, bytes_per_second: int) -> None:
        """Set what a group may read of such data (2001)."""
        self._run(self._async.set_cold_read_limit(address, group, bytes_per_second))

    def remove_cold_read_limit(self, address: str, group: str) -> None:
        """Have a group read as much of such data as all do (2002)."""
        self._run(self._async.remove_cold_read_limit(address, group))

    def set_read_ahead(self, address: str, mode: str) -> str:
        """Switch reading ahead in the log's files; returns the broker's remark (2004).

        Args:
            address: the broker.
            mode: `READ_AHEAD` or `READ_RANDOM`.
        """
        return self._run(self._async.set_read_ahead(address, mode))

    def rocksdb_progress(self, address: str, topic: str, since_ms: int = 0) -> dict[str, Any]:
        """How far consume queues in RocksDB are (354): `checkStatus` and `checkResult`."""
        return self._run(self._async.rocksdb_progress(address, topic, since_ms))

    def export_pop_records(self, address: str) -> None:
        """Have a broker of RocketMQ 5 write what POP consumers have taken in the form of its predecessors (200056)."""
        self._run(self._async.export_pop_records(address))

    def add_to_container(self, container: str, config_path: str) -> None:
        """Have a broker container of RocketMQ 5 start one more broker (902)."""
        self._run(self._async.add_to_container(container, config_path))

    def remove_from_container(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Have a broker container stop one of its brokers (903)."""
        self._run(self._async.remove_from_container(container, cluster, broker_name, broker_id))


class Admin(Blocking):
    """Admin operations, sorted by noun; a context manager.

    A noun is imported when it is first used: a command needs one or two of them.

    Args:
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default it owns one.
        timeout_ms: limit of each request.
        client_options: as of `ClientInstance`, when it owns one.
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
        """Get ready; nothing is sent yet."""
        self._run(self._async.start())

    def stop(self) -> None:
        """Close what it owns."""
        self._run(self._async.stop())

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
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
        """What groups have given up on: count, list, send again."""
        return DeadLetters(self._async.dead_letters)

    @cached_property
    def transactions(self) -> Transactions:
        """Half messages that are not decided."""
        return Transactions(self._async.transactions)

    @cached_property
    def undeliverable(self) -> Undeliverable:
        """Messages that brokers have set aside because they cannot deliver them."""
        return Undeliverable(self._async.undeliverable)

    @cached_property
    def send_limits(self) -> SendLimits:
        """Limits of senders that brokers keep: set, list, delete."""
        return SendLimits(self._async.send_limits)

    @cached_property
    def delays(self) -> Delays:
        """Delayed messages that wait."""
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
        """One broker or name server at a time, by its address: what it says by itself, figures, upkeep."""
        return Servers(self._async.servers)

    @cached_property
    def brokers(self) -> Servers:
        """Another name of `servers`, from when operations on brokers were apart."""
        return Servers(self._async.brokers)
