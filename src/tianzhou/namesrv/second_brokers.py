"""Decision between two living brokers with one name and id: which of them stays registered (docs/adr/0024). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.wire.mastership import Mastership

FORGET_MS: Final = 5_000
"""Time in ms after its last attempt for which a refused broker counts as alive. Tianzhou's brokers retry every
second."""
MOST: Final = 1_000
"""Maximum number of refused brokers to remember. The oldest one is dropped when one more arrives."""


def may_replace(holder: Mastership | None, claimant: Mastership | None) -> bool:
    """Whether a broker may replace a living one with its name and id at another address.

    Only the next leader of the same DLedger group may. A stalled broker does not unregister when the others elect a new
    leader. A leader that was elected only by its own list of members is not the group's next leader: that list has no
    majority of the members that the present master knows.

    Args:
        holder: claim of the present broker; None for a broker of Apache, which sends none.
        claimant: claim of the new broker; None for a broker of Apache.
    """
    if claimant is None:
        # Apache's broker may be the next leader of a DLedger group. A broker of Tianzhou without a group has no
        # successor.
        return holder is None or bool(holder.group)
    if not claimant.group or len(claimant.members) < 2:
        return False
    if holder is None:
        return True
    if holder.group != claimant.group or claimant.term <= holder.term:
        return False
    if holder.group_id and claimant.group_id and holder.group_id != claimant.group_id:
        return False
    return 2 * len(claimant.members & holder.members) > len(holder.members)


Place = tuple[str, str, int]
"""Cluster, name and id of a broker."""


@dataclass(slots=True)
class _SecondRefused:
    address: str
    at_ms: int


class SecondBrokers:
    """Brokers that were refused because another broker with their name and id is alive."""

    def __init__(self) -> None:
        self._refused: dict[Place, _SecondRefused] = {}

    def refused(self, place: Place, address: str, now_ms: int) -> bool:
        """Record a refused broker, and return whether it is a new one that should be logged.

        Args:
            place: cluster, name and id of the broker.
            address: address of the refused broker.
            now_ms: monotonic time.
        """
        is_new = self.other(place, now_ms) != address
        self._refused.pop(place, None)
        while len(self._refused) >= MOST:
            del self._refused[next(iter(self._refused))]
        self._refused[place] = _SecondRefused(address, now_ms)
        return is_new

    def other(self, place: Place, now_ms: int) -> str:
        """Return the address of the recently refused broker; empty when there is none."""
        found = self._refused.get(place)
        return "" if found is None or now_ms - found.at_ms > FORGET_MS else found.address
