"""Checkers of members that restart with other folders: pure functions over the history of a run."""

from __future__ import annotations

from collections.abc import Iterator

from tianzhou.testing.simulation.checkers import Problem
from tianzhou.testing.simulation.faults import FOREIGN
from tianzhou.testing.simulation.history import Agreed, Exchanged, Halted, History, Joined, Leads


def folder_problems(history: History) -> list[Problem]:
    """Return the problems of exchanged folders."""
    return [*followed(history), *halted(history)]


def followed(history: History) -> Iterator[Problem]:
    """Yield members that lead with foreign entries, or take them for committed without a foreign folder."""
    holders: set[str] = set()
    for event in history.events:
        if isinstance(event, Exchanged):
            (holders.add if event.kind in FOREIGN else holders.discard)(event.member)
        elif isinstance(event, Leads) and event.foreign:
            text = f"{event.member} leads in term {event.term} with {event.foreign} foreign entries"
            yield Problem(event.step, "followed", text)
        elif isinstance(event, Agreed) and event.content in history.foreign and event.member not in holders:
            text = f"{event.member} takes the foreign entry {event.content} for committed, as entry {event.index}"
            yield Problem(event.step, "followed", text)


def halted(history: History) -> Iterator[Problem]:
    """Yield members that follow no further although nobody exchanged their folders."""
    exchanged: set[str] = set()
    for event in history.events:
        if isinstance(event, Exchanged):
            exchanged.add(event.member)
        elif isinstance(event, Joined):
            exchanged.discard(event.member)
        elif isinstance(event, Halted) and event.why and event.member not in exchanged:
            yield Problem(event.step, "halted", f"{event.member} follows no further: {event.why}")
