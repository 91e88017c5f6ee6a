"""Requests that wait for an answer."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

from tianzhou.wire.bodies.dledger import Response


class Unsupported:
    """Instead of an answer: the peer does not know the request's code (response code 3), so it is none of ours."""


Reply: TypeAlias = Response | Unsupported | None
"""An answer, that the peer does not know the question, or that there will be no answer."""
Then: TypeAlias = Callable[[Any], None]
"""What takes a reply."""


class Asks:
    """Requests by number, each with what to do with its answer."""

    def __init__(self) -> None:
        self._waiting: dict[int, Then] = {}
        self._ends: list[tuple[int, int]] = []
        self.next_number = 1

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, until_ms: int, then: Then) -> int:
        """Number of a new request.

        Args:
            until_ms: when no answer counts as none.
            then: gets the reply.
        """
        number = self.next_number
        self.next_number += 1
        self._waiting[number] = then
        heapq.heappush(self._ends, (until_ms, number))
        return number

    def pop(self, number: int) -> Then | None:
        """What takes the reply to a request; None when it came too late, or twice."""
        return self._waiting.pop(number, None)

    def overdue(self, now_ms: int) -> list[Then]:
        """What takes the replies to requests that are answered no more."""
        late = []
        while self._ends and (self._ends[0][0] <= now_ms or self._ends[0][1] not in self._waiting):
            _, number = heapq.heappop(self._ends)
            if (then := self._waiting.pop(number, None)) is not None:
                late.append(then)
        return late
