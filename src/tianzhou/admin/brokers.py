"""One broker at a time, by its address: its tables, statistics, upkeep and limits (wire.md §3.3, §3.4, §9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tianzhou.admin.reach import Reach, unless_absent
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.wire.bodies.clients import PRODUCER_CONNECTION, PRODUCER_TABLE, Connection, ProducerInfo
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP_TABLE
from tianzhou.wire.bodies.offsets import BROKER_CONSUME_STATS, QUEUE_UNITS, BrokerConsumeStats, QueueUnits
from tianzhou.wire.bodies.tables import BROKER_STATS, BrokerStats
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS, TOPIC_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.json_dialect import loads

READ_AHEAD: Final = "0"
"""Mode of `set_read_ahead`: the system reads ahead in the files of the log."""
READ_RANDOM: Final = "1"
"""Mode of `set_read_ahead`: it does not."""


class Brokers:
    """Operations on one broker.

    All of them raise `BrokerError` when the broker refuses, or does not know the request as brokers of RocketMQ 4
    some, and `RemotingError` when it does not answer.

    Args:
        reach: asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    # --- tables ----------------------------------------------------------------------------------------------

    async def topics(self, address: str) -> dict[str, TopicConfig]:
        """All topics of a broker by name, system topics included (21)."""
        table = await self._reach.load(address, RequestCode.GET_ALL_TOPIC_CONFIG, TOPIC_TABLE)
        return table.topic_config_table

    async def groups(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """All consumer groups of a broker by name, those every broker has included (201)."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return (await self._reach.load(address, code, SUBSCRIPTION_GROUP_TABLE)).subscription_group_table

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

    async def consume_stats(self, address: str, *, ordered: bool = False) -> BrokerConsumeStats:
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
