"""Content of a simulated broker at the end of a run: the messages of each queue, and a digest of the log."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from tianzhou.broker.server import Broker
from tianzhou.errors import CorruptRecord
from tianzhou.records.codec import Record, decode_record
from tianzhou.store.results import ReadRequest
from tianzhou.testing.simulation.history import History, QueuePlace, Remains
from tianzhou.testing.simulation.load import TOPIC
from tianzhou.testing.simulation.servers import BrokerOn


def remains_of(server: BrokerOn, history: History) -> Remains:
    """Return the content of a running broker.

    Args:
        server: the broker.
        history: has the bodies of all messages that were sent.
    """
    broker = server.broker
    assert broker is not None
    store, name = broker.store, broker.settings.broker_name
    queues: dict[QueuePlace, list[tuple[int, str]]] = {}
    for queue in sorted(store.queues(TOPIC)):
        rows = queues[QueuePlace(name, TOPIC, queue)] = []
        for record in _intact(broker, queue):
            body = bytes(record.body)
            message = body.partition(b"/")[0].decode("utf-8", "backslashreplace")
            if history.bodies.get(message) != body:
                message = f"never sent: {body[:40]!r}"
            rows.append((record.queue_offset, message))
    digest = hashlib.blake2b(digest_size=8)
    at, end, size = store.begin_offset, store.end_offset, store.settings.mapped_file_size_commit_log
    begin = at
    while 0 <= at < end:
        part = min(size - at % size, end - at)
        found = store.log_bytes(at, part)
        if isinstance(found, memoryview):
            digest.update(found)
        at += part
    return Remains(server.name, name, server.is_master, queues, begin, end, digest.digest())


def _intact(broker: Broker, queue: int) -> Iterator[Record]:
    """Yield the records of a queue that a client accepts, in order."""
    store = broker.store
    for offset in range(store.min_offset(TOPIC, queue), store.max_offset(TOPIC, queue)):
        for view in store.read(ReadRequest(TOPIC, queue, offset, 1), blocks=True).parts:
            with contextlib.suppress(CorruptRecord):
                yield decode_record(view, check_crc=True)
