"""Our producers' further promises against our own server, in one event loop."""

import asyncio

import pytest
from own_server import own_server
from producing_suite import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_producing_with_our_server(check, tmp_path):
    quick = {"transaction_check_interval": 1_000, "transaction_time_out": 1_000}
    async with asyncio.timeout(120), own_server(tmp_path, **quick) as namesrv:
        await check(namesrv, tmp_path / "client")
