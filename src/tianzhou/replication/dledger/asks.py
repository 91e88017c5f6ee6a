"""Requests of a node that wait for a reply."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

from tianzhou.wire.bodies.dledger import Response


class Unsupported:
    """The reply of a peer that does not support the request's code (response code 3), as Apache's nodes do not."""


Reply: TypeAlias = Response | Unsupported | None
"""A response, the rejection of an unsupported request, or None when no response will arrive."""
Then: TypeAlias = Callable[[Any], None]
"""Callback of a reply."""


class Asks:
    """Outstanding requests by number, each with the callback of its reply."""

    def __init__(self) -> None:
        self._waiting: dict[int, Then] = {}
        self._ends: list[tuple[int, int]] = []
        self.next_number = 1

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, until_ms: int, then: Then) -> int:
        """Return the number of a new request.

        Args:
            until_ms: time after which a reply counts as missing.
            then: gets the reply.
        """
        number = self.next_number
        self.next_number += 1
        self._waiting[number] = then
        heapq.heappush(self._ends, (until_ms, number))
        return number

    def pop(self, number: int) -> Then | None:
        """Return the callback of a request and remove it; None when the reply is late or a duplicate."""
        return self._waiting.pop(number, None)

    def overdue(self, now_ms: int) -> list[Then]:
        """Return the callbacks of requests that have timed out, and remove them."""
        late = []
        while self._ends and (self._ends[0][0] <= now_ms or self._ends[0][1] not in self._waiting):
            _, number = heapq.heappop(self._ends)
            if (then := self._waiting.pop(number, None)) is not None:
                late.append(then)
        return late
