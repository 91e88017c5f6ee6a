"""Queue locks of ordered consumption, per group and queue, granted for a minute (broker.md §15.6)."""

from __future__ import annotations

from collections.abc import Iterable

from tianzhou.limits import LOCKS, LOCKS_OF_GROUP, Bounds
from tianzhou.model import MessageQueue

LIFE_MS = 60_000


class QueueLockTable:
    """The lock table.

    Times are milliseconds of a monotonic clock, so that a change of the wall clock neither releases nor prolongs a
    lock.

    Args:
        life_ms: ms until a lock expires after it was acquired or renewed.
        bounds: limits in force.
    """

    def __init__(self, life_ms: int = LIFE_MS, bounds: Bounds | None = None) -> None:
        self._life_ms = life_ms
        self._bounds = bounds or Bounds()
        self._count = 0
        self._groups: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock the queues that are free and renew the client's own locks; return the queues that the client holds.

        Raises:
            LimitExceeded: there are too many locks; none was granted.
        """
        # Use set operations and one shared entry, because a request may have tens of thousands of queues.
        queues = list(queues)
        held = self._groups.get(group, {})
        fresh = len(set(queues) - held.keys())
        if fresh and not self._has_room(len(held) + fresh, fresh):
            # Expired locks stay until a sweep or until they exceed a limit.
            self.sweep(now_ms)
            held = self._groups.get(group, {})
            fresh = len(set(queues) - held.keys())
            self._bounds.check(LOCKS_OF_GROUP, len(held) + fresh, f"locks of group {group}")
            self._bounds.check(LOCKS, self._count + fresh)
        self._count += fresh
        if queues:
            held = self._groups.setdefault(group, held)
        granted = []
        lock, oldest = (client_id, now_ms), now_ms - self._life_ms
        for queue in queues:
            owner = held.get(queue)
            if owner is None or owner[0] == client_id or owner[1] < oldest:
                held[queue] = lock
                granted.append(queue)
        return granted

    def _has_room(self, of_group: int, fresh: int) -> bool:
        return of_group <= self._bounds.most(LOCKS_OF_GROUP) and self._count + fresh <= self._bounds.most(LOCKS)

    def sweep(self, now_ms: int) -> None:
        """Drop expired locks."""
        for group, held in list(self._groups.items()):
            self._drop(group, [queue for queue, owner in held.items() if self._expired(owner[1], now_ms)])

    def _drop(self, group: str, queues: Iterable[MessageQueue]) -> int:
        held, before = self._groups.get(group, {}), self._count
        for queue in queues:
            self._count -= held.pop(queue, None) is not None
        if not held:
            self._groups.pop(group, None)
        return before - self._count

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the client's own locks on the queues; locks of other clients stay."""
        held = self._groups.get(group, {})
        self._drop(group, [queue for queue in queues if queue in held and held[queue][0] == client_id])

    def release(self, group: str, client_id: str) -> int:
        """Release all locks of a client that left the group; return their number."""
        held = self._groups.get(group, {})
        return self._drop(group, [queue for queue, owner in held.items() if owner[0] == client_id])

    def held(self, group: str, now_ms: int) -> bool:
        """Whether the group has any lock that has not expired."""
        locks = self._groups.get(group)
        return locks is not None and any(not self._expired(since, now_ms) for _, since in locks.values())

    def forget_group(self, group: str) -> None:
        """Drop all locks of a deleted group."""
        self._drop(group, list(self._groups.get(group, ())))

    def _expired(self, since_ms: int, now_ms: int) -> bool:
        return now_ms - since_ms > self._life_ms
