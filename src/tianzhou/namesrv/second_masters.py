"""Two brokers that are both the master of one name: which of them keeps the place (docs/adr/0024). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.wire.mastership import Mastership

FORGET_MS: Final = 5_000
"""ms after its last trial for which a refused master counts as alive; a broker of ours tries again every second."""
MOST: Final = 1_000
"""Maximum number of refused masters to remember. The oldest one is forgotten when one more comes."""


def may_replace(holder: Mastership | None, claimant: Mastership) -> bool:
    """Return whether a broker may take the place of a living master of its name at another address.

    Only the next leader of the same DLedger group may: a broker that was held up does not unregister when others elect
    another leader. A leader that was elected by a list of its own members alone is not the group's next leader: its
    list has no majority of the members that the present master knows.

    Args:
        holder: right of the present master; None when it does not say.
        claimant: right of the other one.
    """
    if not claimant.group or len(claimant.members) < 2:
        return False
    if holder is None:
        return True
    if holder.group != claimant.group or claimant.term <= holder.term:
        return False
    if holder.group_id and claimant.group_id and holder.group_id != claimant.group_id:
        return False
    return 2 * len(claimant.members & holder.members) > len(holder.members)


@dataclass(slots=True)
class _Refused:
    address: str
    at_ms: int


class SecondMasters:
    """Masters that were refused because another one of their name is alive."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str], _Refused] = {}

    def refused(self, cluster: str, name: str, address: str, now_ms: int) -> bool:
        """Note a refused master; return whether it is a new one, to be logged.

        Args:
            cluster: of the broker.
            name: of the broker.
            address: of the refused one.
            now_ms: monotonic time.
        """
        is_new = self.other(cluster, name, now_ms) != address
        self._refused.pop((cluster, name), None)
        while len(self._refused) >= MOST:
            del self._refused[next(iter(self._refused))]
        self._refused[cluster, name] = _Refused(address, now_ms)
        return is_new

    def other(self, cluster: str, name: str, now_ms: int) -> str:
        """Return the address of the master that was refused lately; empty when there is none."""
        found = self._refused.get((cluster, name))
        return "" if found is None or now_ms - found.at_ms > FORGET_MS else found.address
