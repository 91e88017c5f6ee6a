"""Fixtures that are open while an async test runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import pytest

Opened = TypeVar("Opened", bound=AbstractAsyncContextManager[Any])


def open_for_test(request: pytest.FixtureRequest, resource: Opened) -> Opened:
    """Have the test run inside `async with resource`, on its own loop; returns the resource."""
    marker = request.node.get_closest_marker("runner")
    run = marker.args[0] if marker else asyncio.run

    async def opened(test: Coroutine[Any, Any, None]) -> None:
        async with resource:
            await test

    request.node.add_marker(pytest.mark.runner.with_args(lambda test: run(opened(test))), append=False)
    return resource
