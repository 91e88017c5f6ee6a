"""What one server by itself says, by its address: for who compares servers, or goes on when one of them is silent.

`Topics` and `Groups` put together what all servers say, and fail when one does not answer.
"""

from __future__ import annotations

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
from tianzhou.wire.bodies.clients import CONSUMER_CONNECTION, RUNNING_INFO, ConsumerConnection, ConsumerRunningInfo
from tianzhou.wire.bodies.groups import GROUP_LIST, SUBSCRIPTION_GROUP_TABLE
from tianzhou.wire.bodies.offsets import CONSUME_STATS, TIME_SPANS, TOPIC_STATS, ConsumeStats, QueueTimeSpan, TopicStats
from tianzhou.wire.bodies.route import CLUSTER_INFO, ROUTE
from tianzhou.wire.bodies.topics import TOPIC_LIST, TOPIC_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode


class Servers:
    """Questions to single servers.

    Args:
        reach: carries them.
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
            raw.body, queue.broker_name, namespace=instance.namespace, limit_bytes=instance.max_unpacked_body_bytes
        )
