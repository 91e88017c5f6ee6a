"""Operations on a single server, by its address: its state and its maintenance (wire.md §3.3, §3.4, §9).

Use these to compare servers, or to continue when a server does not answer. `Topics`, `Groups` and `Cluster` combine the
answers of all servers, and fail when one server does not answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tianzhou.admin.queue_reading import TOOLS_GROUP
from tianzhou.admin.reach import Reach, unless_absent
from tianzhou.model import (
    ClusterInfo,
    MessageExt,
    MessageQueue,
    PullStatus,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
)
from tianzhou.settings import parse_properties
from tianzhou.wire.bodies.clients import (
    CONSUMER_CONNECTION,
    PRODUCER_CONNECTION,
    PRODUCER_TABLE,
    RUNNING_INFO,
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerInfo,
)
from tianzhou.wire.bodies.groups import GROUP_LIST, SUBSCRIPTION_GROUP_TABLE
from tianzhou.wire.bodies.offsets import (
    BROKER_CONSUME_STATS,
    CONSUME_STATS,
    QUEUE_UNITS,
    TIME_SPANS,
    TOPIC_STATS,
    BrokerConsumeStats,
    ConsumeStats,
    QueueTimeSpan,
    QueueUnits,
    TopicStats,
)
from tianzhou.wire.bodies.route import CLUSTER_INFO, ROUTE
from tianzhou.wire.bodies.tables import BROKER_STATS, BrokerStats
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS, TOPIC_LIST, TOPIC_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.json_dialect import loads

READ_AHEAD: Final = "0"
"""Mode of `set_read_ahead`: the operating system reads ahead in the files of the log."""
READ_RANDOM: Final = "1"
"""Mode of `set_read_ahead`: the operating system does not read ahead."""


class Servers:
    """Operations on one broker or name server.

    All methods raise `BrokerError` when the server refuses or does not support the request, as brokers of RocketMQ 4 do
    for some requests. They raise `RemotingError` when the server does not answer.

    Args:
        reach: sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    # --- name servers ----------------------------------------------------------------------------------------

    async def cluster_info(self, address: str) -> ClusterInfo:
        """Return all brokers and clusters that a name server knows.

        Args:
            address: address of the name server.
        """
        return await self._reach.load(address, RequestCode.GET_BROKER_CLUSTER_INFO, CLUSTER_INFO)

    async def route(self, address: str, topic: str) -> TopicRoute | None:
        """Return a topic's route from a name server; None when the topic has no route there.

        Args:
            address: address of the name server.
            topic: the topic.
        """
        request = self._reach.load(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, ROUTE, topic=topic)
        return await unless_absent(request, None)

    async def namesrv_config(self, address: str) -> dict[str, str]:
        """Return a name server's configuration: RocketMQ's keys and their values.

        Args:
            address: address of the name server.
        """
        reply = await self._reach.call(address, RequestCode.GET_NAMESRV_CONFIG)
        return parse_properties(bytes(reply.body).decode(), source=address)

    # --- brokers ---------------------------------------------------------------------------------------------

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Return the configurations of all topics of a broker.

        Args:
            address: address of the broker.
        """
        return (await self._reach.load(address, RequestCode.GET_ALL_TOPIC_CONFIG, TOPIC_TABLE)).topic_config_table

    async def system_topics(self, address: str) -> list[str]:
        """Return a broker's system topics.

        Args:
            address: address of the broker.
        """
        return (await self._reach.load(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TOPIC_LIST)).topic_list

    async def topic_stats(self, address: str, topic: str) -> TopicStats:
        """Return the offset range of a topic's queues on a broker, and the topic's incoming messages per second.

        Args:
            address: address of the broker.
            topic: the topic; the result has no queues when the broker does not have it.
        """
        request = self._reach.load(address, RequestCode.GET_TOPIC_STATS_INFO, TOPIC_STATS, topic=topic)
        return await unless_absent(request, TopicStats())

    async def topic_groups(self, address: str, topic: str) -> list[str]:
        """Return the groups that have consumed a topic on a broker.

        Args:
            address: address of the broker.
            topic: the topic.
        """
        nobody: list[str] = []
        request = self._reach.load(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GROUP_LIST, topic=topic)
        return await unless_absent(request, nobody)

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Return the configurations of all groups of a broker.

        Args:
            address: address of the broker.
        """
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return (await self._reach.load(address, code, SUBSCRIPTION_GROUP_TABLE)).subscription_group_table

    async def connections(self, address: str, group: str) -> ConsumerConnection | None:
        """Return a group's members connected to a broker, and their subscriptions; None when no member is connected.

        Args:
            address: address of the broker.
            group: the group.
        """
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        request = self._reach.load(address, code, CONSUMER_CONNECTION, consumer_group=group)
        return await unless_absent(request, None, ResponseCode.CONSUMER_NOT_ONLINE)

    async def running_info(self, address: str, group: str, client_id: str) -> ConsumerRunningInfo:
        """Return the report of a group member about itself, requested over its connection to a broker (wire.md §7.11).

        Args:
            address: address of the broker.
            group: the group.
            client_id: the member.
        """
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        return await self._reach.load(
            address, code, RUNNING_INFO, consumer_group=group, client_id=client_id, jstack_enable=False
        )

    async def consume_stats(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's progress in the queues of a broker.

        Args:
            address: address of the broker.
            group: the group; the result has no queues when the broker does not have it.
            topic: one topic; None takes all topics that the group has consumed.
        """
        code = RequestCode.GET_CONSUME_STATS
        request = self._reach.load(address, code, CONSUME_STATS, consumer_group=group, topic=topic)
        return await unless_absent(request, ConsumeStats())

    async def time_spans(self, address: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """Return store times of a topic's queues on a broker: of the first and last message, and at the group's offset.

        Args:
            address: address of the broker.
            group: the group.
            topic: the topic.
        """
        none: list[QueueTimeSpan] = []
        request = self._reach.load(address, RequestCode.QUERY_CONSUME_TIME_SPAN, TIME_SPANS, topic=topic, group=group)
        return await unless_absent(request, none)

    async def messages(self, address: str, queue: MessageQueue, offset: int, count: int) -> list[MessageExt]:
        """Return messages of a queue from an offset on. No group's offset changes.

        Args:
            address: address of the broker.
            queue: the queue.
            offset: offset of the first message.
            count: maximum number of messages.
        """
        instance = self._reach.instance
        # Imported here, as in `Messages.read`, because commands that read no queue start faster.
        from tianzhou.client.consumer import pulling
        from tianzhou.client.consumer.subscription import build_subscription

        raw = await pulling.pull(
            self._reach.remoting,
            address,
            TOOLS_GROUP,
            queue,
            offset,
            max_messages=count,
            subscription=build_subscription(queue.topic),
            timeout_ms=self._reach.timeout_ms,
        )
        if raw.status is not PullStatus.FOUND:
            return []
        return pulling.messages_of(
            raw.body,
            queue.broker_name,
            namespace=instance.namespace,
            limit_bytes=instance.max_unpacked_body_bytes,
            unpacked=instance.unpacked_bodies,
        )

    # --- more of brokers' tables ------------------------------------------------------------------------------

    async def create_topics(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Create several topics at once, or replace their configuration (18)."""
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        await self._reach.call(address, code, body=TOPIC_CONFIGS.dumps(list(configs)))

    async def producers(self, address: str) -> dict[str, list[ProducerInfo]]:
        """Return all producers that a broker knows, by group (328)."""
        return await self._reach.load(address, RequestCode.GET_ALL_PRODUCER_INFO, PRODUCER_TABLE)

    async def producer_connections(self, address: str, group: str) -> list[Connection]:
        """Return the members of a producer group that are connected to a broker (204)."""
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        return await self._reach.load(address, code, PRODUCER_CONNECTION, producer_group=group)

    # --- statistics ------------------------------------------------------------------------------------------

    async def all_consume_stats(self, address: str, *, ordered: bool = False) -> BrokerConsumeStats:
        """Return the progress of all groups of a broker (317).

        Args:
            address: address of the broker.
            ordered: whether to return only groups that consume in order.
        """
        return await self._reach.load(
            address, RequestCode.GET_BROKER_CONSUME_STATS, BROKER_CONSUME_STATS, is_order=ordered
        )

    async def stats(self, address: str, name: str, key: str) -> BrokerStats:
        """Return one statistic of a broker over a minute, an hour and a day; zeros when the broker has none (315).

        Args:
            address: address of the broker.
            name: name of the statistic, such as `TOPIC_PUT_NUMS`.
            key: the measured object, such as a topic or `topic@group` (wire.md §9.9).
        """
        code = RequestCode.VIEW_BROKER_STATS_DATA
        request = self._reach.load(address, code, BROKER_STATS, stats_name=name, stats_key=key)
        return await unless_absent(request, BrokerStats(), ResponseCode.SYSTEM_ERROR)

    async def queue_units(
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
        return await self._reach.load(
            address, RequestCode.QUERY_CONSUME_QUEUE, QUEUE_UNITS,
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group,
        )  # fmt: skip

    # --- upkeep ----------------------------------------------------------------------------------------------

    async def clean_expired_queues(self, address: str) -> None:
        """Delete consume queues of deleted topics and queues (306)."""
        await self._reach.call(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topics(self, address: str) -> None:
        """Delete remaining data of deleted topics (316)."""
        await self._reach.call(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_logs(self, address: str) -> None:
        """Delete expired log files now, independent of the configured hour (329)."""
        await self._reach.call(address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def reset_flush_offset(self, address: str, offset: int) -> None:
        """Set the offset up to which the master's log is flushed, at a slave (908)."""
        await self._reach.call(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, master_flush_offset=offset)

    async def epochs(self, address: str) -> dict[str, Any]:
        """Return the epochs of a broker's log; only brokers with a controller have them (1007)."""
        return dict(loads((await self._reach.call(address, RequestCode.GET_BROKER_EPOCH_CACHE)).body))

    async def cold_read_limits(self, address: str) -> dict[str, Any]:
        """Return the limits of groups' reads of cold data (on disk only), in the broker's own format (2003)."""
        return dict(loads((await self._reach.call(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body))

    async def set_cold_read_limit(self, address: str, group: str, bytes_per_second: int) -> None:
        """Set the limit of a group's reads of cold data, in bytes per second (2001)."""
        body = f"{group}={bytes_per_second}\n".encode()
        await self._reach.call(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body)

    async def remove_cold_read_limit(self, address: str, group: str) -> None:
        """Remove the limit of a group's reads of cold data, so that the default limit applies (2002)."""
        await self._reach.call(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=group.encode())

    async def set_read_ahead(self, address: str, mode: str) -> str:
        """Set the read-ahead mode of the log's files, and return the broker's remark (2004).

        Args:
            address: address of the broker.
            mode: `READ_AHEAD` or `READ_RANDOM`.
        """
        reply = await self._reach.call(address, RequestCode.SET_COMMITLOG_READ_MODE, read_ahead_mode=mode)
        return reply.remark or ""

    async def rocksdb_progress(self, address: str, topic: str, since_ms: int = 0) -> dict[str, Any]:
        """Return the write progress of consume queues in RocksDB (354): `checkStatus` and `checkResult`."""
        code = RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS
        return dict(loads((await self._reach.call(address, code, topic=topic, check_store_time=since_ms)).body))

    async def export_pop_records(self, address: str) -> None:
        """Let a broker of RocketMQ 5 export the records of POP consumers in the format of earlier versions (200056)."""
        await self._reach.call(address, RequestCode.POP_ROLLBACK)

    # --- containers ------------------------------------------------------------------------------------------

    async def add_to_container(self, container: str, config_path: str) -> None:
        """Let a broker container of RocketMQ 5 start another broker (902)."""
        await self._reach.call(container, RequestCode.ADD_BROKER, config_path=config_path)

    async def remove_from_container(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Let a broker container of RocketMQ 5 stop one of its brokers (903)."""
        await self._reach.call(
            container, RequestCode.REMOVE_BROKER,
            broker_cluster_name=cluster, broker_name=broker_name, broker_id=broker_id,
        )  # fmt: skip
