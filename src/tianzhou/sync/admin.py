"""Blocking admin operations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tianzhou import admin
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.groups import GroupLag, OffsetChange
from tianzhou.admin.messages import FOREVER_MS, MAX_MESSAGES
from tianzhou.admin.topics import TopicDescription
from tianzhou.client.instance import ClientInstance
from tianzhou.model import (
    ClusterInfo,
    MessageExt,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
)
from tianzhou.model.topic import PERM_READ, PERM_WRITE
from tianzhou.sync.background import Blocking
from tianzhou.wire.bodies.clients import ConsumerConnection, ConsumerRunningInfo, DirectConsumption
from tianzhou.wire.bodies.offsets import TopicStats


class Topics(Blocking):
    """Blocking operations on topics.

    Args:
        topics: the async ones.
    """

    def __init__(self, topics: admin.Topics) -> None:
        super().__init__()
        self._topics = topics

    def create(
        self,
        topic: str,
        *,
        read_queue_nums: int = 8,
        write_queue_nums: int = 8,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """See `tianzhou.admin.Topics.create`."""
        return self._run(
            self._topics.create(
                topic,
                read_queue_nums=read_queue_nums,
                write_queue_nums=write_queue_nums,
                perm=perm,
                order=order,
                attributes=attributes,
                cluster=cluster,
                broker_addr=broker_addr,
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
    ) -> dict[str, TopicConfig]:
        """See `tianzhou.admin.Topics.update`."""
        return self._run(
            self._topics.update(
                topic,
                read_queue_nums=read_queue_nums,
                write_queue_nums=write_queue_nums,
                perm=perm,
                order=order,
                attributes=attributes,
            )
        )

    def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """See `tianzhou.admin.Topics.delete`."""
        self._run(self._topics.delete(topic, cluster=cluster))

    def names(self, *, cluster: str | None = None) -> list[str]:
        """See `tianzhou.admin.Topics.names`."""
        return self._run(self._topics.names(cluster=cluster))

    def system_names(self) -> set[str]:
        """See `tianzhou.admin.Topics.system_names`."""
        return self._run(self._topics.system_names())

    def exists(self, topic: str) -> bool:
        """See `tianzhou.admin.Topics.exists`."""
        return self._run(self._topics.exists(topic))

    def route(self, topic: str) -> TopicRoute:
        """See `tianzhou.admin.Topics.route`."""
        return self._run(self._topics.route(topic))

    def clusters(self, topic: str) -> list[str]:
        """See `tianzhou.admin.Topics.clusters`."""
        return self._run(self._topics.clusters(topic))

    def config(self, topic: str) -> dict[str, TopicConfig]:
        """See `tianzhou.admin.Topics.config`."""
        return self._run(self._topics.config(topic))

    def stats(self, topic: str) -> TopicStats:
        """See `tianzhou.admin.Topics.stats`."""
        return self._run(self._topics.stats(topic))

    def groups(self, topic: str) -> list[str]:
        """See `tianzhou.admin.Topics.groups`."""
        return self._run(self._topics.groups(topic))

    def describe(self, topic: str) -> TopicDescription:
        """See `tianzhou.admin.Topics.describe`."""
        return self._run(self._topics.describe(topic))


class Groups(Blocking):
    """Blocking operations on consumer groups.

    Args:
        groups: the async ones.
    """

    def __init__(self, groups: admin.Groups) -> None:
        super().__init__()
        self._groups = groups

    def names(self, *, cluster: str | None = None, system: bool = False) -> list[str]:
        """See `tianzhou.admin.Groups.names`."""
        return self._run(self._groups.names(cluster=cluster, system=system))

    def config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """See `tianzhou.admin.Groups.config`."""
        return self._run(self._groups.config(group))

    def create(self, group: str, *, cluster: str | None = None, **settings: Any) -> SubscriptionGroupConfig:
        """See `tianzhou.admin.Groups.create`."""
        return self._run(self._groups.create(group, cluster=cluster, **settings))

    def update(self, group: str, **settings: Any) -> dict[str, SubscriptionGroupConfig]:
        """See `tianzhou.admin.Groups.update`."""
        return self._run(self._groups.update(group, **settings))

    def delete(
        self, group: str, *, remove_offsets: bool = True, remove_topics: bool = True, cluster: str | None = None
    ) -> None:
        """See `tianzhou.admin.Groups.delete`."""
        self._run(
            self._groups.delete(group, remove_offsets=remove_offsets, remove_topics=remove_topics, cluster=cluster)
        )

    def connections(self, group: str) -> ConsumerConnection | None:
        """See `tianzhou.admin.Groups.connections`."""
        return self._run(self._groups.connections(group))

    def running_info(self, group: str, client_id: str, *, stack: bool = False) -> ConsumerRunningInfo:
        """See `tianzhou.admin.Groups.running_info`."""
        return self._run(self._groups.running_info(group, client_id, stack=stack))

    def consume_directly(self, group: str, client_id: str, offset_msg_id: str, topic: str) -> DirectConsumption:
        """See `tianzhou.admin.Groups.consume_directly`."""
        return self._run(self._groups.consume_directly(group, client_id, offset_msg_id, topic))

    def lag(self, group: str, topic: str | None = None, *, clients: bool = False) -> GroupLag:
        """See `tianzhou.admin.Groups.lag`."""
        return self._run(self._groups.lag(group, topic, clients=clients))

    def reset(
        self,
        group: str,
        topic: str,
        *,
        to_time_ms: int | None = None,
        to_offset: int | None = None,
        to_earliest: bool = False,
        to_latest: bool = False,
        queues: Collection[MessageQueue] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """See `tianzhou.admin.Groups.reset`."""
        return self._run(
            self._groups.reset(
                group,
                topic,
                to_time_ms=to_time_ms,
                to_offset=to_offset,
                to_earliest=to_earliest,
                to_latest=to_latest,
                queues=queues,
                dry_run=dry_run,
            )
        )


class Cluster(Blocking):
    """Blocking operations on servers.

    Args:
        cluster: the async ones.
    """

    def __init__(self, cluster: admin.Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    @property
    def name_servers(self) -> list[str]:
        """See `tianzhou.admin.Cluster.name_servers`."""
        return self._cluster.name_servers

    def info(self) -> ClusterInfo:
        """See `tianzhou.admin.Cluster.info`."""
        return self._run(self._cluster.info())

    def names(self) -> list[str]:
        """See `tianzhou.admin.Cluster.names`."""
        return self._run(self._cluster.names())

    def masters(self, cluster: str | None = None) -> dict[str, str]:
        """See `tianzhou.admin.Cluster.masters`."""
        return self._run(self._cluster.masters(cluster))

    def status(self, cluster: str | None = None) -> list[BrokerStatus]:
        """See `tianzhou.admin.Cluster.status`."""
        return self._run(self._cluster.status(cluster))

    def runtime(self, address: str) -> dict[str, str]:
        """See `tianzhou.admin.Cluster.runtime`."""
        return self._run(self._cluster.runtime(address))

    def broker_config(self, address: str) -> dict[str, str]:
        """See `tianzhou.admin.Cluster.broker_config`."""
        return self._run(self._cluster.broker_config(address))

    def update_broker_config(self, address: str, values: Mapping[str, str]) -> None:
        """See `tianzhou.admin.Cluster.update_broker_config`."""
        self._run(self._cluster.update_broker_config(address, values))

    def namesrv_config(self) -> dict[str, dict[str, str]]:
        """See `tianzhou.admin.Cluster.namesrv_config`."""
        return self._run(self._cluster.namesrv_config())

    def update_namesrv_config(self, values: Mapping[str, str]) -> None:
        """See `tianzhou.admin.Cluster.update_namesrv_config`."""
        self._run(self._cluster.update_namesrv_config(values))

    def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """See `tianzhou.admin.Cluster.wipe_write_perm`."""
        return self._run(self._cluster.wipe_write_perm(broker_name))

    def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """See `tianzhou.admin.Cluster.add_write_perm`."""
        return self._run(self._cluster.add_write_perm(broker_name))

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """See `tianzhou.admin.Cluster.put_kv`."""
        self._run(self._cluster.put_kv(namespace, key, value))

    def get_kv(self, namespace: str, key: str) -> str | None:
        """See `tianzhou.admin.Cluster.get_kv`."""
        return self._run(self._cluster.get_kv(namespace, key))

    def delete_kv(self, namespace: str, key: str) -> None:
        """See `tianzhou.admin.Cluster.delete_kv`."""
        self._run(self._cluster.delete_kv(namespace, key))


class Messages(Blocking):
    """Blocking queries for messages.

    Args:
        messages: the async ones.
    """

    def __init__(self, messages: admin.Messages) -> None:
        super().__init__()
        self._messages = messages

    def view(self, topic: str, msg_id: str) -> MessageExt:
        """See `tianzhou.admin.Messages.view`."""
        return self._run(self._messages.view(topic, msg_id))

    def by_offset_id(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """See `tianzhou.admin.Messages.by_offset_id`."""
        return self._run(self._messages.by_offset_id(offset_msg_id, topic=topic))

    def by_unique_key(self, topic: str, unique_key: str) -> MessageExt | None:
        """See `tianzhou.admin.Messages.by_unique_key`."""
        return self._run(self._messages.by_unique_key(topic, unique_key))

    def by_key(
        self, topic: str, key: str, *, max_num: int = MAX_MESSAGES, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """See `tianzhou.admin.Messages.by_key`."""
        return self._run(self._messages.by_key(topic, key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms))

    def by_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """See `tianzhou.admin.Messages.by_offset`."""
        return self._run(self._messages.by_offset(queue, offset))


class Admin(Blocking):
    """Blocking admin operations, sorted by noun; a context manager.

    Args:
        namesrv_addr: name servers, `host:port` joined by `;`.
        options: as of `tianzhou.admin.Admin`.

    Attributes:
        topics: create, change, delete, list, describe topics.
        groups: consumer groups: list, create, delete, lag, reset.
        cluster: brokers and name servers.
        messages: find messages.
    """

    def __init__(self, namesrv_addr: str | Sequence[str] | None = None, **options: Any) -> None:
        super().__init__()
        self._admin = admin.Admin(namesrv_addr, **options)
        self.topics = Topics(self._admin.topics)
        self.groups = Groups(self._admin.groups)
        self.cluster = Cluster(self._admin.cluster)
        self.messages = Messages(self._admin.messages)

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
        return self._admin.instance

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """See `tianzhou.admin.Admin.start`."""
        self._run(self._admin.start())

    def stop(self) -> None:
        """See `tianzhou.admin.Admin.stop`."""
        self._run(self._admin.stop())
