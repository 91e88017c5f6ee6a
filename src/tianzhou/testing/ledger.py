"""A test's ledger of a producer, outside the server: sent and acknowledged messages, compared with the server's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Place = tuple[str, int]
"""Topic and queue."""


@dataclass
class Ledger:
    """The sent and acknowledged messages, and the messages found in the queues.

    The body identifies a message. Its writer sends one message after the other and waits for each reply, so in each
    queue the messages of a writer are in the order of their numbers.

    Attributes:
        sent: place and writer of every message that was ever passed to a client.
        acknowledged: acknowledged bodies by place and offset.
        found: bodies by place, in the order of the queue.
    """

    sent: dict[bytes, tuple[Place, str, int]] = field(default_factory=dict)
    acknowledged: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    found: dict[Place, list[bytes]] = field(default_factory=dict)

    def send(self, place: Place, writer: str, number: int) -> bytes:
        """Record a message to send, and return its body."""
        body = f"{place[0]}/{place[1]}/{writer}/{number}/".encode()
        body += bytes(33 + (number * 31 + k * 7) % 90 for k in range(number * 37 % 400))
        self.sent[body] = (place, writer, number)
        return body

    def acknowledge(self, place: Place, offset: int, bodies: Iterable[bytes]) -> None:
        """Record an acknowledgement of messages at `offset` and the following offsets."""
        of_place = self.acknowledged.setdefault(place, {})
        for number, body in enumerate(bodies):
            assert offset + number not in of_place, f"offset {offset + number} of {place} was given out twice"
            of_place[offset + number] = body

    def next_offset(self, place: Place) -> int:
        """Return the next offset to read from a queue."""
        return len(self.found.get(place, ()))

    def take(self, place: Place, offset: int, body: bytes) -> None:
        """Record a message that the server returned."""
        of_place = self.found.setdefault(place, [])
        assert offset == len(of_place), f"{place}: offset {offset} follows {len(of_place) - 1}"
        of_place.append(body)

    def problems(self) -> list[str]:
        """Return descriptions of all violations."""
        problems = []
        seen: dict[bytes, tuple[Place, int]] = {}
        for place, bodies in self.found.items():
            last: dict[str, int] = {}
            for offset, body in enumerate(bodies):
                if body not in self.sent:
                    problems.append(f"phantom: {body[:60]!r} at {place}/{offset} was never sent")
                    continue
                wanted, writer, number = self.sent[body]
                if wanted != place:
                    problems.append(f"{body[:60]!r} is in {place}")
                if body in seen:
                    problems.append(f"twice: {body[:60]!r} at {place}/{offset} and {seen[body]}")
                seen[body] = (place, offset)
                if number < last.get(writer, -1):
                    problems.append(f"order: {body[:60]!r} at {place}/{offset} behind number {last[writer]}")
                last[writer] = number
        for place, answers in self.acknowledged.items():
            bodies = self.found.get(place, [])
            for offset, body in answers.items():
                if offset >= len(bodies):
                    problems.append(f"lost: {body[:60]!r}, acknowledged at {place}/{offset}; the queue ends before it")
                elif bodies[offset] != body:
                    problems.append(f"lost: {body[:60]!r}, acknowledged at {place}/{offset}, has another in its place")
        return problems

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of messages sent, acknowledged and found."""
        return {
            "sent": len(self.sent),
            "acknowledged": sum(len(answers) for answers in self.acknowledged.values()),
            "found": sum(len(bodies) for bodies in self.found.values()),
        }
