"""The faults of a run and their times, drawn from the seed before the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

MOST: Final = 5
MOST_IN_GROUP: Final = 8
MOST_BESIDE_EXCHANGES: Final = 4
MOST_EXCHANGES: Final = 3
LEADER: Final = "leader"
"""The machine that leads the group when a fault strikes."""
LONGEST_S: Final = 6.0
OLDER: Final = "older"
EMPTY: Final = "empty"
COPY: Final = "another-member"
GROUP: Final = "another-group"
LIFE: Final = "another-life"
NAME: Final = "another-name"
KINDS: Final = (OLDER, EMPTY, COPY, GROUP, LIFE, NAME)
"""Kinds of folders: an older copy of the member's own, an empty one, a copy of another member's, one of another group
of the same name, one of another life of the group, one of a group of another name."""
FOREIGN: Final = frozenset({GROUP, LIFE, NAME})
"""Folders that a stranger has filled."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault.

    Attributes:
        at_s: when it strikes, virtual seconds.
        kind: `kill`, `power`, `restart`, `cut`, `one-way`, `halves`, `slow`, `jump`, `disk`, `leave` or `rot`. Members
            of a group also have `stop`, `alone`, `deaf`, `mute`, `blackout` of all members, and `election`: the leader
            dies, then a voter, and then the elected candidate. An operator makes a `backup` of a folder, has a
            `stranger` fill one, and exchanges one (`folder`).
        machine: the machine that it strikes; `LEADER` for the leader at that time.
        other: the other end of a cut; the kind of a folder.
        for_s: duration in seconds.
        amount: steps until a death, the factor of slowness, or milliseconds; for a `folder`, whether the member is
            killed.
    """

    at_s: float
    kind: str
    machine: str
    other: str = ""
    for_s: float = 0.0
    amount: int = 0

    @property
    def line(self) -> str:
        """The fault as text."""
        text = f"{self.kind} {self.machine}"
        if self.other:
            text += f" {self.other}"
        if self.amount:
            text += f" {self.amount}"
        return f"{text} for {self.for_s:.2f}s" if self.for_s else text


@dataclass(frozen=True, slots=True)
class Mishaps:
    """The possible faults of a scenario.

    Attributes:
        servers: machines that may die, be stopped, or have their clocks set.
        clients: machines of producers and consumers.
        powerless: servers whose machines may lose their power.
        rots: whether bits flip in the log of a server that is down.
        gone: a server that dies at the end and never restarts; empty for none.
        span_s: first and last time of faults.
        grouped: whether the servers are members of a group.
        weak: the only servers that faults strike; empty for all.
        exchanges: whether an operator exchanges whole folders.
    """

    servers: Sequence[str]
    clients: Sequence[str]
    powerless: Sequence[str]
    rots: bool
    gone: str
    span_s: tuple[float, float]
    grouped: bool = False
    weak: Sequence[str] = ()
    exchanges: bool = False


def plan(mishaps: Mishaps, rng: Random) -> list[Planned]:
    """Draw the faults of a run, in the order of their times; one of ten runs has none."""
    if rng.random() < 0.1 and not mishaps.gone:
        return []
    begin_s, end_s = mishaps.span_s
    most, draw = (MOST_IN_GROUP, _one_of_group) if mishaps.grouped else (MOST, _one)
    least = 1
    if mishaps.exchanges:
        # A folder is exchanged while the group is whole.
        least, most = 0, MOST_BESIDE_EXCHANGES
    found = [draw(mishaps, rng, begin_s + rng.random() * (end_s - begin_s)) for _ in range(rng.randint(least, most))]
    if mishaps.exchanges:
        found += _exchanges(mishaps, rng)
    found = [one for one in found if not (one.kind == "leave" and one.machine == mishaps.gone)]
    if mishaps.gone:
        at_s = end_s * (0.3 + 0.7 * rng.random())
        found.append(Planned(at_s, "leave", mishaps.gone, amount=rng.randint(0, 200)))
        others = [one for one in mishaps.servers if one != mishaps.gone]
        if others and rng.random() < 0.5:
            # A failing machine often loses its connections to the others first.
            found.append(Planned(max(at_s - rng.random(), 0), "cut", mishaps.gone, rng.choice(others), for_s=LONGEST_S))
    return sorted(found, key=lambda one: one.at_s)


def _exchanges(mishaps: Mishaps, rng: Random) -> list[Planned]:
    """Draw an operator's work with folders: first copies and a foreign folder, then exchanges."""
    begin_s, end_s = mishaps.span_s
    span_s = end_s - begin_s
    backed = [server for server in mishaps.servers if rng.random() < 0.5]
    found = [Planned(begin_s + rng.random() * span_s / 2, "backup", server) for server in backed]
    choice: list[tuple[str, str]] = []
    if rng.random() < 0.7:
        at_s, server = begin_s + rng.random() * span_s / 5, rng.choice(mishaps.servers)
        kind = rng.choice(sorted(FOREIGN))
        found.append(Planned(at_s, "stranger", server, kind))
        choice = [(server, kind)] * 3
    for _ in range(rng.randint(1, MOST_EXCHANGES)):
        victim = LEADER if rng.random() < 0.4 else rng.choice(mishaps.servers)
        kinds = [(victim, EMPTY), (victim, COPY), *((server, OLDER) for server in backed), *choice]
        server, kind = rng.choice(kinds)
        at_s = begin_s + span_s * (0.35 + 0.65 * rng.random())
        down_s = rng.choice((0.05, 0.5, 2.0))
        found.append(Planned(at_s, "folder", server, kind, for_s=down_s, amount=rng.randint(0, 1)))
    return found


def _one(mishaps: Mishaps, rng: Random, at_s: float) -> Planned:
    server, client = rng.choice(mishaps.servers), rng.choice(mishaps.clients)
    everybody = [*mishaps.servers, *mishaps.clients]
    for_s = rng.random() * LONGEST_S
    draw = rng.random()
    if draw < 0.40:
        if mishaps.powerless and rng.random() < 0.75:
            kind = "disk" if rng.random() < 0.25 else "power"
            return Planned(at_s, kind, rng.choice(mishaps.powerless), for_s=for_s, amount=rng.randint(0, 60))
        kind = "rot" if mishaps.rots and rng.random() < 0.6 else "kill"
        return Planned(at_s, kind, server, for_s=for_s, amount=rng.randint(0, 400))
    if draw < 0.45:
        return Planned(at_s, "restart", server)
    if draw < 0.53:
        return Planned(at_s, "kill", client, for_s=for_s, amount=rng.randint(0, 200))
    if draw < 0.73:
        kind = rng.choice(("cut", "one-way"))
        first, second = rng.sample(everybody, 2) if rng.random() < 0.5 else (server, rng.choice(everybody))
        if first != second:
            return Planned(at_s, kind, first, second, for_s=for_s)
    if draw < 0.81:
        return Planned(at_s, "halves", "", for_s=for_s, amount=rng.getrandbits(len(everybody)))
    if draw < 0.88:
        return Planned(at_s, "slow", "", for_s=for_s, amount=rng.choice((10, 100, 400)))
    ahead_ms = rng.choice((-1, 1)) * rng.choice((50, 2_000, 60_000, 7_200_000))
    return Planned(at_s, "jump", rng.choice(everybody), amount=ahead_ms)


def _one_of_group(mishaps: Mishaps, rng: Random, at_s: float) -> Planned:
    servers = mishaps.weak or mishaps.servers
    # Faults of the leader find most errors of a group.
    victim = LEADER if not mishaps.weak and rng.random() < 0.5 else rng.choice(servers)
    everybody = [*mishaps.servers, *mishaps.clients]
    for_s = rng.random() * LONGEST_S
    draw = rng.random()
    if draw < 0.32:
        if mishaps.powerless and rng.random() < 0.6:
            kind = "disk" if rng.random() < 0.25 else "power"
            return Planned(at_s, kind, victim, for_s=for_s, amount=rng.randint(0, 60))
        return Planned(at_s, "kill", victim, for_s=for_s, amount=rng.randint(0, 400))
    if draw < 0.37:
        return Planned(at_s, "restart", victim)
    if draw < 0.41 and not mishaps.weak:
        return Planned(at_s, "election", LEADER, for_s=for_s / 10, amount=rng.getrandbits(12))
    if draw < 0.45:
        return Planned(at_s, "stop", victim, for_s=for_s * rng.choice((0.3, 1, 2)))
    if draw < 0.50:
        return Planned(at_s, "kill", rng.choice(mishaps.clients), for_s=for_s, amount=rng.randint(0, 200))
    if draw < 0.64:
        return Planned(at_s, rng.choice(("alone", "deaf", "mute")), victim, for_s=for_s * rng.choice((1, 2)))
    if draw < 0.78:
        first = rng.choice(servers)
        second = rng.choice([one for one in (mishaps.servers if rng.random() < 0.7 else everybody) if one != first])
        return Planned(at_s, rng.choice(("cut", "one-way")), first, second, for_s=for_s)
    if draw < 0.87 and not mishaps.weak:
        if rng.random() < 0.5:
            return Planned(at_s, "blackout", "", for_s=for_s, amount=int(bool(mishaps.powerless)))
        return Planned(at_s, "halves", "", for_s=for_s, amount=rng.getrandbits(len(everybody)))
    if draw < 0.93:
        return Planned(at_s, "slow", "", for_s=for_s, amount=rng.choice((10, 100, 400)))
    ahead_ms = rng.choice((-1, 1)) * rng.choice((50, 2_000, 60_000, 7_200_000))
    return Planned(at_s, "jump", rng.choice(everybody), amount=ahead_ms)
