"""Administration of a cluster: mqadmin's operations on topics, groups, clusters, messages and users, as methods.

`Admin` is the entry point. Its methods work with RocketMQ 4.9, RocketMQ 5.x and Tianzhou.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.admin.access import Access
    from tianzhou.admin.accounts import AccountFiles, Accounts
    from tianzhou.admin.admin import Admin
    from tianzhou.admin.cluster import BrokerStatus, Cluster
    from tianzhou.admin.dead_letters import DeadLetters, Resent
    from tianzhou.admin.delays import DelayLevel, Delays, Due
    from tianzhou.admin.groups import Groups
    from tianzhou.admin.messages import Messages
    from tianzhou.admin.progress import GroupLag, OffsetChange, QueueLag
    from tianzhou.admin.queue_numbers import DroppedQueue, QueueNumbers, QueuePlan, QueueStep, QueueUse
    from tianzhou.admin.send_limits import LimitStatus, SendLimits
    from tianzhou.admin.servers import Servers
    from tianzhou.admin.topics import TopicDescription, Topics
    from tianzhou.admin.tracks import MessageTrack, TrackType
    from tianzhou.admin.transactions import HalfMessage, OpenTransactions, Transactions
    from tianzhou.admin.undeliverable import Redelivery, Undeliverable, UndeliverableMessage

__all__ = [
    "Access",
    "AccountFiles",
    "Accounts",
    "Admin",
    "BrokerStatus",
    "Cluster",
    "DeadLetters",
    "DelayLevel",
    "Delays",
    "DroppedQueue",
    "Due",
    "GroupLag",
    "Groups",
    "HalfMessage",
    "LimitStatus",
    "MessageTrack",
    "Messages",
    "OffsetChange",
    "OpenTransactions",
    "QueueLag",
    "QueueNumbers",
    "QueuePlan",
    "QueueStep",
    "QueueUse",
    "Redelivery",
    "Resent",
    "SendLimits",
    "Servers",
    "TopicDescription",
    "Topics",
    "TrackType",
    "Transactions",
    "Undeliverable",
    "UndeliverableMessage",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "access": "Access",
        "accounts": "AccountFiles Accounts",
        "admin": "Admin",
        "cluster": "BrokerStatus Cluster",
        "dead_letters": "DeadLetters Resent",
        "delays": "DelayLevel Delays Due",
        "groups": "Groups",
        "messages": "Messages",
        "progress": "GroupLag OffsetChange QueueLag",
        "queue_numbers": "DroppedQueue QueueNumbers QueuePlan QueueStep QueueUse",
        "send_limits": "LimitStatus SendLimits",
        "servers": "Servers",
        "topics": "TopicDescription Topics",
        "tracks": "MessageTrack TrackType",
        "transactions": "HalfMessage OpenTransactions Transactions",
        "undeliverable": "Redelivery Undeliverable UndeliverableMessage",
    },
)
