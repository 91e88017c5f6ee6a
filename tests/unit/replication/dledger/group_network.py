"""A group of nodes in one thread: virtual time, a network that loses and reorders messages, nodes that lose power."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from tianzhou.replication.dledger.asks import Unsupported
from tianzhou.wire.bodies.dledger import (
    CODES,
    RESPONSES,
    StretchRequest,
    decode,
    encode,
    read_stretch,
    stretch_fields,
)


class Host(Protocol):
    """The network's view of a node."""

    name: str
    alive: bool
    life: int

    def tick(self) -> None: ...

    def requested(self, ticket: object, request: Any) -> None: ...

    def crash(self, *, power: bool) -> None: ...

    def restart(self) -> None: ...


def carried(message: Any) -> Any:
    """Return a message encoded and decoded, as the receiver gets it."""
    if isinstance(message, StretchRequest):
        return read_stretch(stretch_fields(message), encode(message))
    return decode(type(message), encode(message))


class Network:
    """Delivers the messages between nodes.

    Args:
        rng: random generator.

    Attributes:
        lossy: probability that a message is lost.
        slowest_ms: maximum random delay of a message; later messages overtake earlier ones.
        cuts: pairs (from, to) whose messages are dropped.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now_ms = 0
        self.lossy = 0.0
        self.slowest_ms = 20
        self.cuts: set[tuple[str, str]] = set()
        self.hosts: dict[str, Host] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, delay_ms: int, event: Callable[[], None]) -> None:
        """Schedule an event after a delay."""
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, event))

    def run_until(self, until_ms: int) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        self.now_ms = until_ms

    def _goes(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self.cuts and self.rng.random() >= self.lossy

    def ask(self, sender: str, receiver: str, request: Any, limit_ms: int, then: Callable[[Any], None]) -> None:
        """Deliver a request, and its reply back; `then` gets None when one of them is lost."""
        asker, asked = self.hosts[sender], self.hosts[receiver]
        lives = asker.life, asked.life
        done = False

        def end(reply: Any) -> None:
            nonlocal done
            if not done and asker.alive and asker.life == lives[0]:
                done = True
                then(reply)

        def answer(response: Any) -> None:
            if asked.life == lives[1] and self._goes(receiver, sender):
                back = response if isinstance(response, Unsupported) else carried(response)
                if not isinstance(back, Unsupported):
                    assert isinstance(back, RESPONSES[CODES[type(request)]]), (request, back)
                self.at(self.rng.randint(1, self.slowest_ms), lambda: end(back))

        def arrive() -> None:
            if asked.alive and asked.life == lives[1]:
                asked.requested(answer, carried(request))

        if self._goes(sender, receiver):
            self.at(self.rng.randint(1, self.slowest_ms), arrive)
        self.at(limit_ms, lambda: end(None))
