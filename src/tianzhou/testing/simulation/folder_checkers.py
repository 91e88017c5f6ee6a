"""Checkers of members that restart with other folders: pure functions over the history of a run."""

from __future__ import annotations

from collections.abc import Iterator

from tianzhou.testing.simulation.checkers import Violation
from tianzhou.testing.simulation.faults import FOREIGN
from tianzhou.testing.simulation.history import Agreed, Exchanged, Halted, History, Joined, Leads


def folder_problems(history: History) -> list[Violation]:
    """Return the problems of exchanged folders."""
    return [*followed(history), *halted(history)]


def followed(history: History) -> Iterator[Violation]:
    """Yield members that lead with foreign entries, or report them as committed without a foreign folder."""
    holders: set[str] = set()
    for event in history.events:
        if isinstance(event, Exchanged):
            (holders.add if event.kind in FOREIGN else holders.discard)(event.member)
        elif isinstance(event, Leads) and event.foreign:
            text = f"{event.member} leads in term {event.term} with {event.foreign} foreign entries"
            yield Violation(event.step, "followed", text)
        elif isinstance(event, Agreed) and event.content in history.foreign and event.member not in holders:
            text = f"{event.member} takes the foreign entry {event.content} for committed, as entry {event.index}"
            yield Violation(event.step, "followed", text)


def halted(history: History) -> Iterator[Violation]:
    """Yield members that follow no further without an exchange of their folders."""
    exchanged: set[str] = set()
    for event in history.events:
        if isinstance(event, Exchanged):
            exchanged.add(event.member)
        elif isinstance(event, Joined):
            exchanged.discard(event.member)
        elif isinstance(event, Halted) and event.why and event.member not in exchanged:
            yield Violation(event.step, "halted", f"{event.member} follows no further: {event.why}")
