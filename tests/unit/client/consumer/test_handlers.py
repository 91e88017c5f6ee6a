"""Arguments and results of handlers."""

import asyncio
import threading

import pytest

from tianzhou.client.consumer.push.handlers import ConsumeContext, Handlers
from tianzhou.errors import ClientError
from tianzhou.model import ConsumeResult, MessageQueue

CONTEXT = ConsumeContext(MessageQueue("T", "b", 0))


def call(handler, *, orderly=False, batch_size=1, messages=("m",)):
    handlers = Handlers("G", orderly=orderly, batch_size=batch_size, threads=2)
    handlers.add("T", handler)
    try:
        return asyncio.run(handlers.call("T", list(messages), CONTEXT))
    finally:
        handlers.close()


class Consumer:
    def __init__(self):
        self.seen = []

    async def plain(self, message):
        self.seen.append((message,))

    def with_context(self, message, context):
        self.seen.append((message, context))

    async def with_second(self, message, where):
        self.seen.append((message, where))

    def with_default(self, message, extra="x"):
        self.seen.append((message, extra))

    def with_optional_context(self, message, context=None):
        self.seen.append((message, context))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain", ("m",)),
        ("with_context", ("m", CONTEXT)),
        ("with_second", ("m", CONTEXT)),
        ("with_default", ("m", "x")),
        ("with_optional_context", ("m", CONTEXT)),
    ],
)
def test_a_second_parameter_gets_the_context(name, expected):
    consumer = Consumer()
    assert call(getattr(consumer, name)) is None
    assert consumer.seen == [expected]


def test_builtins_are_handlers_too():
    seen = []
    call(seen.append)
    assert seen == ["m"]


def test_batches_come_as_lists():
    seen = []
    call(seen.append, batch_size=3, messages=("a", "b"))
    assert seen == [["a", "b"]]


def test_sync_handlers_run_in_threads():
    names = []
    call(lambda message: names.append(threading.current_thread().name))
    assert names[0].startswith("consume-G")


@pytest.mark.parametrize("result", [None, *ConsumeResult])
@pytest.mark.parametrize("orderly", [False, True])
def test_answers_depend_on_the_order(orderly, result):
    wrong = {
        False: {ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT, ConsumeResult.COMMIT, ConsumeResult.ROLLBACK},
        True: {ConsumeResult.RECONSUME_LATER},
    }
    if result in wrong[orderly]:
        with pytest.raises(ClientError, match=r"topic T returned .*; return None or one of ConsumeResult\."):
            call(lambda message: result, orderly=orderly)
    else:
        assert call(lambda message: result, orderly=orderly) is result


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("value", [False, 42, [], {"status": "ok"}, "RECONSUME_LATER"])
def test_a_value_that_is_no_answer_means_consumed_and_is_warned_of_once(value, orderly, caplog):
    async def handler(message):
        return value

    handlers = Handlers("G", orderly=orderly, batch_size=1, threads=1)
    for made in (handler, lambda message: value):
        caplog.clear()
        handlers.add("T", made)
        assert [asyncio.run(handlers.call("T", ["m"], CONTEXT)) for _ in range(3)] == [None] * 3
        (line,) = [one.getMessage() for one in caplog.records if one.name.startswith("tianzhou")]
        assert f"of topic T in group G returned a value of type {type(value).__name__}, which is no answer" in line
        again = "SUSPEND_CURRENT_QUEUE_A_MOMENT" if orderly else "RECONSUME_LATER"
        assert line.endswith(f"to have a message again, raise or return ConsumeResult.{again}")
        handlers.close()


def test_missing_handlers_are_reported():
    handlers = Handlers("G", orderly=False, batch_size=1, threads=1)
    with pytest.raises(ClientError, match="has no handler for it"):
        asyncio.run(handlers.call("T", ["m"], CONTEXT))


async def test_more_threads_can_be_had_while_handlers_run():
    handlers = Handlers("G", orderly=False, batch_size=1, threads=1)
    barrier = threading.Barrier(3, timeout=10)
    handlers.add("T", lambda message: (barrier.wait(), None)[1])
    first = asyncio.create_task(handlers.call("T", ["m"], CONTEXT))
    await asyncio.sleep(0.01)
    handlers.resize(2)
    others = [asyncio.create_task(handlers.call("T", ["m"], CONTEXT)) for _ in range(2)]
    await asyncio.gather(first, *others)
    handlers.close()
