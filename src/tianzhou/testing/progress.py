"""The messages of a topic at a broker of this process, and the messages that a group has still to consume."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tianzhou.broker.delays.delay import waiting_room
from tianzhou.broker.server import Broker
from tianzhou.errors import ClientError, ProtocolError, RemotingError
from tianzhou.model import MessageExt, MessageModel, MessageQueue, names
from tianzhou.records.codec import Record, decode_record
from tianzhou.remoting.connection import Connection
from tianzhou.store.results import ReadRequest
from tianzhou.wire.bodies.offsets import OFFSET_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.pulled import to_message

SLICE = 64
ASK_TIMEOUT_MS = 1000


async def dispatched(broker: Broker) -> None:
    """Wait until the queues show all messages of the log, as far as the loop can complete that."""
    store = broker.store
    for _ in range(10_000):
        if all(
            store.max_offset(topic, queue) == store.max_offset(topic, queue, committed=False)
            for topic in store.topics()
            for queue in store.queues(topic)
        ):
            return
        await asyncio.sleep(0)


def records(broker: Broker, topic: str, queue_id: int, offset: int = 0) -> Iterator[Record]:
    """Yield a queue's records from an offset on, or from the first existing one."""
    store = broker.store
    offset = max(offset, store.min_offset(topic, queue_id))
    end = store.max_offset(topic, queue_id)
    while offset < end:
        found = store.read(ReadRequest(topic, queue_id, offset, SLICE), blocks=True)
        for view in found.parts:
            yield decode_record(view)
        offset = max(found.next_offset, offset + 1)


def messages(broker: Broker, topic: str) -> list[MessageExt]:
    """Return all messages of the queues of a topic, in the order of their storage at the broker."""
    found = [
        message
        for queue_id in broker.store.queues(topic)
        for record in records(broker, topic, queue_id)
        for message in to_message(record, broker.settings.broker_name)
    ]
    return sorted(found, key=lambda message: message.commitlog_offset)


def waiting(broker: Broker) -> list[tuple[str, str, int]]:
    """Return the delayed messages: target topic, original topic of a retry (or empty), and due time in ms."""
    ledger, found = broker.tables.delays, []
    for level in ledger.levels:
        topic, queue_id = waiting_room(level)
        for record in records(broker, topic, queue_id, ledger.offset(level)):
            properties = decode_properties(record.properties)
            due_ms = record.store_timestamp + ledger.levels_ms[level - 1]
            found.append((properties.get(names.REAL_TOPIC, ""), properties.get(names.RETRY_TOPIC, ""), due_ms))
    return found


def next_due_ms(broker: Broker) -> Iterator[int]:
    """Yield the due time of the first message of each delay level with messages, ms since the epoch."""
    ledger, store = broker.tables.delays, broker.store
    for level in ledger.levels:
        topic, queue_id = waiting_room(level)
        if store.max_offset(topic, queue_id) > ledger.offset(level):
            for record in records(broker, topic, queue_id, ledger.offset(level)):
                yield record.store_timestamp + ledger.levels_ms[level - 1]
                break


class Left(NamedTuple):
    """The messages that a group has still to consume at a broker.

    Attributes:
        texts: descriptions; empty when the group has consumed all messages.
        due_ms: due time of the first retry, when only retries are left; else None.
    """

    texts: list[str]
    due_ms: int | None


async def left(broker: Broker, group: str, topic: str) -> Left:
    """Return the messages of a topic that a group has still to consume at this broker.

    They include the group's retries of messages of the topic, also retries that are not due yet.
    """
    await dispatched(broker)
    retry = names.retry_topic(group)
    name = broker.settings.broker_name
    found = []
    for where in (topic, retry):
        behind = await _behind(broker, group, where)
        if behind:
            found.append(f"{behind} of {where}@{name}")
    due = [due_ms for to, origin, due_ms in waiting(broker) if to == retry and origin in (topic, "")]
    if not due:
        return Left(found, None)
    retries = f"{len(due)} that will be delivered again, waiting for their time at {name}"
    return Left([*found, retries], None if found else min(due))


async def left_anywhere(brokers: Collection[Broker], group: str, topic: str) -> Left:
    """Return the messages of a topic that a group has still to consume at these brokers, with hints at the cause.

    Raises:
        ClientError: there is no such topic.
    """
    if not any(topic in one.tables.topics for one in brokers):
        known = sorted({name for one in brokers for name in one.tables.topics.all() if not _inner(one, name)})
        raise ClientError(f"no running broker has topic {topic}; topics are {', '.join(known) or 'none yet'}")
    if not any(one.tables.groups.get(group) for one in brokers):
        return Left([f"no consumer of group {group} has ever connected"], None)
    parts = [await left(one, group, topic) for one in brokers]
    texts = [text for part in parts for text in part.texts]
    due = [part.due_ms for part in parts if part.texts]
    if texts and not any(group in one.tables.clients.consumers for one in brokers):
        return Left([*texts, "no consumer of the group is connected now"], None)
    return Left(texts, None if None in due else min(filter(None, due), default=None))


def _inner(broker: Broker, topic: str) -> bool:
    return broker.tables.topics.is_system(topic) or topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))


async def _behind(broker: Broker, group: str, topic: str) -> int:
    store, offsets = broker.store, broker.tables.offsets
    missing: dict[int, tuple[int, int]] = {}
    online = broker.tables.clients.consumers.get(group)
    broadcast = online is not None and online.message_model is MessageModel.BROADCASTING
    for queue_id in store.queues(topic):
        end = store.max_offset(topic, queue_id)
        committed = -1 if broadcast else offsets.committed(group, topic, queue_id)
        at = store.min_offset(topic, queue_id) if committed is None else committed
        if at < end:
            missing[queue_id] = (at, end)
    if not missing or online is None:
        return sum(end - max(at, 0) for at, end in missing.values())
    # Consumers commit every few seconds; the offsets in their status are newer.
    reports = [await _reported(connection, group, topic) for connection in list(online.clients)]
    behind = 0
    for queue_id, (at, end) in missing.items():
        queue = MessageQueue(topic, broker.settings.broker_name, queue_id)
        reported = [report[queue] for report in reports if queue in report]
        # In broadcasting, every member gets every message.
        everyone = bool(reported) and len(reported) == len(reports)
        reached = max([at, *reported]) if not broadcast else min(reported) if everyone else 0
        behind += max(end - max(reached, 0), 0)
        if reached < end and (offsets.pull_offset(group, topic, queue_id) or 0) < end:
            # A held pull reports the messages that its filter skipped only when it ends. Otherwise that is after many
            # seconds.
            offsets.on_reset(group, topic, queue_id)
    return behind


async def _reported(connection: object, group: str, topic: str) -> dict[MessageQueue, int]:
    assert isinstance(connection, Connection)
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    try:
        answer = await connection.invoke(
            Command(code, fields=write_header(code, topic=topic, group=group)), ASK_TIMEOUT_MS
        )
        return dict(OFFSET_TABLE.loads(answer.body)) if answer.code == ResponseCode.SUCCESS else {}
    except (RemotingError, ProtocolError):
        return {}
