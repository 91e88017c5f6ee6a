"""One server at a time, by its address: what it says by itself, and what it is to do (wire.md §3.3, §3.4, §9).

For who compares servers, or goes on when one of them is silent: `Topics`, `Groups` and `Cluster` put together what all
servers say, and fail when one does not answer.
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
"""Mode of `set_read_ahead`: the system reads ahead in the files of the log."""
READ_RANDOM: Final = "1"
"""Mode of `set_read_ahead`: it does not."""


class Servers:
    """Operations on one broker or name server.

    All of them raise `BrokerError` when the server refuses, or does not know the request as brokers of RocketMQ 4
    some, and `RemotingError` when it does not answer.

    Args:
        reach: asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    # --- name servers ----------------------------------------------------------------------------------------

    async def cluster_info(self, address: str) -> ClusterInfo:
        """All brokers and clusters that a name server knows.

        Args:
            address: of the name server.
        """
        return await self._reach.load(address, RequestCode.GET_BROKER_CLUSTER_INFO, CLUSTER_INFO)

    async def route(self, address: str, topic: str) -> TopicRoute | None:
        """A topic's route as a name server has it; None when it has none.

        Args:
            address: of the name server.
            topic: the topic.
        """
        request = self._reach.load(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, ROUTE, topic=topic)
        return await unless_absent(request, None)

    async def namesrv_config(self, address: str) -> dict[str, str]:
        """A name server's configuration, RocketMQ's keys to values.

        Args:
            address: of the name server.
        """
        reply = await self._reach.call(address, RequestCode.GET_NAMESRV_CONFIG)
        return parse_properties(bytes(reply.body).decode(), source=address)

    # --- brokers ---------------------------------------------------------------------------------------------

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """All topics of a broker.

        Args:
            address: of the broker.
        """
        return (await self._reach.load(address, RequestCode.GET_ALL_TOPIC_CONFIG, TOPIC_TABLE)).topic_config_table

    async def system_topics(self, address: str) -> list[str]:
        """Topics that a broker has for its own use.

        Args:
            address: of the broker.
        """
        return (await self._reach.load(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TOPIC_LIST)).topic_list

    async def topic_stats(self, address: str, topic: str) -> TopicStats:
        """First and next offset of a topic's queues on a broker, and messages that come in per second.

        Args:
            address: of the broker.
            topic: the topic; without queues when the broker does not have it.
        """
        request = self._reach.load(address, RequestCode.GET_TOPIC_STATS_INFO, TOPIC_STATS, topic=topic)
        return await unless_absent(request, TopicStats())

    async def topic_groups(self, address: str, topic: str) -> list[str]:
        """Groups that have consumed a topic on a broker.

        Args:
            address: of the broker.
            topic: the topic.
        """
        nobody: list[str] = []
        request = self._reach.load(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GROUP_LIST, topic=topic)
        return await unless_absent(request, nobody)

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """All groups of a broker.

        Args:
            address: of the broker.
        """
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return (await self._reach.load(address, code, SUBSCRIPTION_GROUP_TABLE)).subscription_group_table

    async def connections(self, address: str, group: str) -> ConsumerConnection | None:
        """Members of a group that are connected to a broker, and what they subscribe; None when nobody is.

        Args:
            address: of the broker.
            group: the group.
        """
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        request = self._reach.load(address, code, CONSUMER_CONNECTION, consumer_group=group)
        return await unless_absent(request, None, ResponseCode.CONSUMER_NOT_ONLINE)

    async def running_info(self, address: str, group: str, client_id: str) -> ConsumerRunningInfo:
        """What a member of a group says about itself, asked over its connection to a broker (wire.md §7.11).

        Args:
            address: of the broker.
            group: the group.
            client_id: the member.
        """
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        return await self._reach.load(
            address, code, RUNNING_INFO, consumer_group=group, client_id=client_id, jstack_enable=False
        )

    async def consume_stats(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """How far a group is in the queues of a broker.

        Args:
            address: of the broker.
            group: the group; without queues when the broker does not have it.
            topic: one topic; None takes all that the group has consumed.
        """
        code = RequestCode.GET_CONSUME_STATS
        request = self._reach.load(address, code, CONSUME_STATS, consumer_group=group, topic=topic)
        return await unless_absent(request, ConsumeStats())

    async def time_spans(self, address: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """Store times of the messages at both ends of a topic's queues on a broker, and where a group is.

        Args:
            address: of the broker.
            group: the group.
            topic: the topic.
        """
        none: list[QueueTimeSpan] = []
        request = self._reach.load(address, RequestCode.QUERY_CONSUME_TIME_SPAN, TIME_SPANS, topic=topic, group=group)
        return await unless_absent(request, none)

    async def messages(self, address: str, queue: MessageQueue, offset: int, count: int) -> list[MessageExt]:
        """Messages of a queue from an offset on; nobody's offset is moved.

        Args:
            address: of the broker.
            queue: the queue.
            offset: of the first one.
            count: how many at most.
        """
        instance = self._reach.instance
        # As of `Messages.read`: commands that read no queue start sooner.
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
        """All producers that a broker knows, by group (328)."""
        return await self._reach.load(address, RequestCode.GET_ALL_PRODUCER_INFO, PRODUCER_TABLE)

    async def producer_connections(self, address: str, group: str) -> list[Connection]:
        """Members of a producer group that are connected to a broker (204)."""
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        return await self._reach.load(address, code, PRODUCER_CONNECTION, producer_group=group)

    # --- statistics ------------------------------------------------------------------------------------------

    async def all_consume_stats(self, address: str, *, ordered: bool = False) -> BrokerConsumeStats:
        """How far all groups of a broker are (317).

        Args:
            address: the broker.
            ordered: only groups that consume in order.
        """
        return await self._reach.load(
            address, RequestCode.GET_BROKER_CONSUME_STATS, BROKER_CONSUME_STATS, is_order=ordered
        )

    async def stats(self, address: str, name: str, key: str) -> BrokerStats:
        """One figure of a broker over a minute, an hour and a day; zeros when it has none (315).

        Args:
            address: the broker.
            name: of the figure, as `TOPIC_PUT_NUMS`.
            key: what it is of, as a topic, or `topic@group` (wire.md §9.9).
        """
        code = RequestCode.VIEW_BROKER_STATS_DATA
        request = self._reach.load(address, code, BROKER_STATS, stats_name=name, stats_key=key)
        return await unless_absent(request, BrokerStats(), ResponseCode.SYSTEM_ERROR)

    async def queue_units(
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
        return await self._reach.load(
            address, RequestCode.QUERY_CONSUME_QUEUE, QUEUE_UNITS,
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group,
        )  # fmt: skip

    # --- upkeep ----------------------------------------------------------------------------------------------

    async def clean_expired_queues(self, address: str) -> None:
        """Delete consume queues of topics and queues that are gone (306)."""
        await self._reach.call(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topics(self, address: str) -> None:
        """Delete what is kept of topics that are gone (316)."""
        await self._reach.call(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_logs(self, address: str) -> None:
        """Delete expired files of the log now, whatever the hour (329)."""
        await self._reach.call(address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def reset_flush_offset(self, address: str, offset: int) -> None:
        """Tell a slave how far its master's log is flushed (908)."""
        await self._reach.call(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, master_flush_offset=offset)

    async def epochs(self, address: str) -> dict[str, Any]:
        """Epochs of a broker's log, of brokers whose master a controller elects (1007)."""
        return dict(loads((await self._reach.call(address, RequestCode.GET_BROKER_EPOCH_CACHE)).body))

    async def cold_read_limits(self, address: str) -> dict[str, Any]:
        """What groups may read of data that has left the memory, in the broker's own words (2003)."""
        return dict(loads((await self._reach.call(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body))

    async def set_cold_read_limit(self, address: str, group: str, bytes_per_second: int) -> None:
        """Set what a group may read of such data (2001)."""
        body = f"{group}={bytes_per_second}\n".encode()
        await self._reach.call(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body)

    async def remove_cold_read_limit(self, address: str, group: str) -> None:
        """Have a group read as much of such data as all do (2002)."""
        await self._reach.call(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=group.encode())

    async def set_read_ahead(self, address: str, mode: str) -> str:
        """Switch reading ahead in the log's files; returns the broker's remark (2004).

        Args:
            address: the broker.
            mode: `READ_AHEAD` or `READ_RANDOM`.
        """
        reply = await self._reach.call(address, RequestCode.SET_COMMITLOG_READ_MODE, read_ahead_mode=mode)
        return reply.remark or ""

    async def rocksdb_progress(self, address: str, topic: str, since_ms: int = 0) -> dict[str, Any]:
        """How far consume queues in RocksDB are (354): `checkStatus` and `checkResult`."""
        code = RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS
        return dict(loads((await self._reach.call(address, code, topic=topic, check_store_time=since_ms)).body))

    async def export_pop_records(self, address: str) -> None:
        """Have a broker of RocketMQ 5 write what POP consumers have taken in the form of its predecessors (200056)."""
        await self._reach.call(address, RequestCode.POP_ROLLBACK)

    # --- containers ------------------------------------------------------------------------------------------

    async def add_to_container(self, container: str, config_path: str) -> None:
        """Have a broker container of RocketMQ 5 start one more broker (902)."""
        await self._reach.call(container, RequestCode.ADD_BROKER, config_path=config_path)

    async def remove_from_container(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Have a broker container stop one of its brokers (903)."""
        await self._reach.call(
            container, RequestCode.REMOVE_BROKER,
            broker_cluster_name=cluster, broker_name=broker_name, broker_id=broker_id,
        )  # fmt: skip
