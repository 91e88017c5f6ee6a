"""Callbacks that raise `SystemExit`, and interrupted programs, with our server in the same event loop."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager

import pytest
from own_server import own_server

from tianzhou import ConsumeFromWhere, Message, TransactionState, client, sync
from tianzhou.client import RetryPolicy
from tianzhou.errors import CallbackExit, ClientError
from tianzhou.sync.background import background

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
AFTER_A_SECOND = RetryPolicy(delays_s=1)
HANDLER_KINDS = ["thread", "async", "async-later", "hooked", "orderly", "batch"]


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


def exiting_handler(kind, error, seen, done):
    """Return a handler that raises an error for its first message, and the options of its consumer."""

    def consume(found):
        message = found[0] if isinstance(found, list) else found
        seen.append((message.body, message.reconsume_times))
        done.release()
        if len(seen) == 1:
            raise error

    async def consume_async(message):
        if kind == "async-later":
            await asyncio.sleep(0)
        consume(message)

    options = {
        "hooked": {"consume_hooks": [lambda call: sys.exit(7)]},
        "orderly": {"orderly": True},
        "batch": {"consume_message_batch_max_size": 4},
    }.get(kind, {})
    return (consume_async if kind.startswith("async") else consume), options


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("kind", HANDLER_KINDS)
def test_a_handler_that_exits_has_failed_and_every_other_client_goes_on(namesrv, kind, error, caplog):
    topic = f"E-{kind}-{type(error).__name__}"
    seen, done = [], threading.Semaphore(0)
    handler, options = exiting_handler(kind, error, seen, done)
    with sync.Producer("P", namesrv) as producer, sync.Admin(namesrv) as admin:
        admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        consumer = sync.PushConsumer(f"G-{topic}", namesrv, consume_from_where=FIRST, **options)
        consumer.subscribe(topic, handler=handler, retry=None if kind == "orderly" else AFTER_A_SECOND)
        with consumer:
            producer.send(Message(topic, b"first"))
            assert done.acquire(timeout=20)
            producer.send(Message(topic, b"second"))
            for _ in range(2):
                assert done.acquire(timeout=20)
        assert sorted(seen) == [(b"first", 0), (b"first", 1), (b"second", 0)]
    said = [record for record in caplog.records if "not consumed" in record.message]
    assert len(said) == 1
    assert "in consume" in said[0].exc_text
    assert type(error).__name__ in said[0].exc_text


def test_hooks_selectors_and_checks_that_exit_do_not_end_the_loop(namesrv):
    def exits(*_):
        raise SystemExit(3)

    with sync.Producer("P", namesrv, send_hooks=[exits], stamp_hooks=[exits]) as producer:
        assert producer.send(Message("H", b"x")).msg_id
        with pytest.raises(ClientError, match=r"queue selector failed.*SystemExit: 3"):
            producer.send(Message("H", b"x"), selector=exits)
    with (
        sync.Producer("P", namesrv, check_forbidden_hooks=[exits]) as producer,
        pytest.raises(ClientError, match=r"refused to send.*SystemExit: 3"),
    ):
        producer.send(Message("H", b"x"))
    with (
        sync.Producer("P", namesrv, rpc_hooks=[exits]) as producer,
        pytest.raises(CallbackExit, match="SystemExit: 3"),
    ):
        producer.send(Message("H", b"x"))
    with sync.TransactionProducer("TP", namesrv, check=exits, end_transaction_hooks=[exits]) as producer:
        result = producer.send_in_transaction(Message("H", b"x"), exits)
        assert result.state is TransactionState.UNKNOWN
    with sync.Producer("P", namesrv) as producer:
        assert producer.send(Message("H", b"x")).msg_id


def test_an_async_client_outlives_a_handler_that_exits(namesrv):
    seen = []

    async def main():
        done = asyncio.Event()

        async def consume(message):
            seen.append(message.reconsume_times)
            if len(seen) == 1:
                sys.exit("a library gave up")
            done.set()

        async with client.Producer("P", namesrv) as producer:
            await producer.send(Message("A", b"x"))
        consumer = client.PushConsumer("G-A", namesrv, consume_from_where=FIRST)
        consumer.subscribe("A", handler=consume, retry=AFTER_A_SECOND)
        async with consumer, asyncio.timeout(20):
            await done.wait()

    asyncio.run(main())
    assert seen == [0, 1]


PROGRAM = """
    import sys, time
    from tianzhou import ConsumeFromWhere, Message, sync
    consumer = sync.PushConsumer("G-I", sys.argv[1], consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    @consumer.on("I")
    def consume(message):
        print("consumed", flush=True)

    try:
        with consumer:
            with sync.Producer("P", sys.argv[1]) as producer:
                producer.send(Message("I", b"x"))
            time.sleep(60)
    finally:
        print("left", flush=True)
"""


def test_ctrl_c_ends_a_blocking_program_in_order(namesrv, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, script, namesrv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout.readline() == "consumed\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert out == "left\n"
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
