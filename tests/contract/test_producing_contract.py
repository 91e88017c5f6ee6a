"""Further checks of our producers against our own server, on one event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from client_suite import Check
from own_server import own_server
from producing_suite import CHECKS

from shared_loop import SharedLoop


@pytest.fixture(scope="module")
def namesrv(shared_loop: SharedLoop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name server's address of a broker that checks transactions after one second and every second."""
    quick = {"transaction_check_interval": 1_000, "transaction_time_out": 1_000}
    return shared_loop.open(own_server(tmp_path_factory.mktemp("server"), **quick))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_producing_with_our_server(check: Check, namesrv: str, tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        await check(namesrv, tmp_path / "client")
