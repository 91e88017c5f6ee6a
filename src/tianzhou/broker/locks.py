"""Who may consume a queue in order: locks per group and queue, granted for a minute (broker.md §15.6)."""

from __future__ import annotations

from collections.abc import Iterable

from tianzhou.model import MessageQueue

LIFE_MS = 60_000


class QueueLocks:
    """The lock table.

    Times are milliseconds of a clock that never steps back, so that a clock change neither frees nor prolongs
    a lock.

    Args:
        life_ms: how long a lock lasts after it was last asked for.
    """

    def __init__(self, life_ms: int = LIFE_MS) -> None:
        self._life_ms = life_ms
        self._groups: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock what can be locked for the client, renewing what it already has; returns the queues it holds."""
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            owner = held.get(queue)
            if owner is None or owner[0] == client_id or self._expired(owner[1], now_ms):
                held[queue] = (client_id, now_ms)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free the client's own locks on the queues; others' locks stay."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                del held[queue]
        if not held:
            del self._groups[group]

    def release(self, group: str, client_id: str) -> int:
        """Free every lock the client has in the group, because it left; returns how many."""
        held = self._groups.get(group)
        if held is None:
            return 0
        mine = [queue for queue, owner in held.items() if owner[0] == client_id]
        for queue in mine:
            del held[queue]
        if not held:
            del self._groups[group]
        return len(mine)

    def held(self, group: str, now_ms: int) -> bool:
        """Whether the group has any lock that has not expired."""
        locks = self._groups.get(group)
        return locks is not None and any(not self._expired(since, now_ms) for _, since in locks.values())

    def forget_group(self, group: str) -> None:
        """Drop all locks of a deleted group."""
        self._groups.pop(group, None)

    def _expired(self, since_ms: int, now_ms: int) -> bool:
        return now_ms - since_ms > self._life_ms
