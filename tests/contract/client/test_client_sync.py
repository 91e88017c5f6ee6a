"""The blocking classes at work: with our server in the background loop they share."""

import asyncio
import os
import threading
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from own_server import own_server

from tianzhou import ConsumeFromWhere, Message, sync
from tianzhou.errors import ClientError, ConnectFailed, TooManyRequests
from tianzhou.sync.background import background

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@contextmanager
def served(folder):
    server = own_server(folder)
    address = background().run(server.__aenter__())
    try:
        yield address
    finally:
        background().run(server.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with served(tmp_path_factory.mktemp("server")) as address:
        yield address


def test_send_iterate_poll_and_look(namesrv):
    with sync.Producer("P", namesrv) as producer, sync.Admin(namesrv) as admin:
        admin.topics.create("S1", read_queue_nums=2, write_queue_nums=2)
        results = [producer.send(Message("S1", b"%d" % i)) for i in range(50)]
        producer.send_batch([Message("S1", b"%d" % i) for i in range(50, 60)])
        with sync.PushConsumer("G1", namesrv, consume_from_where=FIRST) as consumer:
            consumer.subscribe("S1")
            seen = []
            for message in consumer:
                seen.append(message.body)
                if len(seen) == 60:
                    break
            assert len({queue for queue in consumer.assignment if queue.topic == "S1"}) == 2
        assert sorted(map(int, seen)) == list(range(60))
        assert admin.groups.lag("G1", "S1").total == 0
        assert admin.messages.view("S1", results[3].msg_id).body == b"3"
        with sync.PullConsumer("G2", namesrv, consume_from_where=FIRST) as reader:
            queues = reader.queues("S1")
            reader.assign(queues)
            polled = []
            while len(polled) < 60:
                polled += reader.poll()
            assert sum(reader.max_offset(queue) for queue in queues) == 60
            assert [reader.position(queue) for queue in queues] == [reader.max_offset(queue) for queue in queues]


def test_sends_that_return_at_once(namesrv):
    with sync.Producer("P", namesrv) as producer, sync.Admin(namesrv) as admin:
        admin.topics.create("S9", read_queue_nums=2, write_queue_nums=2)
        called, done = [], threading.Semaphore(0)

        def note(result, error):
            called.append((result, error))
            done.release()

        futures = []

        def send(first):
            futures.extend(
                producer.send_async(Message("S9", b"%d" % number), callback=note) for number in range(first, first + 50)
            )

        threads = [threading.Thread(target=send, args=(first,)) for first in (0, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        results = [future.result(20) for future in futures]
        for _ in range(100):
            assert done.acquire(timeout=20)
        assert {result.msg_id for result in results} == {result.msg_id for result, _ in called}
        assert {error for _, error in called} == {None}
        assert admin.topics.describe("S9").message_count == 100
        refused = producer.send_async(Message("S9", b""), callback=note)
        with pytest.raises(ClientError, match="at least one byte"):
            refused.result(20)
        assert done.acquire(timeout=20)
        assert isinstance(called[-1][1], ClientError)


def test_a_callback_may_send_and_an_error_of_it_harms_no_other_send(namesrv):
    with sync.Producer("P", namesrv) as producer:
        chained = Future()

        def fail(result, error):
            raise ValueError("not today")

        def again(result, error):
            producer.send_async(Message("S10", b"second")).add_done_callback(chained.set_result)

        producer.send_async(Message("S10", b"first"), callback=fail).result(20)
        producer.send_async(Message("S10", b"first"), callback=again).result(20)
        assert chained.result(20).result(20).queue_offset >= 0


def test_threads_wait_while_too_much_is_in_flight(namesrv):
    limits = {"back_pressure_for_async_send_num": 10, "back_pressure_for_async_send_size": 1 << 20}
    with sync.Producer("P", namesrv, **limits) as producer:
        producer.send(Message("S11", b"warm"))
        gate = threading.Event()
        background().loop.call_soon_threadsafe(gate.wait, 20)  # no send completes meanwhile
        held = [producer.send_async(Message("S11", b"x")) for _ in range(10)]
        with pytest.raises(TooManyRequests, match=r"10 messages of 10 bytes are in flight.*async_send_num 10"):
            producer.send_async(Message("S11", b"x"), timeout_ms=50)
        gate.set()
        assert all(future.result(20) for future in held)
        assert producer.send_async(Message("S11", b"x")).result(20)


def test_handlers_may_block_and_send(namesrv):
    with sync.Producer("P", namesrv) as producer, sync.Admin(namesrv) as admin:
        admin.topics.create("S2")
        admin.topics.create("S2-out")
        done = threading.Semaphore(0)
        consumer = sync.PushConsumer("G3", namesrv, consume_from_where=FIRST)

        @consumer.on("S2")
        def forward(message):
            producer.send(Message("S2-out", message.body))
            done.release()

        with consumer:
            for i in range(20):
                producer.send(Message("S2", b"%d" % i))
            for _ in range(20):
                assert done.acquire(timeout=20)
        assert admin.topics.describe("S2-out").message_count == 20


def test_an_error_in_the_loop_sends_the_message_back(namesrv):
    with sync.Producer("P", namesrv) as producer:
        producer.send(Message("S3", b"again"))

    def stop_at_the_first() -> None:
        with sync.PushConsumer("G4", namesrv, consume_from_where=FIRST) as consumer:
            consumer.subscribe("S3")
            for _ in consumer:
                raise KeyError("no")

    with pytest.raises(KeyError):
        stop_at_the_first()
    with sync.PushConsumer("G4", namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe("S3")
        message = next(iter(consumer))
    assert (message.body, message.topic, message.reconsume_times) == (b"again", "S3", 1)


def test_many_threads_share_a_producer(namesrv):
    with sync.Producer("P", namesrv) as producer:
        ids = []

        def work() -> None:
            ids.extend(producer.send(Message("S4", b"x")).msg_id for _ in range(50))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(set(ids)) == 400


def test_errors_are_those_of_the_async_classes():
    with sync.Producer("P", "127.0.0.1:9") as producer, pytest.raises(ConnectFailed, match="no name server answers"):
        producer.send(Message("T", b"x"))


def test_a_blocking_call_inside_the_loop_is_refused(namesrv):
    producer = sync.Producer("P", namesrv)

    async def inside() -> None:
        producer.start()

    with pytest.raises(ClientError, match=r"use tianzhou\.client there"):
        background().run(inside())


def test_in_another_event_loop_it_just_blocks(namesrv):
    async def main() -> int:
        with sync.Producer("P", namesrv) as producer:
            return producer.send(Message("S5", b"x")).queue_offset

    assert asyncio.run(main()) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_its_own_loop(namesrv):
    with sync.Producer("P", namesrv) as producer:
        producer.send(Message("S6", b"parent"))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                try:
                    producer.send(Message("S6", b"x"))
                except ClientError as error:
                    os.write(writer, b"refused;" if "make one after the fork" in str(error) else b"?;")
                with sync.Producer("P", namesrv) as own:
                    own.send(Message("S6", b"child"))
                os.write(writer, b"sent")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"refused;sent"
        producer.send(Message("S6", b"parent"))
