"""The history of a run: sends and answers, consumed messages, commits and faults, with step and virtual time.

It contains exactly the events that the checkers use. A digest of all of them, and of every packet and connection,
identifies the run: two runs of one seed are equal when their digests are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple


class QueuePlace(NamedTuple):
    """A queue of a broker."""

    broker: str
    topic: str
    queue: int


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """An event of a run.

    Attributes:
        step: number of callbacks that the loop had run before.
        at_s: virtual time.
    """

    step: int
    at_s: float

    def line(self) -> str:
        """Return the event as text, for traces and the digest."""
        what = " ".join(
            f"{field.name}={_word(getattr(self, field.name))}"
            for field in fields(self)
            if field.name not in {"step", "at_s"}
        )
        return f"{self.step:>7} {self.at_s:>10.4f} {type(self).__name__.lower():<9} {what}"


@dataclass(frozen=True, slots=True)
class Sent(HistoryEvent):
    """A producer started to send a message."""

    message: str
    writer: str


@dataclass(frozen=True, slots=True)
class Acked(HistoryEvent):
    """A producer got an answer; `status` is that of `SendStatus`."""

    message: str
    status: str
    place: QueuePlace
    offset: int


@dataclass(frozen=True, slots=True)
class Refused(HistoryEvent):
    """A send failed with an error; the message may be stored or not."""

    message: str
    error: str


@dataclass(frozen=True, slots=True)
class Consumed(HistoryEvent):
    """A handler was called.

    Attributes:
        attempt: how often the message was sent back before.
    """

    message: str
    group: str
    member: str
    place: QueuePlace
    offset: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Committed(HistoryEvent):
    """A member of a group asked a broker to store an offset."""

    group: str
    member: str
    place: QueuePlace
    offset: int


@dataclass(frozen=True, slots=True)
class Stored(HistoryEvent):
    """A broker has stored an offset for a group.

    Attributes:
        life: the broker, with the number of its life.
    """

    life: str
    group: str
    place: QueuePlace
    offset: int


@dataclass(frozen=True, slots=True)
class Ended(HistoryEvent):
    """A client died, with its outstanding calls."""

    client: str


@dataclass(frozen=True, slots=True)
class Fault(HistoryEvent):
    """A fault began or ended."""

    what: str


@dataclass(frozen=True, slots=True)
class PowerLoss(Fault):
    """A machine lost its power, and the data that its disk did not have."""


@dataclass(frozen=True, slots=True)
class Rot(HistoryEvent):
    """A bit of a log has flipped."""

    what: str


@dataclass(frozen=True, slots=True)
class Leads(HistoryEvent):
    """A member of a DLedger group became its leader.

    Attributes:
        foreign: number of foreign entries (`Foreign`) in the member's log.
    """

    group: str
    term: int
    member: str
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Serves(HistoryEvent):
    """A leader of a DLedger group began or stopped to answer for it, by a death or a stop too."""

    group: str
    term: int
    member: str
    serving: bool


@dataclass(frozen=True, slots=True)
class Agreed(HistoryEvent):
    """A member of a DLedger group reported an entry as committed.

    Attributes:
        content: digest of the entry.
    """

    group: str
    member: str
    index: int
    content: str


@dataclass(frozen=True, slots=True)
class Foreign(HistoryEvent):
    """Another group, or another life of the group, has committed an entry that the group never had.

    Attributes:
        content: digest of the entry.
    """

    index: int
    content: str


@dataclass(frozen=True, slots=True)
class Exchanged(HistoryEvent):
    """An operator exchanged the whole folder of a member that does not run.

    Attributes:
        kind: where the new folder comes from, one of `faults.KINDS`; `empty` also for a member that is reset.
    """

    member: str
    kind: str


@dataclass(frozen=True, slots=True)
class Joined(HistoryEvent):
    """A member whose folder was exchanged has the group's log again."""

    member: str


@dataclass(frozen=True, slots=True)
class Halted(HistoryEvent):
    """A member follows no further.

    Attributes:
        why: the reason that the member reports; empty when the member follows again.
    """

    member: str
    why: str


@dataclass(frozen=True, slots=True)
class Log(HistoryEvent):
    """A line that a program logged; only when the trace is requested."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Remains:
    """The final content of a broker.

    Attributes:
        server: the machine.
        broker: its name for clients.
        is_master: whether producers send messages to it.
        queues: the messages of each queue with their offsets, in order.
        log_begin: log offset where the commit log begins.
        log_end: log offset where it ends.
        log: digest of the commit log.
    """

    server: str
    broker: str
    is_master: bool
    queues: dict[QueuePlace, list[tuple[int, str]]]
    log_begin: int
    log_end: int
    log: bytes


class History:
    """The history of a run, see the module.

    Args:
        clock: returns step and virtual time.

    Attributes:
        events: in their order.
        bodies: body of every message ever sent, by name.
        remains: final content of the brokers.
        pending: sends without an answer yet.
        foreign: digests of the entries of `Foreign`.
    """

    def __init__(self, clock: Callable[[], tuple[int, float]]) -> None:
        self._clock = clock
        self._digest = hashlib.blake2b(digest_size=8)
        self.events: list[HistoryEvent] = []
        self.bodies: dict[str, bytes] = {}
        self.remains: list[Remains] = []
        self.pending: dict[str, Sent] = {}
        self.foreign: set[str] = set()
        self.notes: list[str] | None = None
        """Every packet as text; None unless the trace is requested."""

    def add(self, kind: Callable[..., HistoryEvent], *values: object) -> None:
        """Record an event at the present time."""
        event = kind(*self._clock(), *values)
        self.events.append(event)
        if isinstance(event, Sent):
            self.pending[event.message] = event
        elif isinstance(event, Acked | Refused):
            self.pending.pop(event.message, None)
        elif isinstance(event, Ended):
            self.pending = {name: sent for name, sent in self.pending.items() if sent.writer != event.client}
        elif isinstance(event, Foreign):
            self.foreign.add(event.content)
        if not isinstance(event, Log):
            self._digest.update(event.line().encode())

    def note(self, text: str) -> None:
        """Add a text to the digest that checkers do not need."""
        step, at_s = self._clock()
        line = f"{step} {at_s:.7f} {text}"
        self._digest.update(line.encode())
        if self.notes is not None:
            self.notes.append(line)

    @property
    def digest(self) -> str:
        """Digest of all events so far."""
        return self._digest.hexdigest()


def _word(value: object) -> str:
    if isinstance(value, QueuePlace):
        return f"{value.broker}/{value.topic}/{value.queue}"
    text = str(value)
    return text if " " not in text else repr(text)
