"""Transaction checks: requests to producers about half messages, and marks of decided ones (broker.md §13.3, §13.4)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Hashable, Sequence
from itertools import islice

from tianzhou.broker.services import Services
from tianzhou.broker.stats.message_kinds import COMMITTED, ROLLED_BACK
from tianzhou.broker.tables.clients import RegisteredClient
from tianzhou.broker.transactions import transaction_records as records
from tianzhou.broker.transactions.transactions import (
    LAG_LIMIT,
    HalfIdentity,
    HalfVerdict,
    TransactionOutcome,
    WaitingHalf,
    verdict,
)
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.broker.undeliverable.set_aside import REPEATS, placeless
from tianzhou.errors import ConnectionLost, CorruptRecord, StoreError, StoreUnreadable
from tianzhou.model import names
from tianzhou.records.codec import Record, decode_record
from tianzhou.records.layout import COMMIT, TRANSACTION_BITS
from tianzhou.remoting.connection import Connection
from tianzhou.slices import NextTurn, each_in_turns
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.results import OF_BROKER, GetResult, PutStatus, ReadRequest
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from tianzhou.wire.ids import offset_msg_id
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import UndeliverableWalk

TICK_S = 1.0
ROUND_LIMIT_S = 60.0
ASKED_AT_MOST = 3
SLICE = 32
STOP_PATIENCE_S = 3.0

_log = logging.getLogger(__name__)


def rotated(clients: Sequence[RegisteredClient], count: int) -> list[Hashable]:
    """Return the connections to try for a check, in order; each `count` starts with another member of the group."""
    if not clients:
        return []
    start = count % len(clients)
    return [client.connection for client in islice([*clients[start:], *clients[:start]], ASKED_AT_MOST)]


class TransactionChecker:
    """Checks, marks and offsets for the ledger of transactions.

    Args:
        services: the broker's services.
    """

    def __init__(self, services: Services) -> None:
        self._supervisor = services.supervisor
        self._tables = services.tables
        self._ledger = services.tables.transactions
        self._store = services.store
        self._kinds = services.stats.kinds
        self._clock = services.clock
        self._host = services.host
        self._access = services.access
        self._turns: dict[str, int] = {}
        self._written_at = self._clock.monotonic()
        self._marking = NextTurn(self._write_marks)  # all roll-backs of a turn of the loop are marked by one record
        # Positions that wait for a flush: end of the log they depend on, half queue, op queue.
        self._unflushed: tuple[int, int, int] | None = None
        self._keeper = UndeliverableKeeper(services)
        self._placeless: deque[Record] = deque()

    # the start and the end

    async def load(self) -> None:
        """Restore the ledger from the log; to be awaited before requests are served."""
        began = self._clock.monotonic()
        offsets, store = self._tables.offsets, self._store
        self._ledger.clear()
        self._unflushed = None
        self._placeless.clear()
        places = []
        for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC):
            low, high = max(store.min_offset(topic, 0), 0), store.max_offset(topic, 0)
            places.append(min(max(offsets.committed(records.CHECK_GROUP, topic, 0) or 0, low), high))
        marked: set[int] = set()
        for record in await self._read(names.OP_HALF_TOPIC, places[1]):
            found = records.marks_of(record)
            self._ledger.marked(record.queue_offset, found)
            marked.update(offset for offset in found if offset >= places[0])
        halves = []
        for record in await self._read(names.HALF_TOPIC, places[0]):
            half = records.half_of(record)
            if half is not None:
                halves.append(half)
            elif record.queue_offset not in marked:
                self._placeless.append(record)
        self._ledger.restore(halves, marked, *places)
        forgotten = [half for half in self._ledger.waiting() if await self._is_committed(half)]
        for half in forgotten:
            self.ended(half, TransactionOutcome.COMMITTED)
        if halves:
            _log.info(
                "transactions: %d half messages wait for a decision, %d were found committed without a mark (%.2f s)",
                len(self._ledger), len(forgotten), self._clock.monotonic() - began,
            )  # fmt: skip

    async def _read(self, topic: str, offset: int) -> list[Record]:
        found: list[Record] = []
        end = self._store.max_offset(topic, 0)
        while offset < end:
            reading = self._store.read(ReadRequest(topic, records.QUEUE, offset, SLICE))
            got = reading if isinstance(reading, GetResult) else await reading
            for view in got.parts:
                try:
                    found.append(decode_record(view))
                except CorruptRecord as error:
                    _log.error("%s: a message after offset %d is left out: %s", topic, offset, error)
            offset = max(got.next_offset, offset + 1)
            await asyncio.sleep(0)
        return found

    async def _is_committed(self, half: WaitingHalf) -> bool:
        """Whether the log has the committed message of a half message whose mark a crash may have lost."""
        looking = self._store.take(self._committed(half.identity, half.topic))
        found = looking if isinstance(looking, list) else await looking
        return any(record.prepared_transaction_offset in half.places for record in found)

    def was_committed(self, record: Record) -> Steps[bool]:
        """Whether the log has the committed message of the half message of which `record` is a copy."""
        half = records.half_of(record)
        if half is None:
            return False
        found = yield from self._committed(half.identity, half.topic)
        return bool(found)

    def _committed(self, identity: HalfIdentity, topic: str) -> Steps[list[Record]]:
        found = []
        for where in (topic, names.SCHEDULE_TOPIC) if identity.unique_key else ():
            result = yield from self._store.lookups.key_steps(where, identity.unique_key, SLICE)
            for view in result.parts:
                try:
                    record = decode_record(view)
                except CorruptRecord:
                    continue
                if record.sys_flag & TRANSACTION_BITS != COMMIT:
                    continue
                if records.identity_of(record) == identity:
                    found.append(record)
        return found

    async def close(self) -> None:
        """Write the marks that are still in memory, before the store is closed."""
        self._write_marks()
        self._unflushed = None
        self._publish_flushed()
        if self._store.settings.sync_flush:
            try:
                async with asyncio.timeout(STOP_PATIENCE_S):
                    await self._store.flushed.reach(self._store.end_offset)
            except (TimeoutError, StoreError) as error:
                _log.warning("transactions: the next start reads a little more again (%s)", error or "slow disk")
                return
        self._publish(at_once=True)

    # decisions

    def ended(self, half: WaitingHalf, outcome: TransactionOutcome) -> None:
        """Mark a half message as rolled back, or as committed when its message is in the log."""
        self._ledger.mark(self._ledger.decided(half, outcome))
        end = COMMITTED if outcome is TransactionOutcome.COMMITTED else ROLLED_BACK
        self._kinds.add_end(half.topic, end, self._clock.now_ms() - half.since_ms)
        # A restart finds a commit in the log, but a roll-back leaves only its mark, so write that mark at once.
        self._schedule_marks(outcome is TransactionOutcome.ROLLED_BACK or not self._store.settings.message_index_enable)

    def _schedule_marks(self, at_once: bool) -> None:
        text = 8 * len(self._ledger.unwritten)
        if at_once or text > self._tables.settings.transaction_op_msg_max_size:
            self._marking.ask()

    def _write_marks(self) -> None:
        ledger, limit = self._ledger, self._tables.settings.transaction_op_msg_max_size
        while ledger.unwritten:
            count, size = 0, 0
            for offset in ledger.unwritten:
                size += len(str(offset)) + 1
                if count and size > limit:
                    break
                count += 1
            now = self._clock.now_ms()
            result = self._store.append(records.mark(ledger.unwritten[:count], now, *self._host), plan=OF_BROKER)
            if result.status is not PutStatus.PUT_OK:
                _log.warning("transactions: marks cannot be written (%s); trying again", result.remark)
                return
            ledger.marks_written(count, result.queue_offset)
        self._written_at = self._clock.monotonic()

    # rounds

    async def run(self) -> None:
        """Check half messages and write marks until cancelled."""
        settings = self._tables.settings
        next_round = self._clock.monotonic() + settings.transaction_check_interval / 1000
        while True:
            tick = min(
                TICK_S, settings.transaction_op_batch_interval / 1000, settings.transaction_check_interval / 1000
            )
            await asyncio.sleep(max(tick, 0.01))
            now = self._clock.monotonic()
            # Retry a failed round, because half messages would wait for ever without checks.
            with self._supervisor.trial("checking transactions"):
                self._set_placeless_aside()
                if now - self._written_at >= settings.transaction_op_batch_interval / 1000:
                    self._write_marks()
                if now >= next_round:
                    next_round = now + settings.transaction_check_interval / 1000
                    await self.check_all()
                self._publish()
                self._publish_flushed()

    async def check_all(self) -> None:
        """Run one round of checks of all waiting half messages."""
        store, ledger = self._store, self._ledger
        deadline = self._clock.monotonic() + ROUND_LIMIT_S
        copies: list[int] = []
        failures: list[Exception] = []
        # Half messages below this offset are in the oldest segment, which is deleted next: see `HalfVerdict.MOVE`.
        endangered = store.begin_offset + store.settings.mapped_file_size_commit_log if store.begin_offset > 0 else 0
        async for half in each_in_turns(ledger.waiting(), SLICE):
            if self._clock.monotonic() > deadline:
                break
            try:
                copies += await self._check(half, endangered)
            except Exception as error:  # noqa: BLE001 - the others have to be decided all the same
                failures.append(error)
        progress, _ = ledger.positions(store.max_offset(names.HALF_TOPIC, records.QUEUE, committed=False))
        # Mark the originals of copies, so that a reader does not take an original for another transaction.
        ledger.mark(offset for offset in copies if offset >= progress)
        self._schedule_marks(at_once=False)
        if failures:
            raise ExceptionGroup(f"{len(failures)} half messages cannot be checked", failures[:ASKED_AT_MOST])

    async def _check(self, half: WaitingHalf, endangered: int) -> list[int]:
        """Check one half message; return its former offset when a copy for a check was stored."""
        settings, store, ledger = self._tables.settings, self._store, self._ledger
        if not ledger.is_open(half):
            return []
        end = store.max_offset(names.HALF_TOPIC, records.QUEUE, committed=False)
        before = half.offset
        decision = verdict(
            half,
            self._clock.now_ms(),
            timeout_ms=settings.transaction_time_out,
            check_max=settings.transaction_check_max,
            reserved_ms=store.settings.file_reserved_time * 3_600_000,
            lags=end - half.offset > LAG_LIMIT or half.place < endangered,
            reachable=bool(self._tables.clients.producers.get(half.identity.group)),
        )
        if decision is HalfVerdict.WAIT:
            return []
        try:
            record = await self._load(half)
        except StoreUnreadable as error:
            _log.error("transactions: %s", error)
            return []
        if not ledger.is_open(half):
            # The producer decided while the message was read.
            return []
        if record is None:
            _log.error(
                "transactions: the half message %s (offset %d) of group %s is gone from the log; nobody can decide",
                half.identity.unique_key, half.offset, half.identity.group,
            )  # fmt: skip
            ledger.lost(half)
        elif decision is HalfVerdict.GIVE_UP:
            self._give_up(half, record)
        elif self._rewrite(half, record, checked=decision is HalfVerdict.CHECK) and decision is HalfVerdict.CHECK:
            return [before]
        return []

    async def _load(self, half: WaitingHalf) -> Record | None:
        looking = self._store.take(self._store.lookups.record_steps(half.place))
        view = await looking if isinstance(looking, Coroutine) else looking
        try:
            record = None if view is None else decode_record(view)
        except CorruptRecord:
            return None
        if record is None or record.topic != names.HALF_TOPIC or record.queue_offset != half.offset:
            return None
        return record

    def _give_up(self, half: WaitingHalf, record: Record) -> None:
        self._tables.topics.ensure(records.GIVEN_UP_TOPIC, 1, self._clock.now_ms(), bounded=False)
        result = self._store.append(records.given_up(record), plan=OF_BROKER)
        if result.status is not PutStatus.PUT_OK:
            _log.warning("transactions: a message nobody decided cannot be put aside (%s)", result.remark)
            return
        _log.warning(
            "transactions: message %s of group %s was checked %d times and is not decided; put aside into %s",
            half.identity.unique_key, half.identity.group, half.checks, records.GIVEN_UP_TOPIC,
        )  # fmt: skip
        self._ledger.mark(self._ledger.gave_up(half))
        self._schedule_marks(at_once=False)

    def _set_placeless_aside(self) -> None:
        """Set aside half messages that name no topic and queue, because they cannot be committed."""
        while self._placeless:
            record, reason = self._placeless[0], "the half message names no topic and queue"
            if not self._keeper.set_aside(
                UndeliverableWalk.TRANSACTION, placeless(record), record.physical_offset, reason
            ):
                return
            self._placeless.popleft()
            self._ledger.mark([record.queue_offset])
            self._schedule_marks(at_once=True)

    def _rewrite(self, half: WaitingHalf, record: Record, *, checked: bool) -> bool:
        copy = records.copied(record, half, checked=checked)
        result = self._store.append(copy, plan=OF_BROKER)
        if result.status in REPEATS:
            # The copy can never be stored, for example because its properties are full, so abandon the message.
            self._give_up(half, record)
            return False
        if result.status is not PutStatus.PUT_OK:
            _log.warning("transactions: a half message cannot be written again (%s)", result.remark)
            return False
        self._ledger.copied(half, result.queue_offset, result.physical_offset, checked=checked)
        if checked:
            question = records.question(record, copy, half.offset, half.place)
            self._ask(half, question, decode_properties(copy.properties)[names.REAL_TOPIC])
        return True

    def _ask(self, half: WaitingHalf, body: bytes, topic: str) -> None:
        group = half.identity.group
        clients = list(self._tables.clients.producers.get(group, {}).values())
        count = self._turns[group] = self._turns.get(group, -1) + 1
        fields = write_header(
            RequestCode.CHECK_TRANSACTION_STATE,
            topic=names.HALF_TOPIC,
            tran_state_table_offset=half.offset,
            commit_log_offset=half.place,
            msg_id=half.identity.unique_key,
            transaction_id=half.identity.unique_key,
            offset_msg_id=offset_msg_id(*self._host, half.place),
            bname=self._tables.settings.broker_name,
        )
        for connection in rotated(clients, count):
            assert isinstance(connection, Connection)
            if self._access is not None and not self._access.may_send(connection, topic):
                # The check contains the message, and any client can claim to be in the group.
                continue
            try:
                connection.invoke_oneway(Command(RequestCode.CHECK_TRANSACTION_STATE, fields=fields, body=body))
            except ConnectionLost:
                continue
            return

    # positions

    def _publish_flushed(self) -> None:
        """Snapshot the current positions. They are published once all records they depend on are flushed."""
        if self._unflushed is None:
            store = self._store
            half_end = store.max_offset(names.HALF_TOPIC, records.QUEUE, committed=False)
            self._unflushed = (store.end_offset, *self._ledger.positions(half_end))

    def _publish(self, *, at_once: bool = False) -> None:
        if self._unflushed is None or (self._store.durability.lasting.value < self._unflushed[0] and not at_once):
            return
        _, *positions = self._unflushed
        self._unflushed = None
        offsets, now = self._tables.offsets, self._clock.now_ms()
        for topic, offset in zip((names.HALF_TOPIC, names.OP_HALF_TOPIC), positions, strict=True):
            known = offsets.committed(records.CHECK_GROUP, topic, records.QUEUE)
            if known != offset and any(positions):
                offsets.commit(records.CHECK_GROUP, topic, records.QUEUE, offset, now, bounded=False)
