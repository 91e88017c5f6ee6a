"""Routes of topics from the name servers (client.md §3.5, wire.md §8.1). A pure table.

`instance.py` requests routes and stores them here. Producers and consumers read them.
"""

from __future__ import annotations

from dataclasses import replace

from tianzhou.client.consumer.allocation import sorted_queues
from tianzhou.errors import ProtocolError
from tianzhou.limits import BROKERS_OF_ROUTE, QUEUES_OF_ROUTE
from tianzhou.model import BrokerData, MessageQueue, TopicRoute
from tianzhou.model.names import MASTER_ID
from tianzhou.model.topic import PERM_READ, PERM_WRITE


def check_route(route: TopicRoute, whose: str) -> TopicRoute:
    """Return a valid route unchanged.

    Args:
        route: route from a name server.
        whose: the topic and the name server, for errors.

    Raises:
        LimitExceeded: it has more queues or brokers than any cluster has.
        ProtocolError: its order configuration cannot be parsed.
    """
    queues = sum(max(data.read_queue_nums, data.write_queue_nums, 0) for data in route.queue_datas)
    try:
        queues = max(queues, sum(count for _, count in _order_conf(route.order_topic_conf or "")))
    except ValueError as error:
        raise ProtocolError(f"{whose}: its order configuration cannot be read: {error}") from None
    for limit, count in (
        (QUEUES_OF_ROUTE, max(queues, len(route.queue_datas))),
        (BROKERS_OF_ROUTE, sum(max(len(broker.broker_addrs), 1) for broker in route.broker_datas)),
    ):
        if count > limit.default:
            raise limit.error(count, limit.default, whose)
    return route


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues that a producer may send to, in its round-robin order.

    These are the writable queues of brokers that have a master, or exactly those of the topic's order configuration.
    """
    masters = {broker.broker_name for broker in route.broker_datas if broker.master}
    if route.order_topic_conf:
        return [
            MessageQueue(topic, broker_name, queue_id)
            for broker_name, count in _order_conf(route.order_topic_conf)
            for queue_id in range(count)
        ]
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda d: d.broker_name)
        if data.perm & PERM_WRITE and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    ]


def _order_conf(text: str) -> list[tuple[str, int]]:
    result = []
    for part in text.split(";"):
        broker_name, colon, count = part.partition(":")
        if colon and count.strip().isdecimal():
            result.append((broker_name, int(count)))
    return result


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues that a consumer may read, sorted. Queues of a broker without a master are readable, too."""
    return sorted_queues(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    )


def borrowed(route: TopicRoute, queue_nums: int) -> TopicRoute:
    """Return the route of the auto-create topic, adapted for a topic that does not exist yet (client.md §3.5).

    Args:
        route: the auto-create topic's route.
        queue_nums: queues per broker that the producer requests.
    """
    datas = []
    for data in route.queue_datas:
        count = min(queue_nums, data.read_queue_nums)
        datas.append(replace(data, read_queue_nums=count, write_queue_nums=count))
    return replace(route, queue_datas=datas)


class RouteTable:
    """The routes that this client knows, and the broker addresses in them."""

    def __init__(self) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self.version = 0
        """Counter of changes. Derived tables compare it to detect that they are outdated."""

    def __contains__(self, topic: object) -> bool:
        return topic in self._routes

    @property
    def topics(self) -> list[str]:
        """All topics with a known route."""
        return list(self._routes)

    def get(self, topic: str) -> TopicRoute | None:
        """Return the topic's route; None when unknown."""
        return self._routes.get(topic)

    def put(self, topic: str, route: TopicRoute) -> bool:
        """Store a route.

        Returns:
            Whether it differs from the previous route.
        """
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        old = self._routes.get(topic)
        if old is not None and _normal(old) == _normal(route):
            return False
        self._routes[topic] = route
        self.version += 1
        return True

    def forget(self, topic: str) -> None:
        """Drop a topic's route, so that it is requested again."""
        if self._routes.pop(topic, None) is not None:
            self.version += 1

    def prune(self) -> None:
        """Drop brokers that are no longer in any route."""
        alive = {broker.broker_name for route in self._routes.values() for broker in route.broker_datas}
        for name in self._brokers.keys() - alive:
            del self._brokers[name]

    def master(self, broker_name: str) -> str | None:
        """Return the address of a broker's master; None without one."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def readable(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Return the address to read from: the replica with this id, with the next id, or with the lowest id."""
        replicas = self._brokers.get(broker_name, {})
        found = replicas.get(broker_id)
        if found is None and broker_id != MASTER_ID:
            found = replicas.get(broker_id + 1)
        if found is None and replicas:
            found = replicas[min(replicas)]
        return found

    def addresses(self, *, masters_only: bool = False) -> list[str]:
        """Return every known broker address, or only the masters', each once and in a stable order."""
        found = {
            address: None
            for _, replicas in sorted(self._brokers.items())
            for broker_id, address in sorted(replicas.items())
            if broker_id == MASTER_ID or not masters_only
        }
        return list(found)

    def broker_name_of(self, address: str) -> str | None:
        """Return the name of the broker that listens at an address."""
        return next((name for name, replicas in self._brokers.items() if address in replicas.values()), None)

    def brokers_of(self, topic: str) -> list[BrokerData]:
        """Return the brokers in a topic's route."""
        route = self._routes.get(topic)
        return list(route.broker_datas) if route is not None else []


def _normal(route: TopicRoute) -> tuple[object, ...]:
    return (
        sorted((q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queue_datas),
        sorted((b.broker_name, sorted(b.broker_addrs.items())) for b in route.broker_datas),
        route.order_topic_conf,
    )
