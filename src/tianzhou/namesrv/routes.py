"""Route table of a name server: brokers, their queues, and every decision over them (broker.md §2.2 to §2.6).

Pure: time is an argument, and a connection is any value that compares equal to itself. Notifications to send are
returned, as `MinBrokerChange`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from tianzhou.limits import BROKERS, FILTER_SERVERS, MAPPINGS, QUEUES_OF_TOPIC, ROUTES, TOPICS, Bounds
from tianzhou.model.names import MASTER_ID
from tianzhou.model.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from tianzhou.model.topic import PERM_READ, PERM_WRITE, DataVersion, TopicConfig
from tianzhou.wire.mastership import Mastership

BROKER_TIMEOUT_MS = 120_000
"""Default liveness timeout of brokers (wire.md §8.3)."""
SOME_MASTERS = 3
MEMBER_GROUP_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
UNIT, UNIT_SUBSCRIPTION = 1, 2
"""System flags of topics: of a unit; subscribed by units."""


@dataclass(slots=True)
class Registration:
    """Registration of a broker (wire.md §8.3).

    Attributes:
        enable_acting_master: None when the field is absent, which marks a broker before 5.0.
        heartbeat_timeout_ms: None for the default.
        filter_servers: None leaves the known ones as they are.
        queue_mappings: static topics: topic to mapping, as sent.
        left_out: topics above limits, filled by `NamesrvRouteTable.register`.
        mastership: by what right it is the master; None when it does not say.
    """

    cluster: str
    broker_name: str
    address: str
    broker_id: int
    ha_server_address: str
    topics: Mapping[str, TopicConfig]
    data_version: DataVersion
    enable_acting_master: bool | None = None
    heartbeat_timeout_ms: int | None = None
    zone_name: str | None = None
    filter_servers: list[str] | None = None
    queue_mappings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    mastership: Mastership | None = None


@dataclass(slots=True)
class MinBrokerChange:
    """Change of a broker group's smallest id, and the addresses to notify (wire.md §8.5)."""

    broker_name: str
    min_broker_id: int
    min_broker_address: str
    offline_address: str | None
    ha_address: str | None
    recipients: list[str]


@dataclass(slots=True)
class Registered:
    """Reply to a registration; a slave's names its live master."""

    master_address: str | None = None
    ha_server_address: str | None = None
    change: MinBrokerChange | None = None


@dataclass(slots=True)
class LiveBroker:
    """A broker process that sends heartbeats."""

    cluster: str
    address: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: Hashable
    ha_server_address: str
    mastership: Mastership | None = None


class NamesrvRouteTable:
    """Brokers, clusters and the queues of topics.

    Args:
        support_acting_master: show the smallest slave of a group without master under id 0.
        delete_topics_on_register: a registration also removes the topics it does not list.
        bounds: limits of brokers, topics and queues.
    """

    def __init__(
        self,
        *,
        support_acting_master: bool = False,
        delete_topics_on_register: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self._bounds = bounds or Bounds()
        self.support_acting_master = support_acting_master
        self.delete_topics_on_register = delete_topics_on_register
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._routes = self._mapped = 0
        self._mappings: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[tuple[str, str], LiveBroker] = {}
        self._filters: dict[tuple[str, str], list[str]] = {}

    # Brokers come

    def register(self, registration: Registration, now_ms: int, connection: Hashable = None) -> Registered | None:
        """Take a registration into the tables (broker.md §2.3).

        Returns:
            The answer; an empty one when another process holds the id with a newer state version; None when
            the registration is refused, because a broker not known under this id lists a single topic.

        Raises:
            LimitExceeded: there are too many brokers or filter servers; nothing was changed.
        """
        r = registration
        self._check_room(r)
        self._clusters.setdefault(r.cluster, set()).add(r.broker_name)
        broker = self._brokers.get(r.broker_name)
        first = broker is None
        if broker is None:
            broker = self._brokers[r.broker_name] = BrokerData(r.broker_name, r.cluster)
        broker.enable_acting_master = bool(r.enable_acting_master)
        broker.zone_name = r.zone_name
        addresses = broker.broker_addrs
        min_before = min(addresses, default=0)
        for other in [i for i, a in addresses.items() if a == r.address and i != r.broker_id]:
            del addresses[other]  # the same process under a new role
        holder = addresses.get(r.broker_id)
        if holder is not None and holder != r.address:
            live = self._live.get((r.cluster, holder))
            if live is not None and live.data_version.state_version > r.data_version.state_version:
                self._live.pop((r.cluster, r.address), None)
                return Registered()
        if holder is None and len(r.topics) == 1:
            return None
        addresses[r.broker_id] = r.address
        first = first or not holder

        prime_slave = r.enable_acting_master is not None and r.broker_id != MASTER_ID and r.broker_id == min(addresses)
        if r.broker_id == MASTER_ID or prime_slave:
            self._take_topics(r, first=first, read_only=prime_slave and broker.enable_acting_master)
        timeout_ms = BROKER_TIMEOUT_MS if r.heartbeat_timeout_ms is None else r.heartbeat_timeout_ms
        self._live[r.cluster, r.address] = LiveBroker(
            r.cluster, r.address, now_ms, timeout_ms, r.data_version, connection, r.ha_server_address, r.mastership
        )
        if r.filter_servers:
            self._filters[r.cluster, r.address] = list(r.filter_servers)
        elif r.filter_servers is not None:
            self._filters.pop((r.cluster, r.address), None)

        answer = Registered()
        if r.broker_id != MASTER_ID:
            master = addresses.get(MASTER_ID)
            live = self._live.get((r.cluster, master)) if master is not None else None
            if live is not None:
                answer.master_address, answer.ha_server_address = master, live.ha_server_address
        if r.broker_id < min_before:
            answer.change = self._min_broker_change(broker, None, r.ha_server_address)
        return answer

    def _check_room(self, r: Registration) -> None:
        where = f"broker {r.broker_name} {r.address} of cluster {r.cluster}"
        if (r.cluster, r.address) not in self._live:
            self._bounds.check(BROKERS, len(self._live) + 1, where)
        if r.broker_name not in self._brokers:
            self._bounds.check(BROKERS, len(self._brokers) + 1, where)
        if r.broker_name not in self._clusters.get(r.cluster, ()):
            self._bounds.check(BROKERS, sum(map(len, self._clusters.values())) + 1, where)
        broker = self._brokers.get(r.broker_name)
        if broker is not None and r.broker_id not in broker.broker_addrs:
            self._bounds.check(BROKERS, len(broker.broker_addrs) + 1, where)
        self._bounds.check(FILTER_SERVERS, len(r.filter_servers or ()), where)

    def _fits(self, topic: str, broker: str, config: TopicConfig) -> bool:
        """Whether limits allow a topic of a registration; the broker's other topics are judged one by one."""
        bounds, brokers = self._bounds, self._topics.get(topic, ())
        most = max(config.read_queue_nums, config.write_queue_nums)
        return (
            bounds.allows(QUEUES_OF_TOPIC, most)
            and (topic in self._topics or bounds.allows(TOPICS, len(self._topics) + 1))
            and (broker in brokers or bounds.allows(ROUTES, self._routes + 1))
        )

    def _put(self, topic: str, queue: QueueData) -> None:
        brokers = self._topics.setdefault(topic, {})
        self._routes += queue.broker_name not in brokers
        brokers[queue.broker_name] = queue

    def _take_topics(self, r: Registration, *, first: bool, read_only: bool) -> None:
        name = r.broker_name
        if self.delete_topics_on_register and not r.queue_mappings:
            for topic in [t for t, queues in self._topics.items() if name in queues and t not in r.topics]:
                self._drop_queues(topic, name)
        changed = self.changed(r.cluster, r.address, r.data_version)
        for topic, config in r.topics.items():
            if not self._fits(topic, name, config):
                r.left_out.append(topic)
                continue
            queues = self._topics.get(topic)
            if first or changed or queues is None or name not in queues:
                perm = config.perm & ~PERM_WRITE if read_only else config.perm
                numbers = config.read_queue_nums, config.write_queue_nums
                self._put(topic, QueueData(name, *numbers, perm, config.topic_sys_flag))
        if first or changed:
            for topic, mapping in r.queue_mappings.items():
                # A broker speaks for its own queues, of topics it has.
                if name not in self._topics.get(topic, ()) or mapping.get("bname", name) != name:
                    continue
                if name not in self._mappings.get(topic, ()):
                    if not self._bounds.allows(MAPPINGS, self._mapped + 1):
                        r.left_out.append(topic)
                        continue
                    self._mapped += 1
                self._mappings.setdefault(topic, {})[name] = mapping

    def refresh(self, cluster: str, address: str, now_ms: int) -> None:
        """Note a sign of life; nothing happens for an unknown broker."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topic table a broker has last registered."""
        live = self._live.get((cluster, address))
        return None if live is None else live.data_version

    def changed(self, cluster: str, address: str, version: DataVersion) -> bool:
        """Whether a broker with this topic table version has to register (again)."""
        return self.data_version(cluster, address) != version

    def holders(self, registration: Registration, now_ms: int) -> list[LiveBroker]:
        """Living brokers whose name and id, or whose address, a registration would take."""
        broker = self._brokers.get(registration.broker_name)
        taken = {registration.address}
        if broker is not None and (holder := broker.broker_addrs.get(registration.broker_id)) is not None:
            taken.add(holder)
        return [live for address in taken for live in self.living_at(address, now_ms)]

    def living_at(self, address: str, now_ms: int) -> list[LiveBroker]:
        """Living brokers registered under an address, of any cluster."""
        return [
            live
            for live in self._live.values()
            if live.address == address and live.last_update_ms + live.timeout_ms >= now_ms
        ]

    # Brokers go

    def unregister(self, cluster: str, broker_name: str, address: str) -> MinBrokerChange | None:
        """Forget one broker process; a broker name without address goes with its topics (broker.md §2.4)."""
        self._live.pop((cluster, address), None)
        self._filters.pop((cluster, address), None)
        broker = self._brokers.get(broker_name)
        if broker is None:
            return None
        addresses = broker.broker_addrs
        min_before = min(addresses, default=None)
        for broker_id in [i for i, a in addresses.items() if a == address]:
            del addresses[broker_id]
        if not addresses:
            self._forget_broker(cluster, broker_name)
            return None
        if broker.enable_acting_master and MASTER_ID not in addresses:
            for queues in self._topics.values():
                if broker_name in queues:
                    queues[broker_name].perm &= ~PERM_WRITE
        if min_before in addresses:
            return None
        return self._min_broker_change(broker, address, None)

    def _forget_broker(self, cluster: str, broker_name: str) -> None:
        del self._brokers[broker_name]
        names = self._clusters.get(cluster)
        if names is not None:
            names.discard(broker_name)
            if not names:
                del self._clusters[cluster]
        for topic in [t for t, queues in self._topics.items() if broker_name in queues]:
            self._drop_queues(topic, broker_name)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        self._routes -= queues.pop(broker_name, None) is not None
        if not queues:
            del self._topics[topic]
            self._mapped -= len(self._mappings.pop(topic, ()))
        elif topic in self._mappings:
            self._mapped -= self._mappings[topic].pop(broker_name, None) is not None

    def expired(self, now_ms: int) -> list[LiveBroker]:
        """Brokers that were silent for longer than their timeout; they stay until unregistered."""
        return [live for live in self._live.values() if live.last_update_ms + live.timeout_ms < now_ms]

    def living_on(self, connection: Hashable) -> list[LiveBroker]:
        """The brokers that registered over a connection last."""
        return [live for live in self._live.values() if live.connection is connection]

    def remove(self, live: LiveBroker) -> MinBrokerChange | None:
        """Unregister a broker found by `expired` or `living_on`."""
        for name, broker in self._brokers.items():
            if broker.cluster == live.cluster and live.address in broker.broker_addrs.values():
                return self.unregister(live.cluster, name, live.address)
        self._live.pop((live.cluster, live.address), None)
        self._filters.pop((live.cluster, live.address), None)
        return None

    def _min_broker_change(
        self, broker: BrokerData, offline: str | None, ha_address: str | None
    ) -> MinBrokerChange | None:
        addresses = broker.broker_addrs
        smallest = min(addresses)
        # A new broker needs no notice of itself, unless it is alone; a loss concerns everyone left.
        everyone = offline is not None or len(addresses) == 1
        recipients = [a for i, a in sorted(addresses.items()) if everyone or i != smallest]
        return MinBrokerChange(broker.broker_name, smallest, addresses[smallest], offline, ha_address, recipients)

    # Questions

    def route(self, topic: str) -> TopicRoute | None:
        """Where a topic's queues are; None when no broker known has any (broker.md §2.5)."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [
            replace(self._brokers[name], broker_addrs=dict(self._brokers[name].broker_addrs))
            for name in queues
            if name in self._brokers
        ]
        if not brokers:
            return None
        route = TopicRoute([replace(queue) for queue in queues.values()], brokers)
        if topic in self._mappings:
            route.topic_queue_mapping_by_broker = dict(self._mappings[topic])
        if self._filters:
            for broker in brokers:
                for address in broker.broker_addrs.values():
                    servers = self._filters.get((broker.cluster, address))
                    if servers:
                        route.filter_server_table[address] = list(servers)
        if self.support_acting_master and not topic.startswith(MEMBER_GROUP_TOPIC_PREFIX):
            for broker in brokers:
                self._show_acting_master(broker, queues[broker.broker_name])
        return route

    def brokers_of(self, topic: str) -> int:
        """How many brokers have queues of a topic."""
        return len(self._topics.get(topic, ()))

    @staticmethod
    def _show_acting_master(broker: BrokerData, queue: QueueData) -> None:
        addresses = broker.broker_addrs
        if addresses and MASTER_ID not in addresses and broker.enable_acting_master and not queue.perm & PERM_WRITE:
            addresses[MASTER_ID] = addresses.pop(min(addresses))

    def cluster_info(self) -> ClusterInfo:
        """Every broker and cluster (wire.md §8.2)."""
        return ClusterInfo(
            {name: replace(broker, broker_addrs=dict(broker.broker_addrs)) for name, broker in self._brokers.items()},
            {cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def some_masters(self) -> list[str]:
        """Addresses of a few brokers."""
        masters = (broker.broker_addrs.get(MASTER_ID) for broker in self._brokers.values())
        return list(islice(filter(None, masters), SOME_MASTERS))

    def members(self, broker_name: str) -> dict[int, str]:
        """Id to address of a broker group; empty when unknown (wire.md §8.9)."""
        broker = self._brokers.get(broker_name)
        return {} if broker is None else dict(broker.broker_addrs)

    @property
    def topic_count(self) -> int:
        """Number of topics that have routes."""
        return len(self._topics)

    @property
    def route_count(self) -> int:
        """Number of topics, each as often as there are brokers that have it."""
        return self._routes

    def live(self) -> list[LiveBroker]:
        """Brokers that are registered."""
        return list(self._live.values())

    def masters(self) -> list[tuple[str, str, bool]]:
        """Cluster and name of each group of brokers, and whether it has a master."""
        return [(one.cluster, name, MASTER_ID in one.broker_addrs) for name, one in self._brokers.items()]

    def topics(self) -> list[str]:
        """Every topic."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics that have queues on a broker of the cluster."""
        names = self._clusters.get(cluster, set())
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster and broker names, and the address of some broker (wire.md §8.7)."""
        names = dict.fromkeys(self._clusters)
        for members in self._clusters.values():
            names.update(dict.fromkeys(sorted(members)))
        addresses = (a for broker in self._brokers.values() for a in broker.broker_addrs.values())
        return list(names), next(addresses, None)

    def topics_flagged(self, flags: int, mask: int) -> list[str]:
        """Topics that have just these of the system flags in the mask; see `UNIT` and `UNIT_SUBSCRIPTION`."""
        first = ((topic, next(iter(queues.values()))) for topic, queues in self._topics.items())
        return [topic for topic, queue in first if queue.topic_sys_flag & mask == flags]

    # Changes by request

    def set_write_permission(self, broker_name: str, *, allowed: bool) -> int:
        """Wipe or add the write permission of a broker's topics until it next changes them (broker.md §2.6).

        Returns:
            How many topics the broker has.
        """
        count = 0
        for queues in self._topics.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queue.perm = PERM_READ | PERM_WRITE if allowed else queue.perm & ~PERM_WRITE
                count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        if topic not in self._topics:
            return
        names = self._topics[topic] if not cluster else self._clusters.get(cluster, set())
        for name in list(names):
            if topic in self._topics:
                self._drop_queues(topic, name)

    def add_queues(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Merge a topic's queues on registered brokers; stops at an unknown broker and returns False.

        Raises:
            LimitExceeded: there are too many topics or queues; nothing was changed.
        """
        queues = list(queues)
        for queue in queues:
            most = max(queue.read_queue_nums, queue.write_queue_nums)
            self._bounds.check(QUEUES_OF_TOPIC, most, f"topic {topic}")
        if topic not in self._topics:
            self._bounds.check(TOPICS, len(self._topics) + 1, f"topic {topic}")
        new = sum(queue.broker_name not in self._topics.get(topic, ()) for queue in queues)
        if new:
            self._bounds.check(ROUTES, self._routes + new, f"topic {topic}")
        for queue in queues:
            if queue.broker_name not in self._brokers:
                return False
            self._put(topic, queue)
        return True


def keep_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """The part of a route that lies in a zone, with all brokers without a master (wire.md §1.14)."""
    removed = [
        broker
        for broker in route.broker_datas
        if broker.master is not None and (broker.zone_name or "").lower() != zone.lower()
    ]
    names = {broker.broker_name for broker in removed}
    addresses = {address for broker in removed for address in broker.broker_addrs.values()}
    return replace(
        route,
        broker_datas=[broker for broker in route.broker_datas if broker.broker_name not in names],
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in names],
        filter_server_table={a: s for a, s in route.filter_server_table.items() if a not in addresses},
    )
