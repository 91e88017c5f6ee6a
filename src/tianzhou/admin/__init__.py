"""What mqadmin does, as methods: topics, groups, clusters, messages, users.

`Admin` is the way in; everything it offers works against RocketMQ 4.9 and 5.x as well as against Tianzhou.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.admin.access import Access
    from tianzhou.admin.admin import Admin
    from tianzhou.admin.cluster import BrokerStatus, Cluster
    from tianzhou.admin.groups import GroupLag, Groups, OffsetChange, QueueLag
    from tianzhou.admin.messages import Messages
    from tianzhou.admin.servers import Servers
    from tianzhou.admin.topics import TopicDescription, Topics

__all__ = [
    "Access",
    "Admin",
    "BrokerStatus",
    "Cluster",
    "GroupLag",
    "Groups",
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
        "admin": "Admin",
        "cluster": "BrokerStatus Cluster",
        "groups": "GroupLag Groups OffsetChange QueueLag",
        "messages": "Messages",
        "servers": "Servers",
        "topics": "TopicDescription Topics",
    },
)
