"""Publication of staged batches exactly once, by notes in the log (docs/adr/0006).

Exactly once depends on the order on the disk: units before the decision, the decision before any message of the batch,
and all messages before the note that they are published. When the process ends in between, the next one finds the
decision and publishes the missing messages before it serves requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tianzhou.broker.messages.admission import added_properties, multi_tag_flag
from tianzhou.broker.messages.put_codes import code_of, remark_of
from tianzhou.broker.services import Services
from tianzhou.broker.staging import staging_records as records
from tianzhou.broker.staging.log_entries import (
    Decided,
    Forgotten,
    Note,
    Published,
    PublishedEverywhere,
    StagingSnapshot,
    UndecidableAttempts,
)
from tianzhou.broker.staging.recovery import find_published, read_history, read_units, still_there
from tianzhou.broker.staging.staging import Publication, StagedUnit, StagingWriter, Unit
from tianzhou.broker.staging.staging_peers import StagingPeers
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.broker.undeliverable.set_aside import REPEATS, message_of
from tianzhou.errors import BrokerError, ProtocolError, TianzhouError
from tianzhou.model import names
from tianzhou.records.codec import Record, decode_record
from tianzhou.remoting.client import RemotingClient
from tianzhou.store.results import OF_BROKER, OF_CLIENTS, AppendPlan, NewRecord, PutResult, PutStatus
from tianzhou.supervision import retrieve_exception, start_awaited
from tianzhou.wire.bodies.staging import AttemptList, BatchDecision
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.properties import encode_properties
from tianzhou.wire.staging import StagedMessage, decode_unit
from tianzhou.wire.undeliverable import SetAsideMessage, UndeliverableWalk

TICK_S = 1.0
SLICE = 256
"""Maximum messages published in one turn of the event loop."""
NOTES_TO_READ = 256
"""Number of notes after which a snapshot is due; a start reads about as many notes."""
UNITS_TO_READ = 1024
"""Number of units after which a snapshot is due; a quarter of the open units when that is more."""
SNAPSHOT_RETRY_S = 60.0
"""Seconds to the next attempt after a snapshot could not be written; notes are written meanwhile."""
SPREAD_S = 3_600.0
"""Seconds between two attempts to have other brokers publish the last batch of a writer that was silent for days."""
DAY_MS = 86_400_000

_log = logging.getLogger(__name__)


class StagingPublisher:
    """The I/O of the ledger of staged messages: log, tasks and requests to other brokers.

    Args:
        services: the broker's services.
        client: reaches name servers and other brokers.
    """

    def __init__(self, services: Services, client: RemotingClient) -> None:
        self._supervisor = services.supervisor
        self._tables = services.tables
        self._ledger = services.tables.staging
        self._store = services.store
        self._stats = services.stats
        self._clock = services.clock
        self._host = services.host
        self._keeper = UndeliverableKeeper(services)
        self._peers = StagingPeers(client, services.tables.settings)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._snapshot_place = -1
        self._notes = self._units = 0
        self._units_to_read = UNITS_TO_READ
        self._snapshot_after = 0.0
        self._spread_after = 0.0

    @property
    def broker_name(self) -> str:
        """Name of this broker in decisions."""
        return self._tables.settings.broker_name

    # the start and the end

    async def load(self) -> None:
        """Rebuild the ledger from the log and publish decided batches; to be awaited before requests are served."""
        began = self._clock.monotonic()
        history = read_history(self._store)
        snapshot = still_there(self._store, history.snapshot or StagingSnapshot())
        self._ledger.restore(snapshot, history.notes, read_units(self._store, snapshot.next))
        pending = self._ledger.publishing()
        find_published(self._store, self._ledger, pending)
        for name in pending:
            try:
                await self._publish(name)
            except (TianzhouError, OSError) as error:
                # Continue the start, because a full disk must not prevent it.
                _log.error("staging: the batch of writer %s is not all published, to be tried again: %s", name, error)
        if self._ledger:
            self._take_snapshot()
            _log.info(
                "staging: %d writers, %d batches published on starting (%.2f s)",
                len(self._ledger), len(pending), self._clock.monotonic() - began,
            )  # fmt: skip

    async def close(self) -> None:
        """Cancel running publications; the next start resumes them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # operations for request handlers

    def stage(self, unit: StagedUnit, record: NewRecord) -> PutResult:
        """Store a unit, set its offsets in `unit`, and add it to the ledger.

        Raises:
            BrokerError: the store does not take it.
        """
        result = self._append(record, OF_CLIENTS)
        place = Unit(unit.unit.number, result.queue_offset, result.physical_offset)
        unit.unit, unit.stored_ms = place, result.store_timestamp
        self._ledger.staged(unit)
        self._units += 1
        if self._units >= self._units_to_read:
            self._take_snapshot()
        return result

    async def decide(self, wanted: BatchDecision) -> BatchDecision:
        """Return the decision about a batch; when there is none, store the requested one.

        Returns:
            The decision; that of a later batch when the writer has already decided one.

        Raises:
            BrokerError: the decision names attempts that were refused or lack units here.
        """
        while True:
            writer = await self._before(wanted)
            if writer is None or not writer.decided < wanted.batch or not self._ledger.elsewhere(wanted.writer):
                break
            await self._publish_elsewhere(writer)
        if writer is None or writer.decided < wanted.batch:
            refused = self._ledger.refused_of(wanted)
            if refused:
                raise BrokerError(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"batch {wanted.batch} of writer {wanted.writer}: the attempts {', '.join(refused)} were given up "
                    "(aborted, or not decided within stagedMessageTimeOut); run the batch again",
                )
            writer = self._take(wanted)
        await self._store.secure(writer.decided_end)
        assert writer.decision is not None
        if writer.publication is not None:
            self._start(wanted.writer)
        return writer.decision

    async def publish(self, decision: BatchDecision, patience_s: float, *, everywhere: bool = False) -> bool:
        """Publish the units of a decided batch that are at this broker.

        Args:
            decision: the coordinator's decision.
            patience_s: maximum seconds to wait for the publication.
            everywhere: whether all other brokers have published the batch.

        Returns:
            Whether all its messages are in their queues.

        Raises:
            BrokerError: the batch lacks units here, or the store rejects the records.
        """
        writer = await self._before(decision)
        if everywhere:
            self._published_everywhere(decision)
        if writer is not None and writer.published >= decision.batch:
            return True
        if writer is None or writer.decided < decision.batch:
            if decision.coordinator == self.broker_name:
                raise BrokerError(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"batch {decision.batch} of writer {decision.writer} was not decided here, where it has to be; was "
                    "the store replaced? Run the batch again",
                )
            self._take(decision)
        task = self._start(decision.writer)
        done, _ = await asyncio.wait({task}, timeout=patience_s)
        for each in done:
            each.result()
        return bool(done)

    async def settle(self, attempts: AttemptList) -> BatchDecision | None:
        """Return the decision about a batch whose attempts a writer aborts; without one, refuse them and return None.

        Raises:
            BrokerError: the store refuses the note.
        """
        writer = self._ledger.get(attempts.writer)
        if writer is not None and writer.decided >= attempts.batch:
            await self._store.secure(writer.decided_end)
            return writer.decision if writer.decided == attempts.batch else None
        if writer is None or not all(map(writer.refuses, attempts.attempts)):
            self._note(UndecidableAttempts(attempts))
        await self._store.secure(self._store.end_offset)
        return None

    def discard(self, attempts: AttemptList) -> None:
        """Drop attempts that the coordinator has refused.

        Raises:
            BrokerError: the store refuses the note.
        """
        writer = self._ledger.get(attempts.writer)
        if writer is None:
            return
        decided = writer.decision.names() if writer.decision is not None else ()
        names_ = [name for name in attempts.attempts if name in writer.attempts and name not in decided]
        if names_:
            self._note(
                UndecidableAttempts(
                    AttemptList(attempts.writer, attempts.batch, attempts.coordinator, names_), locally=True
                )
            )

    async def _before(self, decision: BatchDecision) -> StagingWriter | None:
        """Return the writer once no earlier batch of it is being published."""
        writer = self._ledger.get(decision.writer)
        while writer is not None and writer.publication is not None:
            if writer.publication.decision.batch >= decision.batch:
                break
            await asyncio.shield(self._start(decision.writer))
            writer = self._ledger.get(decision.writer)
        return writer

    async def _publish_elsewhere(self, writer: StagingWriter) -> None:
        """Have all other brokers publish the last batch, because the next decision replaces this one.

        Raises:
            BrokerError: a broker does not answer or cannot publish.
        """
        decision = writer.decision
        assert decision is not None
        for name in decision.brokers:
            if name == self.broker_name:
                continue
            try:
                while not await self._peers.publish(name, decision):
                    pass
            except (TianzhouError, OSError) as error:
                raise BrokerError(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    f"batch {decision.batch} of writer {decision.writer} is decided, but broker {name} has not "
                    f"published its part ({error}); the next batch waits for that",
                ) from error
        self._published_everywhere(decision)

    def _published_everywhere(self, decision: BatchDecision) -> None:
        writer = self._ledger.get(decision.writer)
        if writer is None or writer.decided != decision.batch or not self._ledger.elsewhere(decision.writer):
            return
        note = PublishedEverywhere(decision.writer, decision.batch)
        try:
            self._note(note)
        except BrokerError as error:
            # The note only spares the next start a request to the other brokers.
            _log.warning(
                "staging: that batch %d of writer %s is published everywhere is not written down: %s",
                decision.batch,
                decision.writer,
                error,
            )
            self._ledger.apply(note)

    def _take(self, decision: BatchDecision) -> StagingWriter:
        missing = self._ledger.missing(decision)
        if missing:
            raise BrokerError(
                ResponseCode.ILLEGAL_OPERATION,
                f"batch {decision.batch} of writer {decision.writer}: broker {self.broker_name} has not, or no longer, "
                f"all that the attempts {', '.join(missing)} staged; run the batch again",
            )
        self._note(Decided(decision, self.broker_name))
        writer = self._ledger.get(decision.writer)
        assert writer is not None
        return writer

    # publishing

    def _start(self, name: str) -> asyncio.Task[None]:
        task = self._tasks.get(name)
        # A failed task stays in the table until the loop calls `_ended`; a request before that starts a new task.
        if task is None or task.done():
            task = start_awaited(self._publish(name), name=f"staging {name}")
            self._tasks[name] = task
            task.add_done_callback(lambda done: self._ended(name, done))
        return task

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if (error := retrieve_exception(task)) is not None:
            _log.warning("staging: the batch of writer %s is not all published, to be tried again: %s", name, error)

    async def _publish(self, name: str) -> None:
        """Publish the rest of a writer's batch."""
        writer = self._ledger.get(name)
        if writer is None or writer.publication is None:
            return
        publication = writer.publication
        missing = self._ledger.missing(publication.decision)
        if missing:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"batch {publication.decision.batch} of writer {name} was decided, but the log has lost what the "
                f"attempts {', '.join(missing)} staged; restore the store from a copy",
            )
        await self._store.secure(writer.decided_end)
        while publication.unit < len(publication.units):
            unit = await self._load(publication.units[publication.unit])
            messages = self._messages(unit)
            while publication.message < len(messages):
                self._publish_some(publication, unit, messages)
                await asyncio.sleep(0)
            publication.unit, publication.message = publication.unit + 1, 0
        await self._store.secure(self._store.end_offset)
        self._note(Published(name, publication.decision.batch))

    def _messages(self, unit: Record) -> Sequence[StagedMessage]:
        """Return the messages of a unit; set an unreadable unit aside as a whole and return no messages."""
        try:
            return decode_unit(unit.body)
        except ProtocolError as error:
            kept = SetAsideMessage(raw=bytes(unit.body), half_offset=unit.physical_offset)
            if not self._keeper.set_aside(
                UndeliverableWalk.STAGED, kept, unit.physical_offset, f"a staged unit: {error}"
            ):
                raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            return ()

    async def _load(self, unit: Unit) -> Record:
        view = await self._store.find(self._store.lookups.record_steps(unit.place))
        record = None if view is None else decode_record(view)
        if record is None or record.topic != names.STAGED_TOPIC or record.queue_offset != unit.offset:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the log no longer has the staged unit at {unit.place}")
        return record

    def _publish_some(self, publication: Publication, unit: Record, messages: Sequence[StagedMessage]) -> None:
        tail = encode_properties(added_properties(self._tables.settings))
        for message in messages[publication.message : publication.message + SLICE]:
            topic = self._tables.topics.get(message.topic)
            if topic is None:
                # The topic existed when the message was staged. Create it again, because a decided message must not be
                # lost.
                queues = max(message.queue_id + 1, self._tables.settings.default_topic_queue_nums)
                topic = self._tables.topics.ensure(message.topic, queues, self._clock.now_ms(), bounded=False)
            record = records.visible(message, unit, tail, self._tables.delays.capped, multi_tag_flag(topic))
            if record.uniq_key not in publication.found:
                self._make_visible(record, unit)
            publication.message += 1

    def _make_visible(self, record: NewRecord, unit: Record) -> None:
        """Store a message of a decided batch, or set it aside, because the next messages and batches wait for it."""
        result = self._store.append(record)
        if result.status in REPEATS:
            reason = remark_of(result)
            if not self._keeper.set_aside(UndeliverableWalk.STAGED, message_of(record), unit.physical_offset, reason):
                raise BrokerError(code_of(result.status), reason)
            return
        if result.status is not PutStatus.PUT_OK:
            raise BrokerError(code_of(result.status), remark_of(result))
        size = result.end_offset - result.physical_offset
        self._stats.put(record.topic).add(record.queue_id, 1, size)

    # notes

    def _note(self, note: Note) -> None:
        """Append a note to the log and apply it to the ledger.

        Raises:
            BrokerError: the store does not take the note; the ledger is unchanged.
        """
        if self._notes >= NOTES_TO_READ or (len(self._ledger) and not self._snapshot_is_near()):
            self._take_snapshot()
        for topic in (names.STAGED_TOPIC, names.STAGED_OP_TOPIC):
            self._tables.topics.ensure(topic, 1, self._clock.now_ms(), bounded=False)
        result = self._append(records.note_record(note, self._clock.now_ms(), *self._host))
        self._notes += 1
        if not isinstance(note, Published | PublishedEverywhere):
            note.place = result.physical_offset
        if isinstance(note, Decided):
            note.end = result.end_offset
        if not isinstance(note, Forgotten | PublishedEverywhere):
            note.stored_ms = result.store_timestamp
        self._ledger.apply(note)

    def _snapshot_is_near(self) -> bool:
        # The log is deleted by segments, but never the one that is written to.
        size = self._store.settings.mapped_file_size_commit_log
        return self._snapshot_place >= 0 and self._snapshot_place // size == self._store.end_offset // size

    def _take_snapshot(self) -> None:
        now = self._clock.monotonic()
        if now < self._snapshot_after:
            return
        settings = self._store.settings
        segment = settings.mapped_file_size_commit_log
        snapshot = self._ledger.snapshot(self._store.max_offset(names.STAGED_TOPIC, records.QUEUE, committed=False))
        most = min(records.PART_BYTES, settings.max_message_size, segment // 2)
        parts = records.snapshot_records(snapshot, self._clock.now_ms(), *self._host, most)
        try:
            # Write a snapshot that spans two segments again, because the first segment is deleted earlier.
            for _ in range(2):
                places = [self._append(part).physical_offset for part in parts]
                if places[0] // segment == places[-1] // segment:
                    break
        except BrokerError as error:
            self._snapshot_after = now + SNAPSHOT_RETRY_S
            _log.warning("staging: no snapshot can be written, to be tried in %d s: %s", SNAPSHOT_RETRY_S, error)
            return
        self._snapshot_place, self._notes, self._units = places[-1], 0, 0
        self._units_to_read = max(UNITS_TO_READ, snapshot.units // 4)

    def _append(self, record: NewRecord, plan: AppendPlan = OF_BROKER) -> PutResult:
        result = self._store.append(record, plan=plan)
        if result.status is not PutStatus.PUT_OK:
            raise BrokerError(code_of(result.status), remark_of(result))
        return result

    # rounds

    async def run(self) -> None:
        """Retry failed publications and ask coordinators about overdue attempts, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            with self._supervisor.trial("staging"):
                await self.round()

    async def round(self) -> None:
        """Run one round of retries, questions to coordinators and snapshots."""
        if not len(self._ledger):
            return
        for name in self._ledger.publishing():
            self._start(name)
        settings, now = self._tables.settings, self._clock.now_ms()
        for overdue in self._ledger.overdue(now - settings.staged_message_time_out):
            await self._ask(overdue)
        await self._propagate(now - settings.staged_writer_reserved_days * DAY_MS)
        idle = self._ledger.idle(now - settings.staged_writer_reserved_days * DAY_MS)
        if idle:
            self._note(Forgotten(idle))
        elif not self._snapshot_is_near():
            self._take_snapshot()

    async def _propagate(self, before_ms: int) -> None:
        """Have other brokers publish decided batches of silent writers before this broker forgets the decisions."""
        now = self._clock.monotonic()
        if now < self._spread_after:
            return
        for name in self._ledger.unpropagated(before_ms):
            self._spread_after = now + SPREAD_S
            try:
                if (writer := self._ledger.get(name)) is not None:
                    await self._publish_elsewhere(writer)
            except BrokerError as error:
                _log.warning("staging: writer %s is silent, but not forgotten yet: %s", name, error)

    async def _ask(self, overdue: AttemptList) -> None:
        """Ask the coordinator about overdue attempts, then publish or discard them."""
        try:
            ours = overdue.coordinator == self.broker_name
            decision = await (self.settle(overdue) if ours else self._peers.settle(overdue))
            if decision is not None:
                await self.publish(decision, 0)
            self.discard(overdue)
        except (TianzhouError, OSError) as error:
            _log.warning(
                "staging: attempts of batch %d of writer %s wait on, broker %s does not say what became of them: %s",
                overdue.batch, overdue.writer, overdue.coordinator, error,
            )  # fmt: skip
