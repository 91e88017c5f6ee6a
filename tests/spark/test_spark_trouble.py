"""A stream while its server changes: retention deletes messages, the broker restarts, or cannot filter."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from frames import call
from own_server import own_server as serve
from source_suite import Peer, Stream, rows_of, until

from tianzhou import Message
from tianzhou.model import MessageQueue
from tianzhou.spark.source.queue_watch import LOOK_AROUND_S

DELETE_EXPIRED = 329


@pytest.fixture
def small(tmp_path) -> Iterator[Callable[..., Peer]]:
    """Return a function that starts servers with log segments of 16 MiB and further broker settings."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    with ExitStack() as stack:

        def start(**settings) -> Peer:
            server = serve(tmp_path / "small", **settings)
            peer = Peer(run(server.__aenter__()))
            stack.callback(lambda: run(server.__aexit__(None, None, None)))
            stack.callback(peer.close)
            return peer

        yield start
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def fill(peer: Peer, topic: str, count: int) -> None:
    """Send messages of 1 MiB, which compression does not shrink."""
    body = random.Random(7).randbytes(1 << 20)
    for _ in range(count):
        peer.producer.send(Message(topic, body))


def retire(peer: Peer, topic: str) -> int:
    """Let retention delete all segments but the last; return the queue's new minimum offset."""
    ((broker, address),) = peer.admin.cluster.masters().items()
    peer.admin.cluster.update_broker_config(address, {"fileReservedTime": "0"})
    queue = MessageQueue(topic, broker, 0)

    def begins() -> int:
        return peer.consumer.min_offset(queue)

    before = begins()
    assert call(address, DELETE_EXPIRED, {}).code == 0
    until(lambda: begins() > before, "retention deleted segments")
    return begins()


def test_retention_that_deletes_under_a_stream_is_named_exactly(spark, small, tmp_path) -> None:
    peer = small()
    topic = peer.create(1)
    fill(peer, topic, 40)
    options = peer.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    stream = Stream(spark, tmp_path, **options)
    beginning: list[int] = []

    def shorten(number: int) -> None:
        if number == 1:
            beginning.append(retire(peer, topic))
            time.sleep(LOOK_AROUND_S)  # else the next batch is cut to existing messages and reports only its part

    stream.after = shorten
    lost = f"messages of {topic}@{peer.broker}:0 from offset 10 to"
    with pytest.raises(Exception, match=lost) as caught:
        stream.run()
    (begin,) = beginning
    assert 10 < begin < 40
    assert f"{begin - 10} {lost} {begin - 1} are lost: the queue now begins at {begin}" in str(caught.value)
    lenient = Stream(spark, tmp_path, **options, failOnDataLoss=False)
    lenient.run()
    assert [row[2] for row in stream.rows + lenient.rows] == [*range(10), *range(begin, 40)]


def test_a_broker_that_cannot_filter_by_sql_says_what_to_set(spark, small) -> None:
    peer = small(enable_property_filter=False)
    options = peer.options(subscribe=peer.create(1), sql="n > 3")
    with pytest.raises(Exception, match=r"sql=n > 3: .*set enablePropertyFilter=true at the broker"):
        rows_of(spark.read.format("tianzhou").options(**options).load())


def test_a_broker_that_restarts_while_a_batch_is_read(spark, own_server, tmp_path) -> None:
    own_server.create("orders")
    own_server.send("orders", range(400), queue=0)
    options = {"namesrvAddr": own_server.address, "subscribe": "orders", "startingOffsets": "earliest"}
    stream = Stream(spark, tmp_path, **options, maxOffsetsPerTrigger=100, pollTimeoutMs=30_000)
    restarted: list[int] = []

    def restart(number: int) -> bool:
        if number == 1 and not restarted:
            restarted.append(number)
            threading.Thread(target=own_server.restart).start()  # while this batch and the next ones are read
        return False

    stream.broken = restart
    stream.run()
    if len(stream.rows) < 400:  # the topic was missing at the run's last check
        stream.run()
    assert sorted(row[2] for row in stream.rows) == list(range(400))
