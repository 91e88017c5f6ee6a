"""Strategies that share a group's queues among its members (client.md §10.5, wire.md §14).

Every member, in any language, computes the same result from the same two sorted lists, without a coordinator. Pure: no
clock, no network.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar, cast

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue

T = TypeVar("T")


class AllocateStrategy(Protocol):
    """A strategy; all members of a group have to use the same one."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy, as in query-assignment requests."""
        ...

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the queues of `client_id`.

        Args:
            client_id: the member that asks.
            queues: all queues, sorted by `sorted_queues`.
            client_ids: all members, sorted by `sorted_client_ids`.

        Returns:
            The member's share. It is empty for a client that is no member, or when there are more members than queues.
        """
        ...


def check_strategy(strategy: object) -> AllocateStrategy:
    """Return a valid strategy unchanged.

    Raises:
        ConfigError: the object is no strategy.
    """
    if isinstance(strategy, type) or not callable(getattr(strategy, "allocate", None)):
        raise ConfigError(
            f"allocate_message_queue_strategy is {strategy!r}; use a strategy of tianzhou.client, as in Averagely()"
        )
    return cast("AllocateStrategy", strategy)


def utf16_order(text: str) -> bytes:
    """Return a sort key that orders text as Java's `String.compareTo` does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_client_ids(client_ids: Iterable[str]) -> list[str]:
    """Return unique client ids in the order that all members use."""
    return sorted(set(client_ids), key=utf16_order)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return unique queues in the order that all members use: topic, broker, id."""
    return sorted(set(queues), key=lambda q: (utf16_order(q.topic), utf16_order(q.broker_name), q.queue_id))


class Averagely:
    """RocketMQ's default strategy: consecutive slices in client order; the first n mod k members get one more queue."""

    name = "AVG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """See `AllocateStrategy.allocate`."""
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        share, extra = divmod(len(queues), len(client_ids))
        start = index * share + min(index, extra)
        return list(queues[start : start + share + (index < extra)])


class ByCircle:
    """Round-robin strategy: member i of k gets the queues i, i + k, i + 2k and so on."""

    name = "AVG_BY_CIRCLE"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """See `AllocateStrategy.allocate`."""
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class ConsistentHash:
    """Strategy with a hash ring of several virtual nodes per member, so that a change of members moves few queues.

    Args:
        virtual_nodes: points on the ring per member; all members must use the same number.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 0:
            raise ConfigError(f"virtual_nodes is {virtual_nodes}; give 0 or more")
        self._virtual_nodes = virtual_nodes

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """See `AllocateStrategy.allocate`."""
        if client_id not in client_ids or not self._virtual_nodes:
            return []
        ring = sorted(
            (_ring_position(f"{member}-{node}"), member) for member in client_ids for node in range(self._virtual_nodes)
        )
        positions = [position for position, _ in ring]

        def owner(queue: MessageQueue) -> str:
            key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[bisect_left(positions, _ring_position(key)) % len(ring)][1]

        return [queue for queue in queues if owner(queue) == client_id]


def _ring_position(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


class ByMachineRoom:
    """Strategy that shares only the queues of brokers named `room@broker` in some rooms, in consecutive slices.

    Args:
        rooms: the rooms whose queues are shared.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """See `AllocateStrategy.allocate`."""
        if client_id not in client_ids:
            return []
        ours = [q for q in queues if q.broker_name.count("@") == 1 and q.broker_name.split("@")[0] in self._rooms]
        index = client_ids.index(client_id)
        share, extra = divmod(len(ours), len(client_ids))
        result = ours[share * index : share * (index + 1)]
        if extra > index:
            result.append(ours[index + share * len(client_ids)])
        return result


class NearbyRoom:
    """Strategy by rooms: members get the queues of their own room, and all share the queues of rooms without members.

    Args:
        inner: the strategy within a room.
        room_of_queue: returns the room of a queue.
        room_of_client: returns the room of a member.
    """

    def __init__(
        self,
        inner: AllocateStrategy,
        room_of_queue: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self._room_of_queue = room_of_queue
        self._room_of_client = room_of_client

    @property
    def name(self) -> str:
        """`MACHINE_ROOM_NEARBY-` and the inner strategy's name."""
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """See `AllocateStrategy.allocate`.

        Raises:
            ConfigError: a queue or a member has no room.
        """
        if client_id not in client_ids:
            return []
        queues_by_room = _by_room(queues, self._room_of_queue)
        clients_by_room = _by_room(client_ids, self._room_of_client)
        own_room = self._room_of_client(client_id)
        result: list[MessageQueue] = []
        if own_room in queues_by_room:
            result += self._inner.allocate(client_id, queues_by_room[own_room], clients_by_room[own_room])
        for room in sorted(queues_by_room.keys() - clients_by_room.keys()):
            result += self._inner.allocate(client_id, queues_by_room[room], client_ids)
        return result


def _by_room(items: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    result: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ConfigError(f"the resolver gives no machine room for {item}; it has to name one for each")
        result.setdefault(room, []).append(item)
    return result


class FixedQueues:
    """Strategy with a fixed list of queues that the user selects, independent of other members.

    Args:
        queues: the queues of this member.
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = list(queues)

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        """See `AllocateStrategy.allocate`."""
        return list(self._queues)


def changes(
    owned: Iterable[MessageQueue], assigned: Iterable[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """Return the changes of a new assignment for a member: queues to revoke and queues to add, each in order."""
    before, after = set(owned), set(assigned)
    return sorted_queues(before - after), sorted_queues(after - before)
