"""What happened: every send and its answer, every message consumed, every commit and fault, with step and virtual time.

What checkers decide from is here, and nothing else is. A digest of all of it, and of every packet and connection,
stands for the whole run: two runs of one seed are the same when their digests are.
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
    """Something that happened.

    Attributes:
        step: callbacks the loop had run by then.
        at_s: virtual time.
    """

    step: int
    at_s: float

    def line(self) -> str:
        """The event in words, for traces and the digest."""
        what = " ".join(
            f"{field.name}={_word(getattr(self, field.name))}"
            for field in fields(self)
            if field.name not in {"step", "at_s"}
        )
        return f"{self.step:>7} {self.at_s:>10.4f} {type(self).__name__.lower():<9} {what}"


@dataclass(frozen=True, slots=True)
class Sent(HistoryEvent):
    """A producer was asked to send a message."""

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
    """A send ended with an error, and the message may be stored or not."""

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
    """The offset that a broker was seen to have stored for a group.

    Attributes:
        life: the broker, and which of its lives.
    """

    life: str
    group: str
    place: QueuePlace
    offset: int


@dataclass(frozen=True, slots=True)
class Ended(HistoryEvent):
    """A client died, and with it what it waited for."""

    client: str


@dataclass(frozen=True, slots=True)
class Fault(HistoryEvent):
    """Something went wrong on purpose, or was mended."""

    what: str


@dataclass(frozen=True, slots=True)
class PowerLoss(Fault):
    """A machine has lost its power, and with it what its disk did not have."""


@dataclass(frozen=True, slots=True)
class Rot(HistoryEvent):
    """A bit of a log has flipped."""

    what: str


@dataclass(frozen=True, slots=True)
class Leads(HistoryEvent):
    """A member of a DLedger group became its leader.

    Attributes:
        foreign: how many foreign entries (`Foreign`) the log of the member has.
    """

    group: str
    term: int
    member: str
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Serves(HistoryEvent):
    """A leader of a DLedger group begins, or ends, to answer for it; one that dies or is stopped ends, too."""

    group: str
    term: int
    member: str
    serving: bool


@dataclass(frozen=True, slots=True)
class Agreed(HistoryEvent):
    """A member of a DLedger group says that an entry is committed.

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
    """A line that a program logged; only when somebody reads the trace."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Remains:
    """What a broker holds in the end.

    Attributes:
        server: the machine.
        broker: its name as clients know it.
        is_master: whether messages are sent to it.
        queues: the messages of each queue with their offsets, in order.
        log: digest of the commit log up to each multiple of 4 KiB, and its end.
    """

    server: str
    broker: str
    is_master: bool
    queues: dict[QueuePlace, list[tuple[int, str]]]
    log_begin: int
    log_end: int
    log: bytes


class History:
    """See the module.

    Args:
        clock: step and virtual time.

    Attributes:
        events: in their order.
        bodies: what every message ever sent consists of.
        remains: what the brokers hold in the end.
        pending: sends that have no answer yet.
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
        """Every packet in words; None while nobody wants to see them."""

    def add(self, kind: Callable[..., HistoryEvent], *values: object) -> None:
        """Note an event that happens now."""
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
        """Let something count for the digest that checkers need not know."""
        step, at_s = self._clock()
        line = f"{step} {at_s:.7f} {text}"
        self._digest.update(line.encode())
        if self.notes is not None:
            self.notes.append(line)

    @property
    def digest(self) -> str:
        """Stands for everything that happened so far."""
        return self._digest.hexdigest()


def _word(value: object) -> str:
    if isinstance(value, QueuePlace):
        return f"{value.broker}/{value.topic}/{value.queue}"
    text = str(value)
    return text if " " not in text else repr(text)
