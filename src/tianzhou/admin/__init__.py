"""What mqadmin does, as methods: topics, groups, clusters, messages, users.

`Admin` is the way in; everything it offers works against RocketMQ 4.9 and 5.x as well as against Tianzhou.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.admin.access import Access
    from tianzhou.admin.accounts import AccountFiles, Accounts
    from tianzhou.admin.admin import Admin
    from tianzhou.admin.brokers import Brokers
    from tianzhou.admin.cluster import BrokerStatus, Cluster
    from tianzhou.admin.controllers import Controllers
    from tianzhou.admin.groups import Groups
    from tianzhou.admin.messages import Messages, MessageTrack
    from tianzhou.admin.progress import GroupLag, OffsetChange, QueueLag
    from tianzhou.admin.servers import Servers
    from tianzhou.admin.topics import TopicDescription, Topics

__all__ = [
    "Access",
    "AccountFiles",
    "Accounts",
    "Admin",
    "BrokerStatus",
    "Brokers",
    "Cluster",
    "Controllers",
    "GroupLag",
    "Groups",
    "MessageTrack",
    "Messages",
    "OffsetChange",
    "QueueLag",
    "Servers",
    "TopicDescription",
    "Topics",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "access": "Access",
        "accounts": "AccountFiles Accounts",
        "admin": "Admin",
        "brokers": "Brokers",
        "cluster": "BrokerStatus Cluster",
        "controllers": "Controllers",
        "groups": "Groups",
        "messages": "MessageTrack Messages",
        "progress": "GroupLag OffsetChange QueueLag",
        "servers": "Servers",
        "topics": "TopicDescription Topics",
    },
)
