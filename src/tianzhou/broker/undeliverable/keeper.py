"""Storage of undeliverable messages, and their delivery on request (docs/adr/0029)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tianzhou.broker.messages.put_codes import code_of, is_stored, remark_of
from tianzhou.broker.messages.retry_queues import readable_queue
from tianzhou.broker.undeliverable import set_aside as records
from tianzhou.broker.undeliverable.ledger import Named
from tianzhou.errors import BrokerError, CorruptRecord
from tianzhou.model import names
from tianzhou.records.codec import Record, decode_record
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.results import OF_BROKER, GetResult, NewRecord, PutResult, ReadRequest
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import (
    LEDGER,
    MARK_QUEUE,
    NO_BODY,
    PLACE,
    QUEUE,
    QUEUES,
    REASON,
    TARGET,
    SetAsideMessage,
    UndeliverableWalk,
    kept_message,
    marked,
)

if TYPE_CHECKING:
    from tianzhou.broker.services import Services

SLICE = 32
COMMAND = "`tianzhou undelivered list` lists such messages, `tianzhou undelivered resend` delivers them"

_log = logging.getLogger(__name__)


class UndeliverableKeeper:
    """The I/O of the ledger of undeliverable messages.

    Args:
        services: the broker's services.
    """

    def __init__(self, services: Services) -> None:
        self._tables = services.tables
        self._ledger = services.tables.undeliverable
        self._store = services.store
        self._clock = services.clock
        self._host = services.host
        self._stats = services.stats

    async def load(self) -> None:
        """Restore the ledger from the log; to be awaited before requests are served."""
        store, topic = self._store, names.UNDELIVERABLE_TOPIC
        begin, end = max(store.min_offset(topic, QUEUE), 0), store.max_offset(topic, QUEUE)
        done: set[int] = set()
        found: list[tuple[int, Named, str]] = []
        await self._read(MARK_QUEUE, lambda record: done.update(marked(bytes(record.body))))
        await self._read(QUEUE, lambda record: found.append((record.queue_offset, *_described(record))))
        self._ledger.restore(begin, end, done, found)
        if waiting := len(self._ledger):
            _log.warning("%d messages are set aside because they cannot be delivered; %s", waiting, COMMAND)

    async def _read(self, queue_id: int, take: Callable[[Record], None]) -> None:
        topic, store = names.UNDELIVERABLE_TOPIC, self._store
        offset, end = max(store.min_offset(topic, queue_id), 0), store.max_offset(topic, queue_id)
        while offset < end:
            reading = store.read(ReadRequest(topic, queue_id, offset, SLICE))
            got = reading if isinstance(reading, GetResult) else await reading
            for view in got.parts:
                try:
                    take(decode_record(view))
                except CorruptRecord as error:
                    _log.error("%s: a record after offset %d is left out: %s", topic, offset, error)
            offset = max(got.next_offset, offset + 1)
            await asyncio.sleep(0)

    def close(self) -> None:
        """Clear the ledger, because this broker is no longer the master."""
        self._ledger.clear()

    # setting aside

    def set_aside(self, ledger: UndeliverableWalk, message: SetAsideMessage, place: int, reason: str) -> bool:
        """Store an undeliverable message in the topic of such messages, so that its ledger can continue.

        Args:
            ledger: the ledger that sets it aside.
            message: the message.
            place: commit-log offset of its source record; -1 for none.
            reason: why it cannot be delivered.

        Returns:
            Whether it is stored. If not, the store refuses messages now, and the caller has to retry.
        """
        self._tables.topics.ensure(names.UNDELIVERABLE_TOPIC, QUEUES, self._clock.now_ms(), bounded=False)
        record = records.aside_record(message, ledger, reason, place, self._clock.now_ms(), *self._host)
        result = self._store.append(record, plan=OF_BROKER)
        if result.status in records.REPEATS and place >= 0:
            record = records.without_body(record, message)
            result = self._store.append(record, plan=OF_BROKER)
        if not is_stored(result.status):
            self._warn(ledger, message, place, f"{reason}; it cannot be set aside either now: {remark_of(result)}")
            return False
        self._ledger.set_aside(result.queue_offset, Named(str(ledger), message.topic), reason)
        self._warn(
            ledger,
            message,
            place,
            f"{reason}; it is set aside at offset {result.queue_offset} of {names.UNDELIVERABLE_TOPIC} and holds up no "
            f"other message; {COMMAND}",
        )
        return True

    def _warn(self, ledger: UndeliverableWalk, message: SetAsideMessage, place: int, text: str) -> None:
        held = self._ledger.lines.due((ledger, message.topic), self._clock.monotonic())
        if held is None:
            return
        key = decode_properties(message.properties).get(names.UNIQ_KEY, "")
        more = f" ({held} such lines were left out since the last one)" if held else ""
        _log.error(
            "%s: message %s (commit-log offset %d) for topic %s, queue %d cannot be delivered: %s%s",
            ledger, key or "without a key", place, message.topic or "(none)", message.queue, text, more,
        )  # fmt: skip

    # delivering after all

    def waiting(self) -> int:
        """Return the number of messages that are set aside."""
        self._ledger.expired(max(self._store.min_offset(names.UNDELIVERABLE_TOPIC, QUEUE), 0))
        return len(self._ledger)

    def resend(self, aside: Record, topic: str) -> Steps[PutResult]:
        """Deliver a message that was set aside.

        Args:
            aside: the record with the message.
            topic: the topic to deliver to in place of its own; empty for its own.

        Raises:
            BrokerError: the message was delivered before, or it still cannot be delivered.
        """
        offset = aside.queue_offset
        if not self._ledger.is_waiting(offset):
            raise BrokerError(ResponseCode.ILLEGAL_OPERATION, f"the message at offset {offset} was delivered before")
        message = yield from self._message(aside)
        record = self._delivery(message, topic)
        if not self._ledger.is_waiting(offset):
            # Another request delivered the message while its body was read.
            raise BrokerError(ResponseCode.ILLEGAL_OPERATION, f"the message at offset {offset} was delivered before")
        result = self._store.append(record)
        if not is_stored(result.status):
            raise BrokerError(
                code_of(result.status),
                f"the message at offset {offset} still cannot be delivered to topic {record.topic}, queue "
                f"{record.queue_id}: {remark_of(result)}",
            )
        self._ledger.delivered([offset])
        written = self._store.append(records.mark([offset], self._clock.now_ms(), *self._host), plan=OF_BROKER)
        if not is_stored(written.status):
            _log.warning(
                "the mark that message %d of %s is delivered cannot be written (%s): the next start lists it again",
                offset, names.UNDELIVERABLE_TOPIC, remark_of(written),
            )  # fmt: skip
        size = result.end_offset - result.physical_offset
        self._stats.put(record.topic).add(record.queue_id, 1, size)
        self._stats.kinds.add_own(record.topic, size)
        return result

    def _message(self, aside: Record) -> Steps[SetAsideMessage]:
        properties = decode_properties(aside.properties)
        try:
            message = kept_message(bytes(aside.body))
        except ValueError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if NO_BODY in properties:
            place = int(properties.get(PLACE, "-1"))
            view = yield from self._store.lookups.record_steps(place)
            try:
                record = None if view is None else decode_record(view)
            except CorruptRecord:
                record = None
            if record is None:
                raise BrokerError(
                    ResponseCode.SYSTEM_ERROR, f"the log no longer has the body of the message, at offset {place}"
                )
            message.body = bytes(record.body)
        elif message.raw:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, "the bytes of the message form no record, so it cannot be delivered"
            )
        return message

    def _delivery(self, message: SetAsideMessage, topic: str) -> NewRecord:
        target = topic or message.topic
        config = self._tables.topics.get(target)
        if config is None or target == names.UNDELIVERABLE_TOPIC or names.HALF_TOPIC in (topic, target):
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the message cannot be delivered to topic[{target}]: create it, or name another topic that exists",
            )
        return records.delivery(message, target, readable_queue(config, message.queue))


def _described(record: Record) -> tuple[Named, str]:
    properties = decode_properties(record.properties)
    return Named(properties.get(LEDGER, ""), properties.get(TARGET, "")), properties.get(REASON, "")
