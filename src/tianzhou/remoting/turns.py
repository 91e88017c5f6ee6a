"""Time allowance per loop turn for work that is not urgent, so that urgent requests never wait long.

A thousand requests that take ten milliseconds each are fast one by one and hold everybody for ten seconds when they
are read in one turn. Those that may take long share an allowance of time per turn; when it is used up they wait in
line, and the first of the line go on in the next turn, with everybody else served in between. `tianzhou.slices` is for
work that nothing else competes with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from tianzhou.clock import SystemClock
from tianzhou.slices import NextTurn

T = TypeVar("T")
Slices: TypeAlias = Generator[None, None, T]
"""Work with a result T; others may be served whenever it yields."""

TURN_S: Final = 0.01
"""Seconds of such work per loop turn; work that has begun is not interrupted."""
CALLS_PER_TURN: Final = 64
"""Maximum places called per loop turn; those for which no time is left stand in front again."""
SLICE_S: Final = 0.002
"""Seconds of one piece of sliced work per loop turn."""
FORGET_EVERY: Final = 1024
"""Steps of a `FairQueue` after which it forgets addresses that have no more than their share."""
_BEHIND: Final = 1 << 48
"""Numbers of the places of work that takes long: behind what is done in one turn."""


class Place(asyncio.Future[None]):
    """A place in line, done when it is called.

    Attributes:
        number: smaller ones are called first.
    """

    number: int = 0

    def __lt__(self, other: Place) -> bool:
        return self.number < other.number


class Turns:
    """The allowance, and the line of work that waits for it.

    Args:
        turn_s: seconds of work in a turn of the loop.
        monotonic: seconds.

    Attributes:
        monotonic: clock, seconds.
        slow: number of pieces of sliced work that have begun or wait to.
    """

    __slots__ = ("_called", "_left_s", "_line", "_next_turn", "_numbers", "_turn_s", "monotonic", "slow")

    def __init__(self, turn_s: float = TURN_S, monotonic: Callable[[], float] = SystemClock.monotonic) -> None:
        self.monotonic = monotonic
        self.slow = 0
        self._turn_s = self._left_s = turn_s
        self._line: list[Place] = []
        self._called: set[Place] = set()
        self._numbers = 0
        self._next_turn = NextTurn(self._next)

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
        self._next_turn.ask()

    def wait(self, former: Place | None = None, *, behind: bool = False) -> Place:
        """What is done when it may be one's turn: then look by `free`, and wait again if it is not.

        Args:
            former: what was awaited in vain; those that came later stay behind.
            behind: let those go first that take one turn only.
        """
        place = Place(loop=asyncio.get_running_loop())
        if former is None:
            self._numbers += 1
            place.number = self._numbers + _BEHIND * behind
        else:
            place.number = former.number
        heappush(self._line, place)
        self._next_turn.ask()
        return place

    async def turn(self) -> None:
        """Return when it is one's turn; what follows without a further `await` is done in it."""
        place = self.wait()
        await place
        while not self.free(place):
            place = self.wait(place)
            await place

    def sliced(self, work: Slices[T]) -> T | Coroutine[Any, Any, T]:
        """What work comes to: at once when one slice is enough, else to be awaited.

        The first slice is the caller's to `spend`. While other work goes on nothing is begun: what a thousand have
        begun would have to be kept until they come to an end.
        """
        if self.slow:
            return self.in_slices(work)
        until = self.monotonic() + SLICE_S
        while self.monotonic() < until:
            try:
                next(work)
            except StopIteration as done:
                result: T = done.value
                return result
        return self.in_slices(work)

    async def in_slices(self, work: Slices[T]) -> T:
        """What work comes to, done slice by slice in the turns that are its own."""
        async with Pace(self) as pace:
            return await pace.through(work)

    def _next(self) -> None:
        self._left_s = self._turn_s
        # Who was called and went away instead keeps nobody.
        self._called.clear()
        while self._line and len(self._called) < CALLS_PER_TURN:
            place = heappop(self._line)
            if not place.done():
                self._called.add(place)
                place.set_result(None)
        if self._called:
            self._next_turn.ask()


class Pace:
    """The turns of one piece of work that takes long: `async with Pace(turns) as pace`.

    What began first ends first, so that many such pieces do not all hold at once what they have done so far.

    Args:
        turns: the allowance of all.
        behind: let those go first that take one turn only.
    """

    __slots__ = ("_began", "_behind", "_place", "_turns")

    def __init__(self, turns: Turns, *, behind: bool = True) -> None:
        self._turns = turns
        self._behind = behind
        self._place: Place | None = None
        self._began = 0.0

    async def __aenter__(self) -> Self:
        self._turns.slow += 1
        try:
            if not self._turns.free():
                await self._wait()
        except asyncio.CancelledError:
            self._turns.slow -= 1
            raise
        self._began = self._turns.monotonic()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._turns.slow -= 1
        self._turns.spend(self._turns.monotonic() - self._began)

    async def rest(self) -> None:
        """Let others be served, when a slice has been done since they were last."""
        spent = self._turns.monotonic() - self._began
        if spent >= SLICE_S:
            self._turns.spend(spent)
            await self._wait()
            self._began = self._turns.monotonic()

    async def through(self, work: Slices[T]) -> T:
        """What work comes to."""
        try:
            while True:
                next(work)
                await self.rest()
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            work.close()

    async def _wait(self) -> None:
        turns, place = self._turns, self._place
        while place is self._place or not turns.free(place):
            place = turns.wait(place, behind=self._behind)
            await place
        self._place = place


MemberT = TypeVar("MemberT")


class FairQueue(Generic[MemberT]):
    """Order in which those go on whose requests were left for later turns: addresses get equal shares of the time.

    That is start-time fair queueing: an address begins where it has ended, or where the one in service has begun. Of
    one address, who came first is first. So a small request waits for one of each other address, not for the ten
    thousand connections that each of them may have.
    """

    __slots__ = ("_begun", "_count", "_ends", "_heap", "_lined_up", "_taken", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, dict[MemberT, float]] = {}
        # One entry of each address with members that wait, but for that in service; some may have left.
        self._heap: list[tuple[float, int, str]] = []
        self._lined_up: set[str] = set()
        self._ends: dict[str, float] = {}
        self._begun = 0.0
        self._count = 0
        self._taken: str | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, member: MemberT, address: str, since: float) -> bool:
        """Add who waits; False for one that does already.

        Args:
            member: who.
            address: what it shares its time with.
            since: what `take` returns with it: since when it waits.
        """
        members = self._waiting.get(address)
        if members is None:
            members = self._waiting[address] = {}
            if address != self._taken and address not in self._lined_up:
                self._push(address)
        elif member in members:
            return False
        members[member] = since
        return True

    def take(self) -> tuple[MemberT, float]:
        """Remove and return who is next, and since when it has waited; `charge` has to follow before the next.

        Raises:
            IndexError: nobody waits.
        """
        while True:
            self._begun, _, address = heappop(self._heap)
            self._lined_up.discard(address)
            members = self._waiting.get(address)
            if members is None:  # they are gone
                continue
            member = next(iter(members))
            since = members.pop(member)
            if not members:
                del self._waiting[address]
            self._taken = address
            return member, since

    def charge(self, cost_s: float) -> None:
        """Count what serving the one that was taken last has cost, in seconds."""
        address, self._taken = self._taken, None
        if address is None:
            return
        self._ends[address] = self._begun + cost_s
        if address in self._waiting:
            self._push(address)
        elif not self._waiting:  # nobody has waited for anybody
            self._heap.clear()
            self._lined_up.clear()
            self._ends.clear()
            self._begun = 0.0

    def leave(self, member: MemberT, address: str) -> None:
        """Remove one that is gone, if it waits.

        Args:
            member: who.
            address: that it was added with.
        """
        members = self._waiting.get(address)
        if members is not None and members.pop(member, None) is not None and not members:
            del self._waiting[address]

    def _push(self, address: str) -> None:
        self._count += 1
        if self._count % FORGET_EVERY == 0:
            self._ends = {one: end for one, end in self._ends.items() if end > self._begun}
        self._lined_up.add(address)
        heappush(self._heap, (max(self._begun, self._ends.get(address, 0.0)), self._count, address))
