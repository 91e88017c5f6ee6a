"""Work that is not urgent, so much of it in each turn of the loop, so that what is urgent never waits long.

A thousand requests that take ten milliseconds each are fast one by one and hold everybody for ten seconds when they
are read in one turn. Those of a kind that may take long share an allowance for each turn; who finds it used up stands
in line, and the first of the line go on in the next turn as far as its allowance goes, with everybody else served in
between.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from typing import Final

TURN_S: Final = 0.01
"""How long such work may take in a turn before the next has to wait; what has begun is not interrupted."""
AT_ONCE: Final = 64
"""So many of the line are woken in a turn; who finds that those before it were slow stands in front again."""


class Place(asyncio.Future[None]):
    """A place in line, done when it is called.

    Attributes:
        number: those with smaller ones are called first.
    """

    number: int = 0

    def __lt__(self, other: Place) -> bool:
        return self.number < other.number


class Turns:
    """The allowance, and the line of those who wait for theirs.

    Args:
        turn_s: seconds of work in a turn of the loop.
    """

    __slots__ = ("_armed", "_called", "_left_s", "_line", "_numbers", "_turn_s")

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = self._left_s = turn_s
        self._line: list[Place] = []
        self._called: set[Place] = set()
        self._numbers = 0
        self._armed = False

    def free(self, place: Place | None = None) -> bool:
        """Whether work may be done now.

        Args:
            place: what `wait` gave and was awaited; it is used up by this.
        """
        if place is not None and place in self._called:
            self._called.discard(place)
            return self._left_s > 0
        return self._left_s > 0 and not self._line and not self._called

    def spend(self, seconds: float) -> None:
        """Note work that was done in this turn."""
        self._left_s -= seconds
        if not self._armed:
            self._arm()

    def wait(self, former: Place | None = None) -> Place:
        """What is done when it may be one's turn: then look by `free`, and wait again if it is not.

        Args:
            former: what was awaited in vain; those that came later stay behind.
        """
        place = Place(loop=asyncio.get_running_loop())
        if former is None:
            self._numbers += 1
            place.number = self._numbers
        else:
            place.number = former.number
        heappush(self._line, place)
        if not self._armed:
            self._arm()
        return place

    async def turn(self) -> None:
        """Return when it is one's turn; what follows without a further `await` is done in it."""
        place = self.wait()
        await place
        while not self.free(place):
            place = self.wait(place)
            await place

    def _arm(self) -> None:
        self._armed = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._armed = False
        self._left_s = self._turn_s
        # Who was called and went away instead keeps nobody.
        self._called.clear()
        while self._line and len(self._called) < AT_ONCE:
            place = heappop(self._line)
            if not place.done():
                self._called.add(place)
                place.set_result(None)
        if self._called:
            self._arm()
