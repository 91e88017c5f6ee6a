"""Fixtures that are open while an async test runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, TypeVar

import pytest

Opened = TypeVar("Opened", bound=AbstractAsyncContextManager[Any])


Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


def runner_of(test: pytest.Function) -> Run:
    """Return the function that runs an async test.

    This is the argument of the test's marker `runner`, else the module's `shared_loop` if a fixture of the test has
    requested it, else `asyncio.run`.
    """
    if marker := test.get_closest_marker("runner"):
        return marker.args[0]
    return test.funcargs["shared_loop"].run if "shared_loop" in test.fixturenames else asyncio.run


def open_for_test(request: pytest.FixtureRequest, resource: Opened) -> Opened:
    """Have the test run inside `async with resource`, on its own loop; returns the resource."""
    run = runner_of(request.node)

    async def opened(test: Coroutine[Any, Any, None]) -> None:
        async with resource:
            await test

    request.node.add_marker(pytest.mark.runner.with_args(lambda test: run(opened(test))), append=False)
    return resource
