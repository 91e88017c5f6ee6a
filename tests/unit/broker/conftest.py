"""Fixtures for tests of a broker without sockets: `broker` opens one, `bench` is open, `peer` is its client."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from open_fixtures import open_for_test
from tianzhou.testing.clock import VirtualClock, run


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> OpenBench:
    """Opens a broker in virtual time: `async with broker(setting=value, store={...}) as bench`."""
    clock = VirtualClock()
    request.node.add_marker(pytest.mark.runner.with_args(partial(run, clock=clock)))

    def opened(store: dict[str, Any] | None = None, **settings: Any) -> Bench:
        return Bench(tmp_path / "store", clock, settings, store or {})

    return opened


@pytest.fixture
def bench(broker: OpenBench, request: pytest.FixtureRequest) -> Bench:
    """A broker with default settings, open while the test runs."""
    return open_for_test(request, broker())


@pytest.fixture
def peer(bench: Bench) -> Peer:
    """A client's connection to `bench`."""
    return bench.early_peer()
