"""What mqadmin does, as methods: topics, groups, clusters, messages.

`Admin` is the way in; everything it offers works against RocketMQ 4.9 and 5.x as well as against Tianzhou.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tianzhou.admin.admin import Admin
    from tianzhou.admin.cluster import BrokerStatus, Cluster
    from tianzhou.admin.groups import GroupLag, Groups, OffsetChange, QueueLag
    from tianzhou.admin.messages import Messages
    from tianzhou.admin.topics import TopicDescription, Topics

_HOMES = {
    "Admin": "admin",
    "BrokerStatus": "cluster",
    "Cluster": "cluster",
    "GroupLag": "groups",
    "Groups": "groups",
    "Messages": "messages",
    "OffsetChange": "groups",
    "QueueLag": "groups",
    "TopicDescription": "topics",
    "Topics": "topics",
}

__all__ = [
    "Admin",
    "BrokerStatus",
    "Cluster",
    "GroupLag",
    "Groups",
    "Messages",
    "OffsetChange",
    "QueueLag",
    "TopicDescription",
    "Topics",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
