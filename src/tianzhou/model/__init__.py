"""Value types: messages, queues, results, topics, routes, subscriptions. They do no I/O."""

from tianzhou.model.message import Message, MessageExt
from tianzhou.model.queue import MessageQueue
from tianzhou.model.result import (
    ConsumeResult,
    PullResult,
    PullStatus,
    SendResult,
    SendStatus,
    TransactionSendResult,
    TransactionState,
)
from tianzhou.model.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from tianzhou.model.subscription import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from tianzhou.model.topic import DataVersion, SubscriptionGroupConfig, TopicConfig

__all__ = [
    "BrokerData", "ClusterInfo", "ConsumeFromWhere", "ConsumeResult", "ConsumeType", "ConsumerData", "DataVersion",
    "HeartbeatData", "Message", "MessageExt", "MessageModel", "MessageQueue", "PullResult", "PullStatus", "QueueData",
    "SendResult", "SendStatus", "SubscriptionData", "SubscriptionGroupConfig", "TopicConfig", "TopicRoute",
    "TransactionSendResult", "TransactionState",
]  # fmt: skip
