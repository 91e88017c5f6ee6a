"""Pull offsets of broadcast consumers, for clients that switch between broker and proxy.

A broadcast consumer stores its offsets itself. A proxy that pulls for it cannot store them, and a client that leaves a
proxy has no offsets of its own. So the broker notes the last pull offset of each client, and commits the smallest one
for the group `<group>@broadcast`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tianzhou.limits import BROADCAST_OFFSETS, Bounds

BY_PROXY = 1
"""Value of a pull's `requestSource` when a proxy pulls for a broadcast consumer."""
SUFFIX = "@broadcast"
"""Suffix of the group whose offsets are committed."""


@dataclass(slots=True)
class _Client:
    proxied: bool
    last_pull_ms: int
    offsets: dict[int, int] = field(default_factory=dict)


class Smallest(NamedTuple):
    """Offset to commit for a group's broadcast consumers."""

    group: str
    topic: str
    queue_id: int
    offset: int


class BroadcastOffsets:
    """Last pull offset of each broadcast consumer. Times are monotonic milliseconds.

    Args:
        bounds: limits in force.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._count = 0
        self._clients: dict[tuple[str, str], dict[str, _Client]] = {}

    def pulled(
        self, group: str, topic: str, queue_id: int, client_id: str, offset: int, now_ms: int, *, proxied: bool
    ) -> None:
        """Note the pull of a client, direct or through a proxy; its offset never falls.

        Raises:
            LimitExceeded: there are too many clients and queues.
        """
        client = self._clients.get((group, topic), {}).get(client_id)
        if client is None or queue_id not in client.offsets:
            self._bounds.check(
                BROADCAST_OFFSETS, self._count + 1, f"broadcast offset of group {group} in topic {topic}"
            )
            self._count += 1
        if client is None:
            client = self._clients.setdefault((group, topic), {})[client_id] = _Client(proxied, now_ms)
        client.proxied, client.last_pull_ms = proxied, now_ms
        client.offsets[queue_id] = max(offset, client.offsets.get(queue_id, offset))

    def needs_start(self, group: str, topic: str, client_id: str, offset: int, *, proxied: bool) -> bool:
        """Whether a pull needs its start offset from the broker: the client switched from or to a proxy, or is new.

        Args:
            group: its group.
            topic: the topic.
            client_id: the client.
            offset: the requested queue offset.
            proxied: whether a proxy pulls for the client.
        """
        clients = self._clients.get((group, topic))
        if clients is None:
            return proxied and offset < 0
        client = clients.get(client_id)
        before = proxied if client is None else client.proxied
        return (before and offset < 0) or before != proxied

    def reached(self, group: str, topic: str, queue_id: int, client_id: str) -> int | None:
        """Return the offset of a client's last pull; None when there was none."""
        client = self._clients.get((group, topic), {}).get(client_id)
        return None if client is None else client.offsets.get(queue_id)

    def sweep(
        self, now_ms: int, is_online: Callable[[str, str], bool], *, away_ms: int, silent_ms: int
    ) -> list[Smallest]:
        """Return the offsets to commit, and drop clients that have left.

        Args:
            now_ms: the time.
            is_online: whether a client is a member of a group.
            away_ms: ms for which a disconnected client counts.
            silent_ms: ms for which a connected client counts without a pull.
        """
        found: list[Smallest] = []
        for (group, topic), clients in list(self._clients.items()):
            smallest: dict[int, int] = {}
            for client_id, client in list(clients.items()):
                online, age = is_online(group, client_id), now_ms - client.last_pull_ms
                if online or age < away_ms:
                    for queue_id, offset in client.offsets.items():
                        smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
                if age >= (silent_ms if online else away_ms):
                    del clients[client_id]
                    self._count -= len(client.offsets)
            if not clients:
                del self._clients[group, topic]
            found += [Smallest(group + SUFFIX, topic, queue_id, offset) for queue_id, offset in smallest.items()]
        return found
