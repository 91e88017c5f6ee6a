"""Handlers in processes of their own."""

import asyncio
import os
import sys

import pytest

from tianzhou.client import in_processes
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.handlers import ConsumeContext, Handlers
from tianzhou.errors import CallbackExit, ClientError, ConfigError
from tianzhou.model import ConsumeResult, MessageQueue
from tianzhou.records.codec import Record, encode_record
from tianzhou.wire.bodies.handler_times import RunsIn
from tianzhou.wire.pulled import decode_messages

FUNCTIONS = """
import os, signal, time
from tianzhou.model import ConsumeResult

def pid_in(message):
    with open(message.properties["into"], "a") as file:
        file.write(f"{os.getpid()} {message.body.decode()}\\n")
    return ConsumeResult.RECONSUME_LATER

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one}{two}")

def act(message):
    if message.body == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if message.body == b"odd":
        raise Odd(4, 2)
    if message.body == b"exit":
        raise SystemExit(3)
    if message.body == b"interrupt":
        raise KeyboardInterrupt
    if message.body == b"stop":
        next(iter(()))
    if message.body == b"leave":
        os._exit(3)
    if message.body == b"bad":
        raise ValueError("bad")

def burn(message):
    began_s = time.process_time()
    time.sleep(0.05)
    while time.process_time() - began_s < 0.1:
        pass

async def asks(message): ...
def two(message, context): ...
inner = lambda message: None
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "functions_of_a_user.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import functions_of_a_user

    yield functions_of_a_user
    del sys.modules["functions_of_a_user"]


def message(body, **properties):
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    stored = encode_record(Record("T", 0, 0, 0, 0, 0, 0, bytes(4), 1, 0, bytes(4), 1, 0, 0, body, text))
    return decode_messages(stored, "b")[0]


def test_a_function_runs_elsewhere_and_its_answer_is_the_handlers(functions, tmp_path):
    handlers = Handlers("G", orderly=False, batch_size=1, threads=1)
    handlers.add("T", in_processes(functions.pid_in, 1))
    assert "T" in handlers.plain, "no thread stands between"
    context = ConsumeContext(MessageQueue("T", "b", 0))
    into = tmp_path / "seen"

    async def main():
        calls = [handlers.call("T", [message(b"%d" % n, into=into)], context) for n in range(3)]
        assert set(await asyncio.gather(*calls)) == {ConsumeResult.RECONSUME_LATER}
        handlers.close()

    asyncio.run(main())
    seen = [line.split() for line in into.read_text().splitlines()]
    assert sorted(body for _, body in seen) == ["0", "1", "2"]
    assert {int(pid) for pid, _ in seen}.isdisjoint({os.getpid()})
    assert len({pid for pid, _ in seen}) == 1


@pytest.mark.parametrize("hooks", [(), (lambda call: None,)])
def test_the_times_of_a_call_are_those_of_its_process(functions, hooks):
    rates = ConsumeRates(0.0)
    handlers = Handlers("G", orderly=False, batch_size=1, threads=1, rates=rates, hooks=hooks)
    handlers.add("T", in_processes(functions.burn, 1))

    async def main():
        if hooks:
            await handlers.call("T", [message(b"x")], ConsumeContext(MessageQueue("T", "b", 0)))
        else:
            await handlers.plain["T"](message(b"x"))
        handlers.close()

    asyncio.run(main())
    found = rates.times(handlers.runs_in)["T"]
    assert (found.messages, found.runs_in) == (1, RunsIn.processes)
    assert found.cpu_ms == pytest.approx(100, rel=0.15)
    assert found.wall_ms >= 149


async def test_errors_come_back_and_a_process_that_dies_is_followed_by_another(functions):
    handler = in_processes(functions.act, 1)
    try:
        with pytest.raises(ValueError, match="bad"):
            await handler(message(b"bad"))
        with pytest.raises(RuntimeError, match="Odd: 42"):
            await handler(message(b"odd"))
        with pytest.raises(CallbackExit, match="SystemExit: 3") as caught:
            await handler(message(b"exit"))
        assert "in act" in str(caught.value.__cause__), "the traceback of the process"
        with pytest.raises(CallbackExit, match="KeyboardInterrupt"):
            await handler(message(b"interrupt"))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await handler(message(b"stop"))
        for end in (b"die", b"leave"):
            with pytest.raises(ClientError, match=r"ran the handler act died: killed.*__main__.*delivered again"):
                await handler(message(end))
        assert await handler(message(b"good")) is None
    finally:
        handler.close()


def test_what_cannot_run_elsewhere_is_refused_at_once_with_the_reason(functions):
    def inside(message): ...

    for function, reason in (
        (inside, "inside cannot be given to other processes.*top level of a module"),
        (functions.inner, "lambda.*top level of a module"),
        (functions.asks, "asks is async.*plain function"),
        (functions.two, "two cannot run in other processes.*the message alone"),
        ("name", "needs a function"),
    ):
        with pytest.raises(ClientError, match=reason):
            in_processes(function)
    with pytest.raises(ConfigError, match="processes is 0"):
        in_processes(functions.act, 0)
