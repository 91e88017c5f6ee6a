"""Fixture `broker` for tests of a broker without sockets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench, OpenBench

from tianzhou.testing.clock import VirtualClock, run


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> OpenBench:
    """Opens a broker in virtual time: `async with broker(setting=value, store={...}) as bench`."""
    clock = VirtualClock()
    request.node.add_marker(pytest.mark.runner.with_args(partial(run, clock=clock)))

    def opened(store: dict[str, Any] | None = None, **settings: Any) -> Bench:
        return Bench(tmp_path / "store", clock, settings, store or {})

    return opened
