"""Records of staging in the log: units, notes about them, and published messages (docs/adr/0006)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tianzhou.broker.delays.delay import NO_TIMERS, put_off, wanted_level
from tianzhou.broker.staging.log_entries import (
    Decided,
    Forgotten,
    Note,
    OpenAttempt,
    Published,
    PublishedEverywhere,
    StagingSnapshot,
    UndecidableAttempts,
    WriterState,
)
from tianzhou.broker.staging.staging import StagedUnit, Unit
from tianzhou.errors import ProtocolError
from tianzhou.model import names
from tianzhou.records.checksum import Octets
from tianzhou.records.codec import Record
from tianzhou.records.layout import INNER_BATCH_BITS, TRANSACTION_BITS
from tianzhou.store.results import NewRecord
from tianzhou.wire.bodies.beans import INTEGER, TEXT, Bean, list_of, map_of
from tianzhou.wire.bodies.staging import ATTEMPT as STAGED_ATTEMPT
from tianzhou.wire.bodies.staging import ATTEMPTS, DECISION, AttemptList, BatchDecision
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import MAX_BYTES, decode_properties, encode_properties
from tianzhou.wire.staging import StagedMessage

QUEUE: Final = 0
"""Id of the only queue of units, and of notes."""
PART_BYTES: Final = 1 << 20
"""Maximum bytes of a record of a snapshot.

A longer snapshot, or a longer state of one writer, takes several consecutive records.
"""
_FRAME: Final = 512
"""Bytes of a snapshot's record without the writers."""
_UNIT: Final = 64
"""Maximum bytes of a unit in a snapshot, which are three numbers."""

MOST_NAME: Final = 200
"""Maximum characters of the name of a writer or an attempt."""
MOST_BROKER_NAME: Final = 255
MOST_UNITS: Final = 1_000_000
"""Maximum units of one attempt at one broker, which hold about a terabyte."""
MOST_BROKERS: Final = 1_000
MOST_BATCH: Final = (1 << 63) - 1

WRITER: Final = "STAGED_WRITER"
BATCH: Final = "STAGED_BATCH"
ATTEMPT: Final = "STAGED_ATTEMPT"
NUMBER: Final = "STAGED_NUMBER"
COORDINATOR: Final = "STAGED_COORDINATOR"

_TIMERS: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", names.START_DELIVER_TIME)
_ROOM: Final = 300
"""Bytes of properties that a broker may add: its own three, and the target topic and queue of a delayed message."""


def unit_record(unit: StagedUnit, body: bytes, *, born: tuple[int, bytes, int]) -> NewRecord:
    """Return the record of a unit.

    Args:
        unit: the unit; its offsets are not set yet.
        body: the messages, see `tianzhou.wire.staging`.
        born: the task's time, address and port, which its messages get.
    """
    properties = {
        WRITER: unit.writer,
        BATCH: str(unit.batch),
        ATTEMPT: unit.attempt,
        NUMBER: str(unit.unit.number),
        COORDINATOR: unit.coordinator,
    }
    at, host, port = born
    return NewRecord(
        names.STAGED_TOPIC,
        QUEUE,
        body,
        encode_properties(properties),
        born_timestamp=at,
        born_host=host,
        born_port=port,
    )


def unit_of(properties: Octets, offset: int, place: int, stored_ms: int) -> StagedUnit | None:
    """Return the unit that a record of the staged topic describes; None when it is no unit.

    Args:
        properties: the record's properties.
        offset: its queue offset.
        place: its physical offset in the commit log.
        stored_ms: store time, ms.
    """
    pairs = decode_properties(properties)
    batch, number = pairs.get(BATCH, ""), pairs.get(NUMBER, "")
    if not (batch.isdecimal() and number.isdecimal() and ATTEMPT in pairs and WRITER in pairs):
        return None
    return StagedUnit(
        pairs[WRITER],
        int(batch),
        pairs[ATTEMPT],
        pairs.get(COORDINATOR, ""),
        Unit(int(number), offset, place),
        stored_ms,
    )


# notes


@dataclass(slots=True)
class _Line:
    """JSON form of a note."""

    kind: str
    broker_name: str = ""
    decision: BatchDecision | None = None
    attempts: AttemptList | None = None
    writer: str = ""
    batch: int = -1
    writers: list[str] = field(default_factory=list)
    states: list[WriterState] = field(default_factory=list)
    part: int = 0
    parts: int = 0
    next: int = 0


_OPEN: Final = Bean(OpenAttempt, name=TEXT, batch=INTEGER, since_ms=INTEGER, units=list_of(INTEGER))
_STATE: Final = Bean(
    WriterState,
    writer=TEXT,
    coordinator=TEXT,
    touched_ms=INTEGER,
    published=INTEGER,
    decision=DECISION.kind,
    place=INTEGER,
    refused=map_of(TEXT, INTEGER),
    open=list_of(_OPEN.kind),
    everywhere=INTEGER,
    refusals=INTEGER,
    floor=INTEGER,
)
_LINE: Final = Bean(
    _Line,
    kind=TEXT,
    broker_name=TEXT,
    decision=DECISION.kind,
    attempts=ATTEMPTS.kind,
    writer=TEXT,
    batch=INTEGER,
    writers=list_of(TEXT),
    states=list_of(_STATE.kind),
    part=INTEGER,
    parts=INTEGER,
    next=INTEGER,
)


def note_record(note: Note, now_ms: int, host: bytes, port: int) -> NewRecord:
    """Return the record of a note."""
    if isinstance(note, Decided):
        line = _Line("decided", note.broker_name, decision=note.decision)
    elif isinstance(note, Published):
        line = _Line("published", writer=note.writer, batch=note.batch)
    elif isinstance(note, PublishedEverywhere):
        line = _Line("everywhere", writer=note.writer, batch=note.batch)
    elif isinstance(note, UndecidableAttempts):
        line = _Line("discarded" if note.locally else "refused", attempts=note.attempts)
    else:
        line = _Line("forgotten", writers=note.writers)
    return _record(line, now_ms, host, port)


def snapshot_records(
    snapshot: StagingSnapshot, now_ms: int, host: bytes, port: int, most: int = PART_BYTES
) -> list[NewRecord]:
    """Return the records of a snapshot, which must be stored consecutively.

    Args:
        snapshot: the ledger's state.
        now_ms: the time.
        host: address of this broker, 4 or 16 bytes.
        port: port of this broker.
        most: maximum bytes of a record's body.
    """
    chunks: list[list[WriterState]] = [[]]
    room = most - _FRAME
    for state in snapshot.writers:
        for piece in _pieces(state, most // 4):
            size = len(_STATE.dumps(piece)) + 1
            if size > room and chunks[-1]:
                chunks.append([])
                room = most - _FRAME
            chunks[-1].append(piece)
            room -= size
    return [
        _record(
            _Line("snapshot", states=chunk, part=part, parts=len(chunks), next=snapshot.next),
            now_ms,
            host,
            port,
        )
        for part, chunk in enumerate(chunks)
    ]


def _pieces(state: WriterState, most: int) -> Iterator[WriterState]:
    """Yield pieces of a writer's state of limited size, each with a part of its lists; `_merged` joins them."""
    if len(_STATE.dumps(state)) <= most:
        yield state
        return
    decision = state.decision
    attempts = [] if decision is None else decision.attempts
    opened = [part for attempt in state.open for part in _open_pieces(attempt, most)]
    sizes = [
        *(len(STAGED_ATTEMPT.dumps(attempt)) for attempt in attempts),
        *(len(name.encode()) + 24 for name in state.refused),
        *(len(_OPEN.dumps(part)) + 1 for part in opened),
    ]
    refused = list(state.refused.items())
    refused_from, open_from = len(attempts), len(attempts) + len(refused)
    for begin, end in _runs(sizes, most):
        yield replace(
            state,
            decision=None if decision is None else replace(decision, attempts=attempts[begin:end]),
            refused=dict(refused[max(begin - refused_from, 0) : max(end - refused_from, 0)]),
            open=opened[max(begin - open_from, 0) : max(end - open_from, 0)],
        )


def _open_pieces(attempt: OpenAttempt, most: int) -> Iterator[OpenAttempt]:
    """Yield pieces of an attempt of limited size, each with some of its units."""
    room = max(most - len(_OPEN.dumps(replace(attempt, units=[]))), 0)
    step = 3 * max(room // _UNIT, 1)
    for begin in range(0, max(len(attempt.units), 1), step):
        yield replace(attempt, units=attempt.units[begin : begin + step])


def _runs(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of runs of items whose total size is within `most`; a larger item is a run of its own."""
    begin = total = 0
    for index, size in enumerate(sizes):
        if index > begin and total + size > most:
            yield begin, index
            begin, total = index, 0
        total += size
    yield begin, len(sizes)


def _merged(pieces: Iterable[WriterState]) -> list[WriterState]:
    """Return the writers, joined from the pieces of a snapshot."""
    found: dict[str, WriterState] = {}
    for piece in pieces:
        state = found.setdefault(piece.writer, piece)
        if state is piece:
            continue
        if state.decision is not None and piece.decision is not None:
            state.decision.attempts += piece.decision.attempts
        state.refused |= piece.refused
        state.open += piece.open
    return list(found.values())


def _record(line: _Line, now_ms: int, host: bytes, port: int) -> NewRecord:
    return NewRecord(
        names.STAGED_OP_TOPIC,
        QUEUE,
        _LINE.dumps(line),
        encode_properties({names.WAIT: "true", names.TAGS: line.kind}),
        born_timestamp=now_ms,
        born_host=host,
        born_port=port,
        tags_code=tags_code(line.kind),
    )


class StagingHistory:
    """Notes read backwards, from the newest to the last snapshot."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._states: list[WriterState] = []
        self._awaited = -1
        self.snapshot: StagingSnapshot | None = None

    @property
    def notes(self) -> list[Note]:
        """The notes since the snapshot, oldest first."""
        return self._notes[::-1]

    def add(self, record: Record) -> bool:
        """Add the record that precedes the last one added; return whether more are needed.

        Raises:
            ProtocolError: it is no note.
        """
        line = _LINE.loads(record.body)
        if line.kind != "snapshot":
            # Ignore an incomplete snapshot: the broker stopped before it wrote all its records.
            self._awaited, self._states = -1, []
            note = _note_of(line, record)
            if note is None:
                raise ProtocolError(f"a note of kind {line.kind!r}, which this version does not know")
            self._notes.append(note)
            return True
        if line.part == line.parts - 1:
            self._states, self._awaited = [], line.part
        if line.part != self._awaited:
            self._awaited = -1
            return True
        self._states = line.states + self._states
        self._awaited = line.part - 1
        if line.part > 0:
            return True
        self.snapshot = StagingSnapshot(_merged(self._states), line.next)
        return False


def _note_of(line: _Line, record: Record) -> Note | None:
    stored = record.store_timestamp
    if line.kind == "decided" and line.decision is not None:
        place = record.physical_offset
        return Decided(line.decision, line.broker_name, place, place + record.size, stored)
    if line.kind == "published":
        return Published(line.writer, line.batch, stored)
    if line.kind == "everywhere":
        return PublishedEverywhere(line.writer, line.batch)
    if line.kind in ("refused", "discarded") and line.attempts is not None:
        return UndecidableAttempts(line.attempts, line.kind == "discarded", record.physical_offset, stored)
    if line.kind == "forgotten":
        return Forgotten(line.writers, record.physical_offset)
    return None


# requests


def unfit(request: BatchDecision | AttemptList) -> str | None:
    """Return why a request's body is invalid, None when it is valid.

    Args:
        request: the body.
    """
    for what, name in (("writer", request.writer), ("coordinator", request.coordinator)):
        if (text := unfit_name(what, name)) is not None:
            return text
    if not 0 <= request.batch <= MOST_BATCH:
        return f"batch={request.batch}: expected 0 to {MOST_BATCH}"
    seen: set[str] = set()
    for attempt in request.attempts:
        name = attempt if isinstance(attempt, str) else attempt.name
        if (text := unfit_name("attempt", name)) is not None:
            return text
        if name in seen:
            return f"attempt {name} is named twice; its messages would be there twice"
        seen.add(name)
        if isinstance(attempt, str):
            continue
        if len(attempt.units) > MOST_BROKERS:
            return f"attempt {name} has units at {len(attempt.units)} brokers: expected at most {MOST_BROKERS}"
        for broker, count in attempt.units.items():
            if (text := unfit_name("broker", broker)) is not None:
                return text
            if not 0 <= count <= MOST_UNITS:
                return f"attempt {name} has {count} units at broker {broker}: expected 0 to {MOST_UNITS}"
    return None


def unfit_name(what: str, name: str) -> str | None:
    """Return why a name is invalid, None when it is valid.

    Args:
        what: kind of the named thing; names of brokers may be longer than those of writers and attempts.
        name: the name.
    """
    most = MOST_BROKER_NAME if what in ("coordinator", "broker") else MOST_NAME
    if 0 < len(name) <= most and name.isprintable():
        return None
    return f"{what}={name[:40]!r}: expected 1 to {most} printable characters, it has {len(name)}"


# messages


def problem(message: StagedMessage, max_body: int) -> str | None:
    """Return why a message cannot be published, None when it can; it is called before the message is staged.

    Args:
        message: the message.
        max_body: maximum bytes of a body in the store.
    """
    properties = decode_properties(message.properties)
    if not message.body:
        return "the message has no body; send at least one byte"
    if len(message.body) > max_body:
        return f"the body has {len(message.body)} bytes, the limit is maxMessageSize={max_body}"
    room = MAX_BYTES - _ROOM - len(message.topic.encode())
    if len(message.properties) > room:
        return f"the properties have {len(message.properties)} bytes, the limit is {room}; put the data into the body"
    if not properties.get(names.UNIQ_KEY):
        return "the message has no UNIQ_KEY, by which it is known after a restart"
    if properties.get(names.TRAN_MSG, "").lower() == "true":
        return "property TRAN_MSG=true: a staged message cannot be part of another transaction"
    if message.queue_id < 0:
        return f"queueId {message.queue_id}: a staged message names its queue, and ids begin at 0"
    if message.sys_flag & TRANSACTION_BITS:
        return f"sysFlag {message.sys_flag:#x} says transaction (0xC): a staged message cannot be part of another one"
    if names.INNER_NUM in properties or message.sys_flag & INNER_BATCH_BITS:
        return "inner batches (INNER_NUM, sysFlag 0xC0) are the broker's own form"
    if names.INNER_MULTI_DISPATCH in properties:
        return "property INNER_MULTI_DISPATCH: a staged message goes to one queue only"
    timer = next((name for name in _TIMERS if name in properties), None)
    if timer is not None:
        return f"property {timer}: {NO_TIMERS}"
    try:
        wanted_level(properties)
    except ValueError:
        return f"property DELAY={properties[names.DELAY]!r}: expected a delay level"
    return None


def visible(
    message: StagedMessage, unit: Record, tail: bytes, capped: Callable[[int], int], sys_flag: int
) -> NewRecord:
    """Return the record that consumers get for a staged message.

    Args:
        message: the staged message.
        unit: the record with the message. Its physical offset goes into the field of the prepared transaction offset,
            by which a restart finds the published messages.
        tail: properties that the broker adds to every message.
        capped: function that caps a delay level to the existing levels.
        sys_flag: system flag bits of the topic's messages.
    """
    text = message.properties
    if not text.endswith(b"\x02"):
        text += b"\x02"
    text += tail
    properties = decode_properties(text)
    topic, queue_id = message.topic, message.queue_id
    if names.DELAY in properties and (level := wanted_level(properties)) > 0:
        level = capped(level)
        topic, queue_id = put_off(properties, level, topic, queue_id)
        text = encode_properties(properties)
    return NewRecord(
        topic,
        queue_id,
        message.body,
        text,
        message.flag,
        message.sys_flag | sys_flag,
        unit.born_timestamp,
        unit.born_host,
        unit.born_port,
        0,
        unit.physical_offset,
        tags_code(properties.get(names.TAGS)),
        properties.get(names.KEYS, ""),
        properties.get(names.UNIQ_KEY, ""),
    )


def published_keys(records: Iterable[Record], places: set[int]) -> Iterator[str]:
    """Yield the unique keys of records that were published from units at these physical offsets."""
    for record in records:
        if record.prepared_transaction_offset in places and record.topic != names.STAGED_TOPIC:
            yield decode_properties(record.properties).get(names.UNIQ_KEY, "")
