"""The guarantees of a run, whatever its faults: pure functions over the history of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tianzhou.testing.simulation.history import (
    Acked,
    Agreed,
    Committed,
    Consumed,
    Ended,
    Fault,
    History,
    HistoryEvent,
    Leads,
    PowerLoss,
    QueuePlace,
    Refused,
    Remains,
    Rot,
    Sent,
    Serves,
    Stored,
)

ANSWER_S: Final = 20.0
"""Maximum seconds until the answer to a send, which may be an error: the producer's limit and a little more."""
REST_S: Final = 45.0
"""Seconds after the last fault during which members of a group may still disagree about their queues."""
START_S: Final = 5.0
SLACK_S: Final = 1.0
"""Seconds beyond its limit that a deposed leader may still answer."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of a guarantee.

    Attributes:
        step: step of the event that shows it.
        checker: name of the violated guarantee.
        text: description.
    """

    step: int
    checker: str
    text: str


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantees of a run.

    Attributes:
        statuses: acknowledgements with these statuses are never lost.
        groups: consumer groups that get every message.
        orderly: the groups that get the messages of a queue in order.
        excused: why replicas may differ; empty when they may not.
        wait_s: seconds that members of a group wait for a silent leader.
    """

    statuses: frozenset[str]
    groups: Collection[str]
    orderly: Collection[str]
    excused: str = ""
    wait_s: float = 6.0


def problems(history: History, promise: Promise) -> list[Violation]:
    """Return all violations, in the order of the steps that show them."""
    found = [
        *lost(history, promise),
        *phantoms(history),
        *places(history, promise),
        *order(history, promise),
        *skipped(history, promise),
        *commits(history, promise),
        *steps_back(history),
        *leaders(history),
        *alone(history, promise),
        *agreed(history),
        *replicas(history, promise),
        *undelivered(history, promise),
        *unanswered(history),
    ]
    return sorted(found, key=lambda problem: problem.step)


def final(history: History) -> dict[str, Remains]:
    """Return the final content of each broker: its master's, or its slave's when there is no master."""
    found: dict[str, Remains] = {}
    for one in history.remains:
        if one.is_master or one.broker not in found:
            found[one.broker] = one
    return found


def _where(history: History) -> dict[QueuePlace, dict[int, str]]:
    return {place: dict(rows) for one in final(history).values() for place, rows in one.queues.items()}


def rotten(history: History) -> set[tuple[QueuePlace, int]]:
    """Return places of messages lost to flipped bits; none when there are more places than flips."""
    flips = sum(isinstance(event, Rot) for event in history.events)
    if not flips:
        return set()
    where = _where(history)
    # A lost last record of a queue leaves its offset to the next message.
    found = {
        (event.place, event.offset)
        for event in history.events
        if isinstance(event, Acked) and where.get(event.place, {}).get(event.offset) != event.message
    }
    for place, rows in where.items():
        between = range(min(rows, default=0), max(rows, default=-1))
        found |= {(place, offset) for offset in between if offset not in rows}
    return found if len(found) <= flips else set()


def excusable(history: History, promise: Promise) -> set[tuple[QueuePlace, int]]:
    """Return places that may lack their message in the end: `rotten` ones, and places without a guarantee.

    A message with another status, on a disk that refused to sync, may be lost in a power failure while a later one
    stays. So may a message without an answer that no consumer got.
    """
    where = _where(history)
    return (
        rotten(history)
        | _unanswered_gaps(history, where)
        | {
            (event.place, event.offset)
            for event in history.events
            if isinstance(event, Acked)
            and event.status not in promise.statuses
            and event.offset not in where.get(event.place, {})
        }
    )


def _unanswered_gaps(history: History, where: dict[QueuePlace, dict[int, str]]) -> set[tuple[QueuePlace, int]]:
    """Return places without an answer or a consumer before later messages, after a power failure."""
    if not any(isinstance(event, PowerLoss) for event in history.events):
        return set()
    named = {(event.place, event.offset) for event in history.events if isinstance(event, Acked | Consumed)}
    return {
        (place, offset)
        for place, rows in where.items()
        for offset in range(max(rows, default=0))
        if offset not in rows and (place, offset) not in named
    }


def lost(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield acknowledged messages that are not at their acknowledged place in the end."""
    where, excused = _where(history), rotten(history)
    for event in history.events:
        if isinstance(event, Acked) and event.status in promise.statuses:
            if (event.place, event.offset) in excused:
                continue
            found = where.get(event.place, {}).get(event.offset)
            if found != event.message:
                instead = "nothing" if found is None else found
                yield Violation(
                    event.step,
                    "lost",
                    f"{event.message} was acknowledged ({event.status}) at {_text(event.place)} offset {event.offset}; "
                    f"in the end {instead} is there",
                )


def phantoms(history: History) -> Iterator[Violation]:
    """Yield messages in consumers and brokers that no producer sent."""
    for event in history.events:
        if isinstance(event, Consumed) and event.message not in history.bodies:
            yield Violation(event.step, "phantom", f"{event.group} got {event.message}")
    for one in history.remains:
        for place, rows in one.queues.items():
            for offset, message in rows:
                if message not in history.bodies:
                    yield Violation(
                        _end(history), "phantom", f"{_text(place)} offset {offset} of {one.server}: {message}"
                    )


def places(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield offsets with two messages, and offsets of a queue without a message."""
    named: dict[tuple[QueuePlace, int], str] = {}
    rows: list[tuple[int, QueuePlace, int, str]] = []
    for event in history.events:
        if isinstance(event, Acked):
            if event.status in promise.statuses:
                rows.append((event.step, event.place, event.offset, event.message))
        elif isinstance(event, Consumed) and not event.attempt:
            rows.append((event.step, event.place, event.offset, event.message))
    end, excused = _end(history), excusable(history, promise)
    for one in history.remains:
        for place, found in one.queues.items():
            rows += [(end, place, offset, message) for offset, message in found]
            for (before, _), (offset, message) in pairwise(found):
                if any((place, between) not in excused for between in range(before + 1, offset)):
                    yield Violation(
                        end, "places", f"{message} at {_text(place)} offset {offset} of {one.server} follows {before}"
                    )
    for step, place, offset, message in rows:
        before_it = named.setdefault((place, offset), message)
        if before_it != message and (place, offset) not in excused:
            yield Violation(step, "places", f"{_text(place)} offset {offset} is {before_it} and {message}")


def order(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield messages sent after an answer whose offset is not after the answered one in the queue."""
    begun: dict[str, tuple[int, dict[QueuePlace, int]]] = {}
    excused = excusable(history, promise)
    highest: dict[QueuePlace, int] = {}
    for event in history.events:
        if isinstance(event, Sent):
            begun[event.message] = event.step, dict(highest)
        elif isinstance(event, Acked) and event.status in promise.statuses:
            before = begun[event.message][1].get(event.place, -1)
            if event.offset <= before and (event.place, event.offset) not in excused:
                yield Violation(
                    event.step,
                    "order",
                    f"{event.message} is at {_text(event.place)} offset {event.offset}; {before} was acknowledged "
                    "before it was sent",
                )
            highest[event.place] = max(highest.get(event.place, -1), event.offset)


def skipped(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield messages that a group with ordered consumption got before earlier ones."""
    highest: dict[tuple[str, QueuePlace], int] = {}
    excused = excusable(history, promise)
    for event in history.events:
        if isinstance(event, Consumed) and event.group in promise.orderly:
            key = event.group, event.place
            before = highest.get(key, -1)
            while event.offset > before + 1 and (event.place, before + 1) in excused:
                before += 1
            if event.offset > before + 1:
                yield Violation(
                    event.step,
                    "order",
                    f"{event.member} of {event.group} got {event.message}, offset {event.offset} of "
                    f"{_text(event.place)}, before offset {before + 1}",
                )
            highest[key] = max(before, event.offset)


def commits(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield committed or stored offsets for which the group has not got every earlier message."""
    delivered: dict[tuple[str, QueuePlace], set[int]] = {}
    upto: dict[tuple[str, QueuePlace], int] = {}
    excused = excusable(history, promise)
    for event in history.events:
        if isinstance(event, Consumed) and not event.attempt:
            delivered.setdefault((event.group, event.place), set()).add(event.offset)
        elif isinstance(event, Committed | Stored):
            key = event.group, event.place
            known, offset = delivered.get(key, set()), upto.get(key, 0)
            while offset < event.offset and (offset in known or (event.place, offset) in excused):
                offset += 1
            upto[key] = offset
            if offset < event.offset:
                who = f"{event.member} committed" if isinstance(event, Committed) else f"{event.life} stores"
                yield Violation(
                    event.step,
                    "commits",
                    f"{who} offset {event.offset} of {_text(event.place)} for {event.group}, which never got "
                    f"offset {offset}",
                )
                upto[key] = event.offset


def steps_back(history: History) -> Iterator[Violation]:
    """Yield stored offsets that decrease while members agree on their queues and no server loses data."""
    known: dict[tuple[str, str, QueuePlace], int] = {}
    restless_s = START_S
    for event in history.events:
        if isinstance(event, Fault | Ended):
            restless_s = event.at_s + REST_S
        elif isinstance(event, Stored):
            key = event.life, event.group, event.place
            before = known.get(key, -1)
            if event.offset < before and event.at_s > restless_s:
                yield Violation(
                    event.step,
                    "offsets",
                    f"the offset of {event.group} for {_text(event.place)} at {event.life} went back from {before} to "
                    f"{event.offset}",
                )
            known[key] = event.offset


def leaders(history: History) -> Iterator[Violation]:
    """Yield terms with two leaders."""
    known: dict[tuple[str, int], str] = {}
    for event in history.events:
        if isinstance(event, Leads):
            first = known.setdefault((event.group, event.term), event.member)
            if first != event.member:
                yield Violation(
                    event.step, "leaders", f"{first} and {event.member} lead {event.group} in term {event.term}"
                )


def alone(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield former leaders that answer for the group too long after the next leader serves."""
    serving: dict[tuple[str, str], int] = {}
    since: dict[tuple[str, str], tuple[float, str]] = {}

    def over(member: tuple[str, str], step: int, at_s: float) -> Iterator[Violation]:
        begun_s, other = since.pop(member, (at_s, ""))
        if at_s - begun_s > promise.wait_s + SLACK_S:
            yield Violation(
                step, "alone", f"{member[1]} and {other} answered for {member[0]} at once for {at_s - begun_s:.1f} s"
            )

    for event in history.events:
        if isinstance(event, Serves):
            member = event.group, event.member
            if event.serving:
                for other in serving:
                    if other[0] == event.group and other != member:
                        since.setdefault(other, (event.at_s, event.member))
                serving[member] = event.term
            else:
                serving.pop(member, None)
                yield from over(member, event.step, event.at_s)
    for member in list(since):
        yield from over(member, _end(history), history.events[-1].at_s)


def agreed(history: History) -> Iterator[Violation]:
    """Yield indexes of a group's log at which members report different committed entries.

    Foreign entries have their own checker.
    """
    known: dict[tuple[str, int], tuple[str, str]] = {}
    for event in history.events:
        if isinstance(event, Agreed) and event.content not in history.foreign:
            member, content = known.setdefault((event.group, event.index), (event.member, event.content))
            if content != event.content:
                yield Violation(
                    event.step,
                    "agreed",
                    f"entry {event.index} of {event.group} is committed as {content} by {member}, as {event.content} "
                    f"by {event.member}",
                )


def replicas(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield copies of a log that differ in the end."""
    if promise.excused:
        return
    chosen = final(history)
    for one in history.remains:
        first = chosen[one.broker]
        if one is first:
            continue
        if (one.log_begin, one.log_end, one.log) != (first.log_begin, first.log_end, first.log):
            yield Violation(
                _end(history),
                "replicas",
                f"the log of {one.server} ({one.log_begin} to {one.log_end}, {one.log.hex()}) is not that of "
                f"{first.server} ({first.log_begin} to {first.log_end}, {first.log.hex()})",
            )
        elif one.queues != first.queues:
            yield Violation(_end(history), "replicas", f"the queues of {one.server} are not those of {first.server}")


def missing(history: History, promise: Promise) -> dict[str, list[str]]:
    """Return, by group, the stored messages that it never got."""
    delivered: dict[str, set[str]] = {group: set() for group in promise.groups}
    for event in history.events:
        if isinstance(event, Consumed) and event.group in delivered:
            delivered[event.group].add(event.message)
    excused = excusable(history, promise)
    there = {
        message
        for place, rows in _where(history).items()
        for offset, message in rows.items()
        if (place, offset) not in excused
    }
    return {group: sorted(there - known) for group, known in delivered.items() if there - known}


def undelivered(history: History, promise: Promise) -> Iterator[Violation]:
    """Yield groups that did not get every message."""
    for group, messages in missing(history, promise).items():
        first = ", ".join(messages[:3])
        yield Violation(
            _end(history), "undelivered", f"{group} never got {first}{' and others' if len(messages) > 3 else ''}"
        )


def unanswered(history: History) -> Iterator[Violation]:
    """Yield sends without an answer in time."""
    open_sends: dict[str, Sent] = {}
    for event in history.events:
        if isinstance(event, Sent):
            open_sends[event.message] = event
        elif isinstance(event, Acked | Refused):
            begun = open_sends.pop(event.message)
            if event.at_s - begun.at_s > ANSWER_S:
                yield Violation(
                    event.step, "unanswered", f"{event.message} was answered after {event.at_s - begun.at_s:.1f} s"
                )
        elif isinstance(event, Ended):
            open_sends = {name: sent for name, sent in open_sends.items() if sent.writer != event.client}
    for sent in open_sends.values():
        yield Violation(sent.step, "unanswered", f"{sent.message} was never answered")


def _end(history: History) -> int:
    return history.events[-1].step if history.events else 0


def _text(place: QueuePlace) -> str:
    return f"{place.broker}/{place.topic}/{place.queue}"


def around(events: list[HistoryEvent], step: int, before: int = 12) -> list[HistoryEvent]:
    """Return the last relevant events up to a step, the newest last."""
    return [event for event in events if event.step <= step and not isinstance(event, Agreed)][-before:]
