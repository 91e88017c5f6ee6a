"""Ctrl-C in the middle of a command, at any place of the interpreter."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tianzhou.cli import main
from tianzhou.cli.signals import ShutdownSignals

LIMIT_S = 20.0


class Interrupted:
    """An object whose finalizer is interrupted, where Python prints the error and continues."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)
        # The place where the handler runs, in case it has not run yet.
        time.sleep(0)


def forked() -> None:
    os.register_at_fork(after_in_parent=_interrupted_once())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _interrupted_once():
    pending = [signal.SIGINT]
    return lambda: pending and signal.raise_signal(pending.pop())


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.parametrize("ignored_in", [Interrupted, forked])
def test_an_interruption_that_python_ignores_comes_again(ignored_in, capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()

    def work() -> None:
        with ShutdownSignals(LIMIT_S, lambda _: ended.set()):
            ignored_in()
            time.sleep(LIMIT_S)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not ended.is_set()
    assert "Traceback" not in capsys.readouterr().err


def test_an_interruption_that_comes_again_while_the_hook_runs_is_raised_behind_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signals = [signal.SIGINT]
    start = _thread.start_new_thread

    def start_late(*work: Any) -> int:
        if signals:
            signal.raise_signal(signals.pop())
            return 0
        return start(*work)

    monkeypatch.setattr(_thread, "start_new_thread", start_late)

    def work() -> None:
        with ShutdownSignals(LIMIT_S, lambda _: None):
            del [Interrupted()][0]
            time.sleep(LIMIT_S)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signals == []
    assert "Traceback" not in capsys.readouterr().err


def test_other_errors_that_python_ignores_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    shown = []
    monkeypatch.setattr("sys.unraisablehook", lambda ignored: shown.append(str(ignored.exc_value)))
    with ShutdownSignals(LIMIT_S, lambda _: None):
        Broken()
    assert shown == ["broken"]


def test_what_a_library_logs_of_an_interruption_is_shown_to_nobody() -> None:
    # Use a separate process: the watchdog of an interruption ends a process that continues.
    work = """
import logging, signal, time
from tianzhou.cli.children import interruptible

logging.basicConfig(format="%(message)s")
with interruptible():
    logging.getLogger("py4j").warning("before")
    try:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(20)
    except KeyboardInterrupt:
        logging.getLogger("py4j").error("while sending a command")
        logging.getLogger("tianzhou.cli").warning("ours")
        raise
"""
    ended = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, timeout=60)
    shown = [line for line in ended.stderr.splitlines() if line in ("before", "while sending a command", "ours")]
    assert shown == ["before", "ours"]


def exit_code_of(work: Callable[[Callable[[], None]], None]) -> object:
    """Run a command whose Ctrl-C Python handles, and return its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as ended:
            main.run_command(work, "tianzhou")
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return ended.value.code


def test_an_interruption_of_a_command_that_python_ignores_comes_again() -> None:
    def work(imported: Callable[[], None]) -> None:
        imported()
        del [Interrupted()][0]
        time.sleep(LIMIT_S)

    hook, began = sys.unraisablehook, time.monotonic()
    assert exit_code_of(work) == 130
    assert time.monotonic() - began < LIMIT_S
    assert sys.unraisablehook is hook


def test_an_interruption_that_an_import_caught_ends_the_command_before_it_serves() -> None:
    def work(imported: Callable[[], None]) -> None:
        imported()
        # Libraries suppress errors in this way around an import that may fail.
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        with ShutdownSignals(LIMIT_S, os._exit):
            pytest.fail("it serves")

    assert exit_code_of(work) == 130
    with ShutdownSignals(LIMIT_S, lambda _: None):
        pass  # the next command of this process ignores the interruption


def test_an_interruption_that_the_interpreter_wraps_ends_the_command_without_a_traceback() -> None:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def work(imported: Callable[[], None]) -> None:
        imported()
        type("Imported", (), {"field": Field()})

    assert exit_code_of(work) == 130
