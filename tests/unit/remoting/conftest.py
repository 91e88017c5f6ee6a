"""Import path of the shared helpers of connection tests.

Async tests of a module with `BOTH_LOOPS` run on asyncio's own loop and on the fastest one.
"""

from __future__ import annotations

import asyncio
import inspect
from functools import partial

import pytest
from loops import run_bounded

from tianzhou.remoting.loop import loop_factory


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if getattr(metafunc.module, "BOTH_LOOPS", False) and inspect.iscoroutinefunction(metafunc.function):
        loops = {"asyncio": asyncio.new_event_loop, "fastest": loop_factory()}
        marks = {
            name: pytest.mark.runner.with_args(partial(run_bounded, factory=factory)) for name, factory in loops.items()
        }
        metafunc.fixturenames.append("loop_kind")
        metafunc.parametrize("loop_kind", [pytest.param(name, marks=mark) for name, mark in marks.items()])
