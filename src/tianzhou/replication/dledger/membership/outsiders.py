"""Outsiders: members of the group that contact a node whose list lacks them (docs/adr/0024). Pure.

A list with only the node itself, or without live members, lets a node be elected beside the leader of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tianzhou.wire.bodies.dledger import HeartBeatRequest, PushRequest, Request, StretchRequest, VoteRequest

LEAST_REQUESTS: Final = 3
"""Minimum number of requests of an outsider that are evidence, so that one forged packet changes nothing."""
MOST: Final = 16
"""Maximum number of outsiders to remember. A new one replaces the one heard longest ago."""
_FROM_MEMBERS: Final = (VoteRequest, HeartBeatRequest, PushRequest, StretchRequest)


def outside_ids(
    request: Request, *, group: str, self_id: str, members: Collection[str], is_foreign: bool = False
) -> set[str]:
    """Return the ids in a request of this node's group that this node's list does not contain.

    Args:
        request: the request.
        group: name of this node's group.
        self_id: id of this node.
        members: ids in this node's list.
        is_foreign: whether the request has the identity of another group, whose members do not count.
    """
    if is_foreign or request.group != group or not isinstance(request, _FROM_MEMBERS):
        return set()
    sender = request.local_id or request.leader_id
    if not sender or sender == self_id:
        return set()
    return {one for one in (sender, request.remote_id) if one and one not in members}


def may_be_disjoint(members: int, outsiders: int, *, leads: bool) -> bool:
    """Return whether a majority of a list may have no member in common with a majority of the outsiders' list.

    Only then could two leaders serve at once. An outsider that leads has a majority that does not contact this node.
    The list of outside candidates is assumed to be all members that were heard. So a group of three that hears of a
    fourth member before its own lists contain it keeps running. A list of one member shares a majority with no list.

    Args:
        members: number of members in the list.
        outsiders: number of outsiders that were heard.
        leads: whether one of the outsiders is a leader.
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
    """Outsiders that were heard recently.

    Args:
        span_ms: minimum time between the first and the last request that are evidence.
        quiet_ms: silence after which an outsider is forgotten.
    """

    def __init__(self, span_ms: int, quiet_ms: int) -> None:
        self._span_ms = span_ms
        self._quiet_ms = quiet_ms
        self._heard: dict[str, _Heard] = {}

    def heard(self, names: Collection[str], now_ms: int, *, leads: bool) -> None:
        """Note a request.

        Args:
            names: ids in the request that the list does not contain.
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
        """Return the ids of the outsiders whose requests are evidence now, and whether each leads."""
        return {
            name: found.leads
            for name, found in self._heard.items()
            if now_ms - found.last_ms <= self._quiet_ms
            and found.requests >= LEAST_REQUESTS
            and found.last_ms - found.first_ms >= self._span_ms
        }
