"""The background loop of blocking clients: causes of its end, and the errors that its callers get."""

import asyncio
import logging
import sys
import threading

import pytest

from tianzhou.errors import ClientError
from tianzhou.remoting.loop import loop_factory
from tianzhou.sync import background as module
from tianzhou.sync.background import Background

LOOPS = sorted({asyncio.new_event_loop, loop_factory()}, key=lambda factory: factory.__module__)


@pytest.fixture(params=LOOPS, ids=lambda factory: factory.__module__)
def background(request):
    made = Background(request.param())
    yield made
    made.stop()


async def seven():
    await asyncio.sleep(0)
    return 7


async def exits(kind):
    raise kind(3)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_a_call_is_raised_in_its_own_thread_and_the_loop_lives(background, kind):
    with pytest.raises(kind):
        background.run(exits(kind))
    assert background.run(seven()) == 7


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exit_of_another_task_or_callback_is_logged_and_pending_calls_go_on(background, caplog, kind):
    go_on = asyncio.Event()
    tasks = []

    async def wait():
        tasks.append(asyncio.ensure_future(exits(kind)))
        await go_on.wait()
        return "done"

    def quit_now():
        sys.exit(4)

    background.loop.call_soon_threadsafe(quit_now)
    background.loop.call_soon_threadsafe(lambda: background.loop.call_later(0.01, go_on.set))
    with caplog.at_level(logging.ERROR, "tianzhou.sync.background"):
        assert background.run(wait()) == "done"
    assert background.run(seven()) == 7
    said = [record for record in caplog.records if record.name == "tianzhou.sync.background"]
    assert {record.exc_info[0] for record in said} == {SystemExit, kind}
    assert tasks[0].exception() is not None


def test_when_the_loop_is_stopped_pending_and_later_calls_raise_one_error(background):
    began = threading.Semaphore(0)
    errors = []

    async def wait():
        began.release()
        await asyncio.Event().wait()

    def call():
        try:
            background.run(wait())
        except ClientError as error:
            errors.append(str(error))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for _ in callers:
        assert began.acquire(timeout=20)
    background.loop.call_soon_threadsafe(background.loop.stop)
    for caller in callers:
        caller.join(20)
        assert not caller.is_alive()
    with pytest.raises(ClientError, match=r"has ended, because .* make new ones") as later:
        background.run(seven())
    assert errors == [str(later.value)] * 3


def test_when_the_loop_itself_fails_its_calls_name_the_reason(monkeypatch, caplog):
    loop = asyncio.new_event_loop()
    fail = threading.Event()

    def broken(self_run=loop._run_once):
        if fail.is_set():
            raise MemoryError("no room for events")
        self_run()

    monkeypatch.setattr(loop, "_run_once", broken)
    background = Background(loop)

    async def wait():
        fail.set()
        await asyncio.Event().wait()

    for work in (wait(), seven()):
        with pytest.raises(ClientError, match="MemoryError: no room for events"):
            background.run(work)
    assert [record.name for record in caplog.records if record.exc_info] == ["tianzhou.sync.background"]


def test_objects_made_after_the_end_get_another_loop():
    first = module.replace(None)
    try:
        ended = module.background()
        ended.loop.call_soon_threadsafe(ended.loop.stop)
        ended._thread.join(20)
        assert module.background() is not ended
        assert module.background().run(seven()) == 7
    finally:
        module.background().stop()
        module.replace(first)
