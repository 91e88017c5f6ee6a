"""Event loops of tests: real time, an end, and no task left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run_bounded(
    main: Coroutine[Any, Any, None], factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
) -> None:
    async def bounded() -> None:
        before = asyncio.all_tasks()
        async with asyncio.timeout(30):
            await main
        assert asyncio.all_tasks() == before, "tasks were left behind"

    with asyncio.Runner(loop_factory=factory) as loop:
        loop.run(bounded())
