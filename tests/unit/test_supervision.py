"""Long-lived tasks: a failed one is restarted and logged, and is reported until it works again."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from tianzhou import shortages
from tianzhou.supervision import Supervisor
from tianzhou.testing.clock import START_MS, VirtualClock, run
from tianzhou.troubles import LONGEST_PAUSE_S, QUIET_S, Troubles, reason, summary

pytestmark = pytest.mark.runner.with_args(run)


def test_a_task_that_fails_is_begun_again_after_pauses_that_double(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    begun: list[float] = []

    async def work() -> None:
        begun.append(round(clock.monotonic(), 3))
        if len(begun) < 4:
            raise ValueError(f"trial {len(begun)}")
        await asyncio.sleep(3600)

    async def main() -> None:
        supervisor = Supervisor("broker", clock)
        supervisor.own("registration", work)
        await asyncio.sleep(0.75)
        assert begun == [0.0, 0.1, 0.3, 0.7]
        (trouble,) = supervisor.troubles.present()
        assert (trouble.name, trouble.count, trouble.why) == ("registration", 3, "ValueError: trial 3")
        assert trouble.since_ms == START_MS
        await asyncio.sleep(2)
        assert supervisor.troubles.present() == []
        assert supervisor.troubles.totals["registration"] == 3
        await supervisor.end()

    with caplog.at_level(logging.INFO):
        run(main(), clock)
    assert "broker: registration failed (3 in all); it is begun again in 0.4 s" in caplog.text
    assert "Traceback" in caplog.text
    assert "registration works again, after 3 failures" in caplog.text


async def test_a_cancellation_nobody_meant_does_not_end_a_task() -> None:
    asked: list[asyncio.Future[None]] = []

    async def work() -> None:
        asked.append(asyncio.get_running_loop().create_future())
        await asked[-1]

    supervisor = Supervisor("broker", VirtualClock())
    task = supervisor.own("acknowledgements", work)
    await asyncio.sleep(0)
    asked[0].cancel()
    await asyncio.sleep(1)
    assert len(asked) == 2
    assert not task.done()
    await supervisor.end()
    assert task.cancelled()


async def test_work_that_returns_has_ended_for_good() -> None:
    supervisor = Supervisor("store", VirtualClock())

    async def work() -> None:
        return

    task = supervisor.own("index", work)
    await asyncio.sleep(10)
    assert task.done()
    assert not supervisor.troubles.present()


def test_a_failure_that_lasts_is_logged_now_and_then_and_not_at_every_trial(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    supervisor = Supervisor("broker", clock)
    for _ in range(61):
        with supervisor.trial("write offsets"):
            raise OSError(errno.EIO, "input/output error")
        clock.advance(1)
    assert caplog.text.count("write offsets failed") == 61 // QUIET_S + 1
    with supervisor.trial("write offsets"):
        pass
    assert len(supervisor.troubles) == 0


def test_pauses_have_a_longest_and_what_is_shown_is_one_line() -> None:
    troubles = Troubles()
    for number in range(100):
        troubles.failed("T", ExceptionGroup("several", [ValueError("a\nb\x1b[2J")]), number, float(number))
    assert troubles.pause_s("T") == LONGEST_PAUSE_S
    assert troubles.pause_s("never failed") == 0.1
    assert summary(troubles.present()) == r"T failed 100 times in a row, last with ValueError: a\nb\x1b[2J"
    assert reason(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, "too many"), "ulimit -n"), (OSError(errno.ENFILE, "too many"), "fs.file-max"),
        (OSError(errno.ENOMEM, "no memory"), "vm.max_map_count"), (OSError(errno.ENOSPC, "no space"), "free space"),
        (OSError(errno.EDQUOT, "quota"), "quota"), (MemoryError(), "free memory"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)  # fmt: skip
def test_what_ran_out_passes_and_says_what_helps(error: Exception, words: str) -> None:
    assert shortages.passes(error)
    assert words in shortages.words(error)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad"), OSError("?"), RuntimeError("other"), ValueError()])
def test_what_is_broken_does_not_pass(error: Exception) -> None:
    assert not shortages.passes(error)
