"""Void positions: offsets of running members in deleted topics, which are invalid in a new topic of the same name.

A member that runs while its topic is deleted retains its offset. When the topic is created again, the member would
continue at this offset and skip as many messages of the new topic. So the broker notes the queues of each connected
group when it deletes a topic, and makes members that pull from such a queue begin at 0.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

MOST_QUEUES = 100_000
"""Maximum queues to remember. New queues evict the oldest ones."""
MOST_CORRECTIONS = 3
"""Maximum corrections of one member, or of a group that shares its queues.

Afterwards the client's offset is accepted.
"""

Place = tuple[str, str, int]
"""Group, topic and queue."""


@dataclass(slots=True)
class _Void:
    corrections: dict[str, int] = field(default_factory=dict)


class VoidPositions:
    """Queues whose members have positions of a deleted topic.

    Args:
        most: maximum queues to remember.
    """

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self._voids: dict[Place, _Void] = {}

    def topic_deleted(self, topic: str, group: str, queues: Collection[int]) -> None:
        """Note that a topic is deleted while members of a group read it.

        Args:
            topic: the topic.
            group: a connected group.
            queues: queues in which members of the group may have positions.
        """
        for queue_id in queues:
            place = group, topic, queue_id
            self._voids.pop(place, None)
            self._voids[place] = _Void()
        while len(self._voids) > self._most:
            del self._voids[next(iter(self._voids))]

    def waits(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a member may still have a position of the deleted topic, so that its commits are ignored."""
        return bool(self._voids) and (group, topic, queue_id) in self._voids

    def is_void(self, group: str, topic: str, queue_id: int, offset: int, broadcaster: str | None) -> bool:
        """Whether the offset of a pull is a position in the deleted topic, so that the member has to begin at 0.

        A group whose members share the queues has begun with the first pull at 0. In a broadcast group each member
        begins on its own.

        Args:
            group: group of the member.
            topic: the topic.
            queue_id: the queue.
            offset: the requested queue offset.
            broadcaster: client id of a member of a broadcast group; None where members share the queues.
        """
        if not self.waits(group, topic, queue_id):
            return False
        void = self._voids[group, topic, queue_id]
        member = broadcaster or ""
        before = void.corrections.get(member, 0)
        if offset > 0 and before < (MOST_CORRECTIONS if broadcaster is None else 1):
            void.corrections[member] = before + 1
            return True
        void.corrections[member] = MOST_CORRECTIONS
        if broadcaster is None:
            del self._voids[group, topic, queue_id]
        return False

    def forget_group(self, group: str) -> None:
        """Drop the queues of a deleted group."""
        self._voids = {place: void for place, void in self._voids.items() if place[0] != group}
