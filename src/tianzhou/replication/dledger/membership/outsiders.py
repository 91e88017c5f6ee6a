"""Members that a node's list does not name and that speak to it as to one of theirs (docs/adr/0024). Pure.

A list with itself alone, or without members that live, lets a node be elected beside the leader of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tianzhou.wire.bodies.dledger import HeartBeatRequest, PushRequest, Request, StretchRequest, VoteRequest

LEAST_REQUESTS: Final = 3
"""Number of requests of an outsider that are evidence, so that one forged packet changes nothing."""
MOST: Final = 16
"""Maximum number of outsiders to remember. The one that was heard longest ago is forgotten when one more speaks."""
_FROM_MEMBERS: Final = (VoteRequest, HeartBeatRequest, PushRequest, StretchRequest)


def outside_ids(
    request: Request, *, group: str, self_id: str, members: Collection[str], is_foreign: bool = False
) -> set[str]:
    """Return the ids that a request of this node's group names and that this node's list does not have.

    Args:
        request: what came.
        group: name of this node's group.
        self_id: id of this node.
        members: ids in this node's list.
        is_foreign: whether the request carries the identity of another group, whose members do not count.
    """
    if is_foreign or request.group != group or not isinstance(request, _FROM_MEMBERS):
        return set()
    sender = request.local_id or request.leader_id
    if not sender or sender == self_id:
        return set()
    return {one for one in (sender, request.remote_id) if one and one not in members}


def may_be_disjoint(members: int, outsiders: int, *, leads: bool) -> bool:
    """Return whether a majority of a list may have no member in common with a majority of the outsiders' list.

    Only then two leaders could serve at once. An outsider that leads has a majority behind it that says nothing to this
    node. The list of candidates is taken to be all members that are heard: a group of three that hears of a fourth
    member before its own lists have it goes on. A list of one member has no majority in common with any.

    Args:
        members: how many the list has.
        outsiders: how many others are heard.
        leads: whether one of these is a leader.
    """
    if not outsiders:
        return False
    everybody = members + outsiders
    return leads or members == 1 or (members // 2 + 1) + (everybody // 2 + 1) <= everybody


@dataclass(slots=True)
class _Heard:
    first_ms: int
    last_ms: int
    requests: int = 0
    leads: bool = False


class Outsiders:
    """Outsiders that were heard lately.

    Args:
        span_ms: least time between the first and the last request that are evidence.
        quiet_ms: an outsider that was not heard for so long is forgotten.
    """

    def __init__(self, span_ms: int, quiet_ms: int) -> None:
        self._span_ms = span_ms
        self._quiet_ms = quiet_ms
        self._heard: dict[str, _Heard] = {}

    def heard(self, names: Collection[str], now_ms: int, *, leads: bool) -> None:
        """Note a request.

        Args:
            names: ids that it names and the list does not have.
            now_ms: the time.
            leads: whether only a leader sends such requests.
        """
        for name in names:
            found = self._heard.pop(name, None)
            if found is None or now_ms - found.last_ms > self._quiet_ms:
                found = _Heard(now_ms, now_ms)
            found.last_ms, found.requests, found.leads = now_ms, found.requests + 1, leads
            while len(self._heard) >= MOST:
                del self._heard[next(iter(self._heard))]
            self._heard[name] = found

    def present(self, now_ms: int) -> dict[str, bool]:
        """Return the ids of those whose requests are evidence now, and whether each leads."""
        return {
            name: found.leads
            for name, found in self._heard.items()
            if now_ms - found.last_ms <= self._quiet_ms
            and found.requests >= LEAST_REQUESTS
            and found.last_ms - found.first_ms >= self._span_ms
        }
