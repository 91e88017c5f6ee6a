"""Routes: the brokers that have a topic's queues (wire.md §8.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tianzhou.model.names import MASTER_ID


@dataclass(slots=True)
class QueueData:
    """A topic's queues on one broker."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(slots=True)
class BrokerData:
    """A broker and its replicas: id to `host:port`; id 0 is the master."""

    broker_name: str
    cluster: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master(self) -> str | None:
        """Address of the master, None while there is none."""
        return self.broker_addrs.get(MASTER_ID)


@dataclass(slots=True)
class TopicRoute:
    """A topic's queues and the brokers that have them; the queue mappings of a static topic are JSON values."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


@dataclass(slots=True)
class ClusterInfo:
    """All brokers that a name server knows (wire.md §8.2)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)
