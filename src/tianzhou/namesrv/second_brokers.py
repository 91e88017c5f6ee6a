"""Two living brokers of one name and id: which of them keeps the place (docs/adr/0024). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.wire.mastership import Mastership

FORGET_MS: Final = 5_000
"""ms after its last trial for which a refused broker counts as alive; a broker of ours tries again every second."""
MOST: Final = 1_000
"""Maximum number of refused brokers to remember. The oldest one is forgotten when one more comes."""


def may_replace(holder: Mastership | None, claimant: Mastership | None) -> bool:
    """Return whether a broker may take the place of a living one of its name and id at another address.

    Only the next leader of the same DLedger group may: a broker that was held up does not unregister when others elect
    another leader. A leader that was elected by a list of its own members alone is not the group's next leader: its
    list has no majority of the members that the present master knows.

    Args:
        holder: right of the present broker; None for one of Apache's, which names none.
        claimant: right of the other one; None for one of Apache's.
    """
    if claimant is None:
        # Apache's broker may be the next leader of a group. A broker of ours without a group has no successor.
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
    """Brokers that were refused because another one of their name and id is alive."""

    def __init__(self) -> None:
        self._refused: dict[Place, _SecondRefused] = {}

    def refused(self, place: Place, address: str, now_ms: int) -> bool:
        """Note a refused broker; return whether it is a new one, to be logged.

        Args:
            place: cluster, name and id of the broker.
            address: of the refused one.
            now_ms: monotonic time.
        """
        is_new = self.other(place, now_ms) != address
        self._refused.pop(place, None)
        while len(self._refused) >= MOST:
            del self._refused[next(iter(self._refused))]
        self._refused[place] = _SecondRefused(address, now_ms)
        return is_new

    def other(self, place: Place, now_ms: int) -> str:
        """Return the address of the broker that was refused lately; empty when there is none."""
        found = self._refused.get(place)
        return "" if found is None or now_ms - found.at_ms > FORGET_MS else found.address
