"""Exactly-once writes: messages are staged at their brokers, and one decision makes a batch visible.

The protocol is docs/adr/0006. Every request here is idempotent, so a request without an answer is repeated until the
timeout. `tianzhou.spark` uses this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Unpack

from tianzhou.client.cluster.remedies import broker_error, check
from tianzhou.client.cluster.rpc import request
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ClientKeywords
from tianzhou.client.producer.message_builder import MessageBuilder
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.client.producer.publish_plan import PublishPlans
from tianzhou.client.producer.selector import select_by_hash
from tianzhou.errors import ClientError, ConnectFailed, RemotingError, TianzhouError
from tianzhou.model import Message, MessageQueue, names
from tianzhou.records.checksum import crc32
from tianzhou.supervision import start_awaited
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.bodies.staging import (
    ATTEMPTS,
    DECISION,
    STATE,
    AttemptList,
    BatchDecision,
    StagedAttempt,
    StagingState,
)
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from tianzhou.wire.staging import StagedMessage, encode_unit

_log = logging.getLogger(__name__)

UNIT_BYTES: Final = 1 << 20
"""Minimum size in bytes of a unit before it is sent."""
PAUSE_S: Final = 0.1
PUBLISH_TIMEOUT_MS: Final = 30_000
"""Timeout of one request for the publication of a batch. A broker answers after two seconds in any case."""
KV_NAMESPACE: Final = names.STAGING_NAMESPACE
"""Namespace of the KV entries that name the coordinators: the brokers that decide."""
BUCKETS: Final = 16
GROUP: Final = "tianzhou-staging"

_BUSY: Final = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY))


class CannotStage(ClientError):
    """The broker does not support staged messages, so exactly-once writes to it are impossible."""


class MessageRefused(ClientError):
    """A message cannot be staged.

    Args:
        index: index of the message in its attempt, from 0.
        reason: the cause.
    """

    def __init__(self, index: int, reason: BaseException) -> None:
        self.index = index
        super().__init__(str(reason))


class Staging:
    """A client for requests to brokers to stage, decide and publish.

    Args:
        namesrv_addr: name servers, see `ClientInstance`.
        timeout_ms: timeout of a request with its repetitions.
        options: further options of its instance, see `ClientOptions`.
    """

    def __init__(self, namesrv_addr: str, *, timeout_ms: int, **options: Unpack[ClientKeywords]) -> None:
        self.instance = ClientInstance(namesrv_addr, **options)
        defaults = ProducerOptions()
        self.plans = PublishPlans(self.instance, GROUP, defaults)
        self.builder = MessageBuilder(self.instance, defaults)
        self._timeout_ms = timeout_ms
        self._masters: dict[str, str] = {}
        self._able: dict[str, StagingState] = {}
        self._coordinators: dict[int, str] = {}

    async def start(self) -> None:
        """Start; see `ClientInstance.start`."""
        await self.instance.start()

    async def stop(self) -> None:
        """Close every connection."""
        await self.instance.close()

    # coordinators

    async def coordinator(self, writer: str) -> str:
        """Return the name of the broker that decides for a writer; it never changes.

        The name servers store it for a few buckets of writers, so that it does not change when brokers come and go.
        When they have lost it, a broker that knows the writer has it. A writer that no broker knows has no decisions
        yet.

        Raises:
            CannotStage: no broker can stage.
            RemotingError: a broker that may know the writer does not answer.
        """
        bucket = crc32(writer.encode()) % BUCKETS
        found = self._coordinators.get(bucket) or await self._recorded(bucket)
        if found is None:
            found, missing = await self._recorded_anywhere(bucket)
            if found is not None:
                # Name servers without the entry would answer queries without it. One that is down gets the entry later.
                await self._record(bucket, found, missing)
            else:
                refusals = await self._record(bucket, await self._choose(writer, bucket), missing)
                # Another client may have stored a choice at the same time. No later choice replaces a stored one.
                found, _ = await self._recorded_anywhere(bucket)
                if found is None and len(refusals) == len(missing):
                    raise ConnectFailed(
                        f"no name server keeps which broker decides (KV namespace {KV_NAMESPACE}): "
                        f"{'; '.join(map(str, refusals))}"
                    )
            if found is None:
                raise ConnectFailed("the name servers do not keep which broker decides; are they all the same version?")
        self._coordinators[bucket] = found
        return found

    async def _recorded(self, bucket: int) -> str | None:
        """Return the broker that the name server in use has stored; None without one."""
        code = RequestCode.GET_KV_CONFIG
        return _value(await self.instance.ask_name_server(code, namespace=KV_NAMESPACE, key=f"coordinator-{bucket}"))

    async def _recorded_anywhere(self, bucket: int) -> tuple[str | None, list[str]]:
        """Return the broker that any name server has stored, and the addresses of those without an entry."""
        code, key = RequestCode.GET_KV_CONFIG, f"coordinator-{bucket}"
        found: str | None = None
        missing: list[str] = []
        failures: list[TianzhouError] = []

        async def ask(address: str) -> str | TianzhouError | None:
            try:
                command = request(code, namespace=KV_NAMESPACE, key=key)
                return _value(await self.instance.remoting.invoke(address, command, self._timeout_ms), address)
            except TianzhouError as error:
                return error

        servers = list(self.instance.name_servers)
        # Ask concurrently, because a hanging name server must not delay the answer of another one.
        for address, value in zip(servers, await asyncio.gather(*map(ask, servers)), strict=True):
            if isinstance(value, TianzhouError):
                failures.append(value)
            elif value is None:
                missing.append(address)
            else:
                found = found or value
        if found is None and not missing:
            raise failures[-1] if failures else ConnectFailed("there is no name server to ask which broker decides")
        return found, missing

    async def _record(self, bucket: int, broker_name: str, addresses: Sequence[str]) -> list[TianzhouError]:
        """Store a choice at name servers, and return the errors of the servers that failed."""

        async def record(address: str) -> TianzhouError | None:
            key = f"coordinator-{bucket}"
            command = request(RequestCode.PUT_KV_CONFIG, namespace=KV_NAMESPACE, key=key, value=broker_name)
            try:
                check(await self.instance.remoting.invoke(address, command, self._timeout_ms), address)
            except TianzhouError as error:
                _log.warning("name server %s does not keep that broker %s decides: %s", address, broker_name, error)
                return error
            return None

        return [one for one in await asyncio.gather(*map(record, addresses)) if one is not None]

    async def _choose(self, writer: str, bucket: int) -> str:
        await self._find_masters()
        able, failure = [], None
        for name in sorted(self._masters):
            try:
                state = await self.state(name, writer)
            except CannotStage as error:
                failure = error
                continue
            if state.coordinator is not None:
                return state.coordinator
            able.append(name)
        if not able:
            raise failure or ConnectFailed("the name server knows no broker that has a master now; is it running?")
        return able[bucket % len(able)]

    # requests

    async def state(self, broker_name: str, writer: str) -> StagingState:
        """Return a broker's state of a writer.

        Raises:
            CannotStage: the broker does not support staging.
        """
        reply = await self._ask(broker_name, RequestCode.STAGING_STATE, writer=writer)
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise CannotStage(
                f"broker {broker_name} at {self._masters.get(broker_name)} cannot write exactly once: it does not know "
                f"staged messages ({(reply.remark or '').strip()}), as Apache's brokers do not; use "
                "delivery=at-least-once, or a Tianzhou broker"
            )
        found = STATE.loads(self._checked(broker_name, reply).body)
        self._able[broker_name] = found
        return found

    async def able(self, broker_name: str, writer: str) -> StagingState:
        """Return the cached state of a broker that can stage; request it at the first call.

        Args:
            broker_name: the broker.
            writer: name of the writer, which access control requires in the request.

        Raises:
            CannotStage: the broker does not support staging.
        """
        return self._able.get(broker_name) or await self.state(broker_name, writer)

    async def stage(self, broker_name: str, unit: bytes, **header: Any) -> Command:
        """Stage a unit and return the reply, which may be a rejection."""
        return await self._ask(broker_name, RequestCode.STAGE_MESSAGES, unit, **header)

    async def decide(self, wanted: BatchDecision) -> BatchDecision:
        """Decide about a batch, and return the present or an earlier decision; see `StagingPublisher.decide`."""
        body = DECISION.dumps(wanted)
        reply = await self._ask(wanted.coordinator, RequestCode.DECIDE_BATCH, body)
        return DECISION.loads(self._checked(wanted.coordinator, reply).body)

    async def publish(self, decision: BatchDecision) -> None:
        """Request that every broker with units of a decided batch publish it, and wait until all have."""
        others = [name for name in decision.brokers if name != decision.coordinator]
        await asyncio.gather(*(self._publish_at(name, decision) for name in others))
        # The coordinator then need not ask the other brokers before the next decision.
        await self._publish_at(decision.coordinator, decision, everywhere=True)

    async def _publish_at(self, broker_name: str, decision: BatchDecision, *, everywhere: bool = False) -> None:
        code, body = RequestCode.PUBLISH_BATCH, DECISION.dumps(decision)
        while True:
            reply = await self._ask(broker_name, code, body, limit_ms=PUBLISH_TIMEOUT_MS, everywhere=everywhere)
            if read_reply(code, self._checked(broker_name, reply)).published:
                return

    async def give_up(self, attempts: AttemptList, broker_names: Sequence[str]) -> BatchDecision | None:
        """Discard attempts, unless they are part of a decision.

        Returns:
            The decision about the batch; None when the coordinator rejects the attempts from now on.
        """
        body = ATTEMPTS.dumps(attempts)
        reply = await self._ask(attempts.coordinator, RequestCode.SETTLE_ATTEMPTS, body)
        settled = self._checked(attempts.coordinator, reply).body
        if settled:
            return DECISION.loads(settled)
        for name in broker_names:
            self._checked(name, await self._ask(name, RequestCode.DISCARD_ATTEMPTS, body))
        return None

    def _checked(self, broker_name: str, reply: Command) -> Command:
        return check(reply, self._masters.get(broker_name, broker_name))

    async def _ask(
        self, broker_name: str, code: int, body: bytes = b"", *, limit_ms: int | None = None, **header: Any
    ) -> Command:
        clock = self.instance.clock
        deadline = clock.monotonic() + (limit_ms or self._timeout_ms) / 1000
        while True:
            left_s = deadline - clock.monotonic()
            failure: TianzhouError
            try:
                address = await self._address(broker_name)
                reply = await self.instance.remoting.invoke(address, request(code, body, **header), left_s * 1000)
                if reply.code not in _BUSY:
                    return reply
                failure = broker_error(reply, address)
            except RemotingError as error:
                # The broker may have another address when it is available again.
                self._masters.pop(broker_name, None)
                failure = error
            if clock.monotonic() + PAUSE_S >= deadline:
                raise failure
            await asyncio.sleep(PAUSE_S)

    async def _address(self, broker_name: str) -> str:
        if broker_name not in self._masters:
            await self._find_masters()
        address = self._masters.get(broker_name)
        if address is None:
            raise ConnectFailed(
                f"broker {broker_name} is not registered at the name server; what is staged there, or was decided by "
                "it, can wait: start it again"
            )
        return address

    async def _find_masters(self) -> None:
        reply = check(await self.instance.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))
        table = CLUSTER_INFO.loads(reply.body).broker_addr_table
        self._masters = {name: broker.master for name, broker in table.items() if broker.master is not None}


class StagingTask:
    """One attempt of a task, which stages messages.

    Args:
        staging: sends the requests.
        writer: name of the writer.
        batch: number of the batch.
        coordinator: the broker that decides, see `Staging.coordinator`.
        attempt: name of the attempt, which no other attempt ever has.
    """

    def __init__(self, staging: Staging, writer: str, batch: int, coordinator: str, attempt: str) -> None:
        self._staging = staging
        self._header = {"writer": writer, "batch": batch, "coordinator": coordinator, "attempt": attempt}
        self._writer, self._name = writer, attempt
        self._units: dict[str, _Unit] = {}
        self._count = 0
        self.decided = False
        """Whether the batch was decided before, so that messages staged for it do not count."""

    async def add(self, messages: Sequence[tuple[Message, MessageQueue | int | Origin | None]]) -> None:
        """Stage messages, each with its queue, the id of its queue, or None for any.

        Raises:
            MessageRefused: a message cannot be staged; no message of the attempt will ever be visible.
            CannotStage: the broker of a message cannot stage.
        """
        for message, queue_id in messages:
            index, self._count = self._count, self._count + 1
            try:
                broker_name, staged = await self._compose(message, queue_id)
            except CannotStage:
                raise
            except ClientError as error:
                raise MessageRefused(index, error) from error
            unit = self._units.get(broker_name)
            if unit is None:
                able = await self._staging.able(broker_name, self._writer)
                unit = self._units[broker_name] = _Unit(able.max_unit)
            size = staged.size
            if size > unit.limit:
                raise MessageRefused(
                    index,
                    ClientError(
                        f"the message takes {size} bytes with its properties, broker {broker_name} stages at most "
                        f"{unit.limit} (maxMessageSize)"
                    ),
                )
            if unit.size and unit.size + size > min(unit.limit, UNIT_BYTES):
                await self._send(broker_name, unit)
            unit.messages.append(staged)
            unit.indexes.append(index)
            unit.size += size

    async def finish(self) -> StagedAttempt:
        """Stage the remaining messages, and wait until the brokers' disks have all of them."""
        for name, unit in self._units.items():
            await self._send(name, unit, last=True)
        await asyncio.gather(*(self._answered(unit) for unit in self._units.values()))
        return StagedAttempt(self._name, {name: unit.number for name, unit in self._units.items()})

    async def close(self) -> None:
        """Wait for in-flight requests and ignore their errors."""
        await asyncio.gather(*(self._answered(unit) for unit in self._units.values()), return_exceptions=True)

    async def _compose(
        self, message: Message, queue_id: MessageQueue | int | Origin | None
    ) -> tuple[str, StagedMessage]:
        plans = self._staging.plans
        topic = plans.wire_topic(message.topic)
        plan = await plans.make(topic)
        if isinstance(queue_id, MessageQueue):
            queue = queue_id
        elif queue_id is not None:
            queue = queue_by_id(plan.queues, message.topic, queue_id)
        elif message.sharding_key is not None:
            queue = select_by_hash(plan.queues, message, None)
        else:
            queue = plan.next_target().queue
        return queue.broker_name, self._staging.builder.staged(message, queue.queue_id)

    async def _send(self, broker_name: str, unit: _Unit, *, last: bool = False) -> None:
        # One unit is in flight while the next is collected.
        await self._answered(unit)
        body, indexes = encode_unit(unit.messages), unit.indexes
        number, unit.number = unit.number, unit.number + bool(body)
        unit.messages, unit.indexes, unit.size = [], [], 0
        now_ms = self._staging.instance.clock.now_ms()
        work = self._stage(broker_name, body, indexes, number=number, born_timestamp=now_ms, last=last)
        unit.sending = start_awaited(work)

    async def _answered(self, unit: _Unit) -> None:
        sending, unit.sending = unit.sending, None
        if sending is not None:
            await sending

    async def _stage(self, broker_name: str, body: bytes, indexes: list[int], **header: Any) -> None:
        code = RequestCode.STAGE_MESSAGES
        reply = await self._staging.stage(
            broker_name,
            body,
            default_topic=names.AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            **self._header,
            **header,
        )
        answer = read_reply(code, reply)
        if reply.code == ResponseCode.SUCCESS:
            self.decided = self.decided or answer.decided
            return
        error = broker_error(reply, broker_name)
        if answer.refused is not None and answer.refused < len(indexes):
            raise MessageRefused(indexes[answer.refused], error)
        raise error


class _Unit:
    """The messages collected for a broker."""

    __slots__ = ("indexes", "limit", "messages", "number", "sending", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages: list[StagedMessage] = []
        self.indexes: list[int] = []
        self.size = 0
        self.number = 0
        self.sending: asyncio.Task[None] | None = None


def _value(reply: Command, address: str = "") -> str | None:
    """Return the value in the answer to a GET_KV_CONFIG; None when the key has no value."""
    if reply.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    value: str | None = read_reply(RequestCode.GET_KV_CONFIG, check(reply, address)).value
    return value


class Origin(NamedTuple):
    """The queue that a message was read from; a copy of the message goes to the counterpart of this queue.

    Attributes:
        broker_name: its broker; None when unknown.
        queue_id: its id.
    """

    broker_name: str | None
    queue_id: int

    def counterpart(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Return the queue for all messages of this origin.

        It is the queue of the same broker and id, or the only queue with this id. Otherwise the hash of the origin's
        broker and id chooses one.

        Args:
            queues: queues of the topic; at least one.
        """
        same = [queue for queue in queues if queue.queue_id == self.queue_id]
        named = [queue for queue in same if queue.broker_name == self.broker_name]
        if len(named or same) == 1:
            return (named or same)[0]
        turn = crc32((self.broker_name or "").encode()) + self.queue_id
        return sorted(queues)[turn % len(queues)]


def queue_by_id(queues: Sequence[MessageQueue], topic: str, queue_id: int | Origin) -> MessageQueue:
    """Return the only queue of a topic with this id, or the counterpart of another topic's queue.

    Raises:
        ClientError: no broker or several brokers have such a queue.
    """
    if isinstance(queue_id, Origin):
        return queue_id.counterpart(queues)
    found = [queue for queue in queues if queue.queue_id == queue_id]
    if len(found) != 1:
        raise ClientError(
            f"queueId {queue_id} of topic {topic} names "
            f"{' and '.join(map(str, found)) or 'no queue'}; there are {', '.join(map(str, queues))}"
        )
    return found[0]
