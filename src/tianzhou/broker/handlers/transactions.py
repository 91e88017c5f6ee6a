"""Ends of transactions (37), and resumed checks of abandoned ones (323) (broker.md §13.2, wire.md §7.7)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from tianzhou.access.requests import AccessDenied
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.messages.admission import refuse_as_slave
from tianzhou.broker.messages.put_codes import code_of, is_stored, remark_of
from tianzhou.broker.services import Services
from tianzhou.broker.transactions import transaction_records as records
from tianzhou.broker.transactions.transaction_checker import TransactionChecker
from tianzhou.broker.transactions.transactions import TransactionOutcome, WaitingHalf
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.broker.undeliverable.set_aside import REPEATS, message_of
from tianzhou.errors import BrokerError, CorruptRecord, ProtocolError
from tianzhou.limits import HALF_MESSAGES
from tianzhou.model import names
from tianzhou.records.codec import Record, decode_record
from tianzhou.records.layout import COMMIT, ROLLBACK
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.results import OF_BROKER
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.ids import parse_offset_msg_id
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import UndeliverableWalk

_NOT_FOUND = "Find prepared transaction message failed"
_OUTCOMES = {COMMIT: TransactionOutcome.COMMITTED, ROLLBACK: TransactionOutcome.ROLLED_BACK}
_WORDS = {TransactionOutcome.COMMITTED: "committed", TransactionOutcome.ROLLED_BACK: "rolled back"}


class TransactionHandler(Handler):
    """Handler that commits and rolls back half messages.

    Args:
        services: the broker's services.
        checker: checker that writes the marks of decisions.
    """

    def __init__(self, services: Services, checker: TransactionChecker) -> None:
        super().__init__(services)
        self._ledger = self._tables.transactions
        self._checker = checker
        self._access = services.access
        self._keeper = UndeliverableKeeper(services)

    @serves(RequestCode.END_TRANSACTION)
    def end(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Commit or roll back a half message; send no answer when the producer has not decided."""
        header = read_header(command)
        refuse_as_slave(self._replication, "transactions are ended")
        outcome = _OUTCOMES.get(header.commit_or_rollback)
        return None if outcome is None else self._store.take(self._end(connection, command, header, outcome))

    def _end(self, connection: Connection, command: Command, header: Any, outcome: TransactionOutcome) -> Steps[Reply]:
        record = yield from self._half_message(connection, command, header)
        identity = records.identity_of(record)
        newest, newest_at = record, header.commit_log_offset
        while True:
            # Check again after each read, because another request may have ended the transaction.
            half = self._ledger.find(record.queue_offset, identity)
            if half is None:
                return self._ended_before(command, record, outcome)
            if not header.from_transaction_check:
                self._refuse_too_late(half)
            place = half.place
            if outcome is not TransactionOutcome.COMMITTED or newest_at == place:
                break
            found = yield from self._load(place, names.HALF_TOPIC)
            if found is not None:
                newest, newest_at = found, place
            elif half.place == place:
                raise BrokerError(
                    ResponseCode.SYSTEM_ERROR, f"{_NOT_FOUND}: the log no longer has {identity.unique_key}"
                )
        if outcome is TransactionOutcome.COMMITTED:
            self._commit(half, newest)
        else:
            self._checker.ended(half, outcome)
        return command.reply(ResponseCode.SUCCESS)

    def _half_message(self, connection: Connection, command: Command, header: Any) -> Steps[Record]:
        record = yield from self._load(header.commit_log_offset, names.HALF_TOPIC)
        if record is None:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"{_NOT_FOUND}: no half message is at commit-log offset {header.commit_log_offset}",
            )
        topic = decode_properties(record.properties).get(names.REAL_TOPIC, "")
        # The topic in the header is optional, and a client may name a topic of its own, so check the message's topic.
        named = topic == header.topic
        if self._access is not None and not named and not self._access.may_write(connection, command, topic):
            refusal = AccessDenied(
                ResponseCode.NO_PERMISSION,
                f"the half message at offset {header.commit_log_offset} is of a topic you may not send to",
            )
            self._access.refused(connection, command, refusal, topic)
            raise refusal
        group = records.identity_of(record).group
        if group != header.producer_group:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"The producer group wrong: {header.producer_group}, the message was sent by {group or 'no group'}",
            )
        if record.queue_offset != header.tran_state_table_offset:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"The transaction state table offset wrong: {header.tran_state_table_offset},"
                f" the message is at {record.queue_offset}",
            )
        return record

    def _ended_before(self, command: Command, record: Record, outcome: TransactionOutcome) -> Reply:
        before = self._ledger.outcome(record.queue_offset)
        if before is outcome:
            return command.reply(ResponseCode.SUCCESS)
        how = "ended" if before is None else _WORDS[before]
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"{_NOT_FOUND}: message {records.identity_of(record).unique_key} has been {how}"
            f" and cannot be {_WORDS[outcome]} any more; a transaction ends once",
        )

    def _refuse_too_late(self, half: WaitingHalf) -> None:
        age = self._clock.now_ms() - half.since_ms
        if half.immunity_ms is not None and age > half.immunity_ms:
            raise BrokerError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the message is {age} ms old, {records.IMMUNITY}={half.immunity_ms // 1000}: the broker asks for the"
                " decision now; answer its check",
            )

    def _commit(self, half: WaitingHalf, record: Record) -> None:
        level = self._tables.delays.capped(records.delay_of(record))
        message = records.committed(record, level)
        result = self._store.append(message)
        if not is_stored(result.status):
            self._stats.failed += 1
            if result.status in REPEATS and self._keeper.set_aside(
                UndeliverableWalk.TRANSACTION, message_of(message), record.physical_offset, remark_of(result)
            ):
                # The message is committed, and a check would not repair it, so end the transaction.
                self._checker.ended(half, TransactionOutcome.COMMITTED)
                raise BrokerError(code_of(result.status), f"committed and set aside: {remark_of(result)}")
            raise BrokerError(code_of(result.status), remark_of(result))
        # End the transaction first: after a later error the message must not be committed again.
        self._checker.ended(half, TransactionOutcome.COMMITTED)
        size = result.end_offset - result.physical_offset
        self._stats.put(message.topic).add(message.queue_id, 1, size)
        self._stats.kinds.add_own(message.topic, size)

    @serves(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    def resume(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Make an abandoned message a half message again, or deliver a message that was set aside."""
        header = read_header(command)
        refuse_as_slave(self._replication, "half messages are resumed")
        try:
            _, _, place = parse_offset_msg_id(header.msg_id or "")
        except (ProtocolError, ValueError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"msgId {header.msg_id!r}: {error}") from None
        return self._store.take(self._resume(command, place, header.topic or ""))

    def _resume(self, command: Command, place: int, topic: str) -> Steps[Reply]:
        aside = yield from self._load(place, names.UNDELIVERABLE_TOPIC)
        if aside is not None:
            yield from self._keeper.resend(aside, "" if topic == names.UNDELIVERABLE_TOPIC else topic)
            return command.reply(ResponseCode.SUCCESS)
        record = yield from self._load(place, records.GIVEN_UP_TOPIC)
        if record is None:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"no message of {records.GIVEN_UP_TOPIC} or {names.UNDELIVERABLE_TOPIC} is at commit-log offset"
                f" {place}; give the offset message id of one",
            )
        self._tables.bounds.check(HALF_MESSAGES, len(self._ledger) + 1)
        again = records.resumed(record)
        identity = records.identity_of(record)
        committed = yield from self._checker.was_committed(record)
        if committed or self._ledger.waits(identity):
            raise BrokerError(
                ResponseCode.ILLEGAL_OPERATION,
                f"message {identity.unique_key} is waiting for a decision already, or was committed since",
            )
        result = self._store.append(again, plan=OF_BROKER)
        if not is_stored(result.status):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the half message cannot be stored: {remark_of(result)}")
        half = records.half_of(record)
        if half is not None:
            half.offset, half.place, half.since_ms = result.queue_offset, result.physical_offset, result.store_timestamp
            half.checks, half.moved_from = 0, None
            self._ledger.opened(half)
        return command.reply(ResponseCode.SUCCESS)

    def _load(self, place: int, topic: str) -> Steps[Record | None]:
        if place < 0:
            return None
        view = yield from self._store.lookups.record_steps(place)
        try:
            record = None if view is None else decode_record(view)
        except CorruptRecord:
            return None
        return record if record is not None and record.topic == topic else None
