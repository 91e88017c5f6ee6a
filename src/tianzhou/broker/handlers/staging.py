"""Requests about staged messages: units, decisions about batches, and aborted attempts (docs/adr/0006)."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.large_bodies import decoded
from tianzhou.broker.messages.admission import Admission, check_key, needs_key, refuse_as_slave
from tianzhou.broker.services import Services
from tianzhou.broker.staging import staging_records as records
from tianzhou.broker.staging.staging import StagedUnit, Unit, UnitTreatment
from tianzhou.broker.staging.staging_publisher import StagingPublisher
from tianzhou.errors import BrokerError, LimitExceeded, ProtocolError
from tianzhou.model import TopicConfig
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.slices import each_in_turns
from tianzhou.wire.bodies.beans import Bean
from tianzhou.wire.bodies.staging import ATTEMPTS, DECISION, STATE, AttemptList, BatchDecision, StagingState
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.staging import StagedMessage, decode_unit

T = TypeVar("T", BatchDecision, AttemptList)

PATIENCE_S = 2.0
"""Seconds after which a request to publish is answered although the publication still runs."""


SLICE = 256
"""Maximum messages checked in one turn of the event loop."""


class _Target(NamedTuple):
    """Header fields that `Admission` reads."""

    topic: str
    default_topic: str
    default_topic_queue_nums: int
    unit_mode: bool = False


class _Unfit(Exception):
    def __init__(self, index: int, error: BrokerError) -> None:
        self.index = index
        self.error = error


class StagingHandler(Handler):
    """Handler for writers of batches that are published exactly once.

    Args:
        services: the broker's services.
        publisher: publisher of the batches.
    """

    def __init__(self, services: Services, publisher: StagingPublisher) -> None:
        super().__init__(services)
        self._ledger = self._tables.staging
        self._admission = Admission(self._tables)
        self._publisher = publisher

    @serves(RequestCode.STAGING_STATE)
    async def state(self, connection: Connection, command: Command) -> Reply:
        """Return that this broker can stage messages, and the state of a writer."""
        writer = self._ledger.get(read_header(command).writer)
        found = StagingState(broker_name=self._publisher.broker_name, max_unit=self._store.settings.max_message_size)
        if writer is not None:
            await self._store.secure(writer.decided_end)
            found.coordinator, found.decided, found.published = writer.coordinator, writer.decided, writer.published
            found.refusals = writer.refusals
        return command.reply(ResponseCode.SUCCESS, body=STATE.dumps(found))

    @serves(RequestCode.STAGE_MESSAGES)
    async def stage(self, connection: Connection, command: Command) -> Reply:
        """Store a unit; answer the last unit of an attempt once all its units are safe."""
        header = read_header(command)
        refuse_as_slave(self._replication, "messages are staged")
        named = ("writer", header.writer), ("attempt", header.attempt), ("coordinator", header.coordinator)
        for what, name in named:
            if (text := records.unfit_name(what, name)) is not None:
                raise BrokerError(ResponseCode.INVALID_PARAMETER, text)
        if header.batch < 0 or not 0 <= header.number <= records.MOST_UNITS:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"batch={header.batch}, number={header.number}: numbers begin at 0, and an attempt has at most "
                f"{records.MOST_UNITS} units",
            )
        self._refuse_other_coordinator(header.writer, header.coordinator)
        entry = self._entry(header)
        if entry is UnitTreatment.TAKE and command.body:
            self._ledger.check_room(header.writer, 1)
            body = bytes(command.body)
            try:
                await self._check(decode_unit(body), header, connection)
            except _Unfit as unfit:
                fields = write_reply(RequestCode.STAGE_MESSAGES, refused=unfit.index)
                return command.reply(unfit.error.code, unfit.error.remark, fields)
            # Other requests ran during the check: the batch may be decided or the attempt aborted.
            self._refuse_other_coordinator(header.writer, header.coordinator)
            entry = self._entry(header)
            if entry is UnitTreatment.TAKE:
                self._take(connection, header, body)
        if entry is UnitTreatment.DECIDED:
            return _decided(command)
        if entry is UnitTreatment.REFUSED:
            raise BrokerError(
                ResponseCode.ILLEGAL_OPERATION, f"attempt {header.attempt} of writer {header.writer} was given up"
            )
        if header.last:
            await self._store.secure(self._store.end_offset)
            hole = self._ledger.hole(header.writer, header.attempt, header.number + bool(command.body))
            if hole is not None:
                if self._entry(header) is UnitTreatment.DECIDED:
                    return _decided(command)
                # Units before the last are acknowledged before a flush, so a power failure may have lost them.
                raise BrokerError(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"attempt {header.attempt} of writer {header.writer} ends, but its unit {hole} is not, or no "
                    f"longer, at broker {self._publisher.broker_name}, which has lost power or discarded it since it "
                    "was staged; run the task again",
                )
        return command.reply(ResponseCode.SUCCESS)

    def _entry(self, header: Any) -> UnitTreatment:
        return self._ledger.entry(header.writer, header.batch, header.attempt, header.number)

    def _take(self, connection: Connection, header: Any, body: bytes) -> None:
        born = (header.born_timestamp, connection.remote_host_bytes, connection.remote_port)
        unit = StagedUnit(
            header.writer, header.batch, header.attempt, header.coordinator, Unit(header.number, -1, -1), 0
        )
        self._publisher.stage(unit, records.unit_record(unit, body, born=born))

    async def _check(self, messages: list[StagedMessage], header: Any, connection: Connection) -> None:
        async for begin in each_in_turns(range(0, len(messages), SLICE), 1):
            self._check_some(messages[begin : begin + SLICE], begin, header, connection)

    def _check_some(self, messages: list[StagedMessage], begin: int, header: Any, connection: Connection) -> None:
        now, limit = self._clock.now_ms(), self._store.settings.max_message_size
        topics: dict[str, TopicConfig] = {}
        for index, message in enumerate(messages, begin):
            try:
                config = topics.get(message.topic)
                if config is None:
                    target = _Target(message.topic, header.default_topic or "", header.default_topic_queue_nums)
                    config = topics[message.topic] = self._admission.topic_for(target, now)
                self._admission.check_queue(config, message.queue_id, connection.remote_address)
                if needs_key(config):
                    check_key(message.topic, decode_properties(message.properties))
            except BrokerError as error:
                raise _Unfit(index, error) from None
            except LimitExceeded as error:
                raise _Unfit(index, BrokerError(error.response_code, str(error))) from None
            text = records.problem(message, limit)
            if text is not None:
                raise _Unfit(index, BrokerError(ResponseCode.MESSAGE_ILLEGAL, text))

    @serves(RequestCode.DECIDE_BATCH)
    async def decide(self, connection: Connection, command: Command) -> Reply:
        """Decide about a batch, or return the decision that exists."""
        wanted = self._to_decide(DECISION, command)
        decision = await self._publisher.decide(wanted)
        return command.reply(ResponseCode.SUCCESS, body=DECISION.dumps(decision))

    @serves(RequestCode.PUBLISH_BATCH)
    async def publish(self, connection: Connection, command: Command) -> Reply:
        """Publish the units of a decided batch that are at this broker."""
        decision = _load(DECISION, command)
        refuse_as_slave(self._replication, "messages are staged")
        self._refuse_other_coordinator(decision.writer, decision.coordinator)
        self._ledger.check_room(decision.writer)
        everywhere = bool(read_header(command).everywhere)
        published = await self._publisher.publish(decision, PATIENCE_S, everywhere=everywhere)
        return command.reply(ResponseCode.SUCCESS, fields=write_reply(RequestCode.PUBLISH_BATCH, published=published))

    @serves(RequestCode.SETTLE_ATTEMPTS)
    async def settle(self, connection: Connection, command: Command) -> Reply:
        """Return the decision about a batch; without one, refuse its attempts."""
        request = self._to_decide(ATTEMPTS, command)
        decision = await self._publisher.settle(request)
        return command.reply(ResponseCode.SUCCESS, body=b"" if decision is None else DECISION.dumps(decision))

    @serves(RequestCode.DISCARD_ATTEMPTS)
    async def discard(self, connection: Connection, command: Command) -> Reply:
        """Drop refused attempts."""
        request = _load(ATTEMPTS, command)
        refuse_as_slave(self._replication, "messages are staged")
        self._publisher.discard(request)
        return command.reply(ResponseCode.SUCCESS)

    def _to_decide(self, bean: Bean[T], command: Command) -> T:
        request = _load(bean, command)
        refuse_as_slave(self._replication, "messages are staged")
        if request.coordinator != self._publisher.broker_name:
            raise BrokerError(
                ResponseCode.ILLEGAL_OPERATION,
                f"writer {request.writer} is decided by broker {request.coordinator}, this one is "
                f"{self._publisher.broker_name}",
            )
        self._refuse_other_coordinator(request.writer, request.coordinator)
        self._ledger.check_room(request.writer)
        return request

    def _refuse_other_coordinator(self, name: str, coordinator: str) -> None:
        writer = self._ledger.get(name)
        if writer is not None and writer.coordinator != coordinator:
            raise BrokerError(
                ResponseCode.ILLEGAL_OPERATION,
                f"writer {name} is decided by broker {writer.coordinator}, not by {coordinator}: two brokers that"
                " decide could contradict each other",
            )


def _decided(command: Command) -> Reply:
    return command.reply(ResponseCode.SUCCESS, fields=write_reply(RequestCode.STAGE_MESSAGES, decided=True))


def _load(bean: Bean[T], command: Command) -> T:
    try:
        body = decoded(command, bean.loads)
    except ProtocolError as error:
        raise BrokerError(ResponseCode.INVALID_PARAMETER, f"the body cannot be read: {error}") from None
    if (text := records.unfit(body)) is not None:
        raise BrokerError(ResponseCode.INVALID_PARAMETER, text)
    return body
