"""Time allowance per loop turn for work that is not urgent, so that urgent requests never wait long.

A thousand requests of ten milliseconds each are fast one by one. If the loop serves them all in one turn, every other
client waits ten seconds. So slow requests share an allowance of time per turn. When the allowance is used up, the
remaining requests queue, and the loop serves other clients before it continues in the next turn. `tianzhou.slices` is
for work that competes with no other work.
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
"""Generator that returns a result T. The loop may serve other work whenever it yields."""

TURN_S: Final = 0.01
"""Seconds of slow work per loop turn. Work that has begun is not interrupted."""
CALLS_PER_TURN: Final = 64
"""Maximum places called per loop turn. A caller that finds no time left queues again with its former number."""
SLICE_S: Final = 0.002
"""Seconds of one slice of sliced work per loop turn."""
FORGET_EVERY: Final = 1024
"""Number of `FairQueue` steps between two removals of addresses that have used no more than their share."""
_BEHIND: Final = 1 << 48
"""Offset added to the numbers of multi-turn work, so that it queues behind work of a single turn."""


class Place(asyncio.Future[None]):
    """A place in the queue: a future that is done when the place is called.

    Attributes:
        number: position in the queue; smaller numbers are called first.
    """

    number: int = 0

    def __lt__(self, other: Place) -> bool:
        return self.number < other.number


class Turns:
    """The time allowance per loop turn, and the queue of work that waits for it.

    Args:
        turn_s: seconds of slow work per loop turn.
        monotonic: clock, seconds.

    Attributes:
        monotonic: clock, seconds.
        slow: number of sliced works that have begun or are queued.
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
        """Whether work may run now.

        Args:
            place: a place returned by `wait` and awaited by the caller; this call consumes it.
        """
        if place is not None and place in self._called:
            self._called.discard(place)
            return self._left_s > 0
        return self._left_s > 0 and not self._line and not self._called

    def spend(self, seconds: float) -> None:
        """Charge seconds of work to the allowance of this turn."""
        self._left_s -= seconds
        self._next_turn.ask()

    def wait(self, former: Place | None = None, *, behind: bool = False) -> Place:
        """Return a future that is done when the caller may run. The caller then calls `free` and may wait again.

        Args:
            former: the caller's last place, when `free` returned False for it; the new place gets the same number.
            behind: whether to queue behind all work of a single turn.
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
        """Wait until the caller may run. Code up to the caller's next `await` runs in the granted turn."""
        place = self.wait()
        await place
        while not self.free(place):
            place = self.wait(place)
            await place

    def sliced(self, work: Slices[T]) -> T | Coroutine[Any, Any, T]:
        """Return the result of sliced work if it ends within one slice; otherwise return a coroutine for the result.

        The caller must `spend` the time of the first slice. While other sliced work runs, no new work begins, because
        each begun work would hold its partial results until it ends.
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
        """Run sliced work slice by slice in its own turns, and return its result."""
        async with Pace(self) as pace:
            return await pace.through(work)

    def _next(self) -> None:
        self._left_s = self._turn_s
        # A called waiter that was cancelled must not block the queue.
        self._called.clear()
        while self._line and len(self._called) < CALLS_PER_TURN:
            place = heappop(self._line)
            if not place.done():
                self._called.add(place)
                place.set_result(None)
        if self._called:
            self._next_turn.ask()


class Pace:
    """The turns of one sliced work: `async with Pace(turns) as pace`.

    Works run in the order in which they began, so that few of them hold partial results at the same time.

    Args:
        turns: the allowance that all works share.
        behind: whether to queue behind all work of a single turn.
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
        """Wait for the next turn if a whole slice has run since the last wait."""
        spent = self._turns.monotonic() - self._began
        if spent >= SLICE_S:
            self._turns.spend(spent)
            await self._wait()
            self._began = self._turns.monotonic()

    async def through(self, work: Slices[T]) -> T:
        """Run the work to its end and return its result."""
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
    """Start-time fair queue of members with postponed requests: each address gets an equal share of the time.

    An address starts at its own last finish time, or at the start time of the address in service, whichever is later.
    Members of one address are served first come, first served. So a small request waits for one request of each other
    address, not for the ten thousand connections that an address may have.
    """

    __slots__ = ("_begun", "_count", "_ends", "_heap", "_lined_up", "_taken", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, dict[MemberT, float]] = {}
        # One entry for each address with waiting members, except the address in service. An entry may be stale.
        self._heap: list[tuple[float, int, str]] = []
        self._lined_up: set[str] = set()
        self._ends: dict[str, float] = {}
        self._begun = 0.0
        self._count = 0
        self._taken: str | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, member: MemberT, address: str, since: float) -> bool:
        """Add a waiting member. Return False if the member is waiting already.

        Args:
            member: the member, such as a connection.
            address: the address whose share the member uses.
            since: time since when the member waits; `take` returns it.
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
        """Remove and return the next member and its waiting time's start. Call `charge` before the next `take`.

        Raises:
            IndexError: no member waits.
        """
        while True:
            self._begun, _, address = heappop(self._heap)
            self._lined_up.discard(address)
            members = self._waiting.get(address)
            if members is None:  # its members have left
                continue
            member = next(iter(members))
            since = members.pop(member)
            if not members:
                del self._waiting[address]
            self._taken = address
            return member, since

    def charge(self, cost_s: float) -> None:
        """Charge the seconds that serving the last taken member has cost to its address."""
        address, self._taken = self._taken, None
        if address is None:
            return
        self._ends[address] = self._begun + cost_s
        if address in self._waiting:
            self._push(address)
        elif not self._waiting:  # no member waits, so shares need no balancing
            self._heap.clear()
            self._lined_up.clear()
            self._ends.clear()
            self._begun = 0.0

    def leave(self, member: MemberT, address: str) -> None:
        """Remove a disconnected member if it waits.

        Args:
            member: the member.
            address: the address it was added with.
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
