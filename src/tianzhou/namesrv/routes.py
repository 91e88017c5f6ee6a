"""Route table of a name server: brokers, their queues, and all decisions about them (broker.md §2.2 to §2.6).

Pure: the time is an argument, and a connection is any value that equals itself. Notifications to send are returned as
`MinBrokerChange`.
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
"""System flags of topics: the topic belongs to a unit; units subscribe to the topic."""


@dataclass(slots=True)
class Registration:
    """Registration of a broker (wire.md §8.3).

    Attributes:
        enable_acting_master: whether a slave may act as master; None when the field is absent, as for brokers before
            5.0.
        heartbeat_timeout_ms: liveness timeout in ms; None for the default.
        filter_servers: addresses of filter servers; None leaves the known ones unchanged.
        queue_mappings: mappings of static topics by topic, as received.
        left_out: topics above limits; `NamesrvRouteTable.register` adds them.
        mastership: the claim to be master; None when the broker does not send one.
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
    """A change of a broker group's smallest id, and the addresses to notify (wire.md §8.5)."""

    broker_name: str
    min_broker_id: int
    min_broker_address: str
    offline_address: str | None
    ha_address: str | None
    recipients: list[str]


@dataclass(slots=True)
class Registered:
    """Result of a registration. A slave's result has the address of its live master."""

    master_address: str | None = None
    ha_server_address: str | None = None
    change: MinBrokerChange | None = None


@dataclass(slots=True)
class LiveBroker:
    """A registered broker process, which sends heartbeats."""

    cluster: str
    address: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: Hashable
    ha_server_address: str
    mastership: Mastership | None = None


class NamesrvRouteTable:
    """A table of brokers, clusters and the queues of topics.

    Args:
        support_acting_master: whether to show the smallest slave of a group without master under id 0.
        delete_topics_on_register: whether a registration also removes the topics that it does not list.
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

    # Registration

    def register(self, registration: Registration, now_ms: int, connection: Hashable = None) -> Registered | None:
        """Add a registration to the tables (broker.md §2.3).

        Returns:
            The result; an empty one when another process has the id with a newer state version; None when the
            registration is refused, because a broker that is unknown under this id lists a single topic.

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
        """Whether limits allow a topic of a registration. Each topic of the broker is checked separately."""
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
                # A broker may only map its own queues, of topics that it has.
                if name not in self._topics.get(topic, ()) or mapping.get("bname", name) != name:
                    continue
                if name not in self._mappings.get(topic, ()):
                    if not self._bounds.allows(MAPPINGS, self._mapped + 1):
                        r.left_out.append(topic)
                        continue
                    self._mapped += 1
                self._mappings.setdefault(topic, {})[name] = mapping

    def refresh(self, cluster: str, address: str, now_ms: int) -> None:
        """Record a heartbeat. An unknown broker is ignored."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version of the topic table that a broker registered last."""
        live = self._live.get((cluster, address))
        return None if live is None else live.data_version

    def changed(self, cluster: str, address: str, version: DataVersion) -> bool:
        """Whether a broker with this version of its topic table has to register again."""
        return self.data_version(cluster, address) != version

    def holders(self, registration: Registration, now_ms: int) -> list[LiveBroker]:
        """Return the living brokers that a registration would replace: by name and id, or by address."""
        broker = self._brokers.get(registration.broker_name)
        taken = {registration.address}
        if broker is not None and (holder := broker.broker_addrs.get(registration.broker_id)) is not None:
            taken.add(holder)
        return [live for address in taken for live in self.living_at(address, now_ms)]

    def living_at(self, address: str, now_ms: int) -> list[LiveBroker]:
        """Return the living brokers that are registered under an address, in any cluster."""
        return [
            live
            for live in self._live.values()
            if live.address == address and live.last_update_ms + live.timeout_ms >= now_ms
        ]

    # Removal

    def unregister(self, cluster: str, broker_name: str, address: str) -> MinBrokerChange | None:
        """Remove one broker process. A broker name without addresses is removed with its topics (broker.md §2.4)."""
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
        """Return the brokers whose timeout has passed. They stay in the table until they are unregistered."""
        return [live for live in self._live.values() if live.last_update_ms + live.timeout_ms < now_ms]

    def living_on(self, connection: Hashable) -> list[LiveBroker]:
        """Return the brokers whose last registration used a connection."""
        return [live for live in self._live.values() if live.connection is connection]

    def remove(self, live: LiveBroker) -> MinBrokerChange | None:
        """Unregister a broker that `expired` or `living_on` returned."""
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
        # A new broker needs no notification of itself, unless it is alone. A loss is notified to all remaining brokers.
        everyone = offline is not None or len(addresses) == 1
        recipients = [a for i, a in sorted(addresses.items()) if everyone or i != smallest]
        return MinBrokerChange(broker.broker_name, smallest, addresses[smallest], offline, ha_address, recipients)

    # Queries

    def route(self, topic: str) -> TopicRoute | None:
        """Return the brokers and queues of a topic; None when no known broker has queues of it (broker.md §2.5)."""
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
        """Return the number of brokers that have queues of a topic."""
        return len(self._topics.get(topic, ()))

    @staticmethod
    def _show_acting_master(broker: BrokerData, queue: QueueData) -> None:
        addresses = broker.broker_addrs
        if addresses and MASTER_ID not in addresses and broker.enable_acting_master and not queue.perm & PERM_WRITE:
            addresses[MASTER_ID] = addresses.pop(min(addresses))

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters (wire.md §8.2)."""
        return ClusterInfo(
            {name: replace(broker, broker_addrs=dict(broker.broker_addrs)) for name, broker in self._brokers.items()},
            {cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def some_masters(self) -> list[str]:
        """Return the addresses of a few masters."""
        masters = (broker.broker_addrs.get(MASTER_ID) for broker in self._brokers.values())
        return list(islice(filter(None, masters), SOME_MASTERS))

    def members(self, broker_name: str) -> dict[int, str]:
        """Return the addresses of a broker group by id; empty when the group is unknown (wire.md §8.9)."""
        broker = self._brokers.get(broker_name)
        return {} if broker is None else dict(broker.broker_addrs)

    @property
    def topic_count(self) -> int:
        """Number of topics with routes."""
        return len(self._topics)

    @property
    def route_count(self) -> int:
        """Number of pairs of a topic and a broker that has it."""
        return self._routes

    def live(self) -> list[LiveBroker]:
        """Return all registered brokers."""
        return list(self._live.values())

    def masters(self) -> list[tuple[str, str, bool]]:
        """Return cluster and name of each broker group, and whether it has a master."""
        return [(one.cluster, name, MASTER_ID in one.broker_addrs) for name, one in self._brokers.items()]

    def topics(self) -> list[str]:
        """Return all topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics that have queues on a broker of the cluster."""
        names = self._clusters.get(cluster, set())
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return all cluster and broker names, and the address of one broker (wire.md §8.7)."""
        names = dict.fromkeys(self._clusters)
        for members in self._clusters.values():
            names.update(dict.fromkeys(sorted(members)))
        addresses = (a for broker in self._brokers.values() for a in broker.broker_addrs.values())
        return list(names), next(addresses, None)

    def topics_flagged(self, flags: int, mask: int) -> list[str]:
        """Return the topics whose system flags within the mask equal `flags`; see `UNIT` and `UNIT_SUBSCRIPTION`."""
        first = ((topic, next(iter(queues.values()))) for topic, queues in self._topics.items())
        return [topic for topic, queue in first if queue.topic_sys_flag & mask == flags]

    # Changes by request

    def set_write_permission(self, broker_name: str, *, allowed: bool) -> int:
        """Remove or restore the write permission of a broker's topics until the broker changes them (broker.md §2.6).

        Returns:
            Number of the broker's topics.
        """
        count = 0
        for queues in self._topics.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queue.perm = PERM_READ | PERM_WRITE if allowed else queue.perm & ~PERM_WRITE
                count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, from all brokers or from the brokers of one cluster."""
        if topic not in self._topics:
            return
        names = self._topics[topic] if not cluster else self._clusters.get(cluster, set())
        for name in list(names):
            if topic in self._topics:
                self._drop_queues(topic, name)

    def add_queues(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Merge a topic's queues on registered brokers. At an unknown broker, stop and return False.

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
    """Return the part of a route that belongs to a zone, and all brokers without a master (wire.md §1.14)."""
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
