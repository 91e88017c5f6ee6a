"""Exceptions of callbacks that are no `Exception`: some become a failure, and some leave the task."""

import asyncio
import threading
from concurrent import futures

import pytest

from tianzhou.errors import CallbackExit
from tianzhou.remoting.callbacks import call_in_thread, failure_of


def in_thread(function):
    """Call a function in another thread and return its result."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError("mine")])
def test_an_exception_that_ends_programs_or_tasks_is_the_cause_of_a_failure(error):
    failure = failure_of(error)
    assert type(failure) is CallbackExit
    assert failure.__cause__ is error
    assert type(error).__name__ in str(failure)


def test_an_ordinary_exception_is_its_own_failure():
    error = KeyError("k")
    assert failure_of(error) is error


def test_ctrl_c_leaves_in_the_main_thread_alone():
    with pytest.raises(KeyboardInterrupt):
        failure_of(KeyboardInterrupt())
    assert isinstance(in_thread(lambda: failure_of(KeyboardInterrupt())), CallbackExit)


async def test_a_cancellation_leaves_when_the_task_was_cancelled_and_not_when_the_callback_raised_it():
    task = asyncio.current_task()
    assert isinstance(failure_of(asyncio.CancelledError(), task), CallbackExit)
    task.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            failure_of(asyncio.CancelledError(), task)
    finally:
        task.uncancel()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SystemExit(3), CallbackExit),
        (KeyboardInterrupt(), CallbackExit),
        (asyncio.CancelledError(), CallbackExit),
        (futures.CancelledError(), futures.CancelledError),
        (StopIteration(4), RuntimeError),
        (ValueError("v"), ValueError),
    ],
)
async def test_every_exception_of_a_thread_arrives(error, kind):
    def fail(_):
        raise error

    with futures.ThreadPoolExecutor(1) as threads, pytest.raises(kind) as caught:
        await call_in_thread(threads, fail, "argument")
    assert error in {caught.value, caught.value.__cause__}
    assert await call_in_thread(None, divmod, 7, 2) == (3, 1)
