"""SQL92 subscriptions of our client against our own server, with and without bits in queue units."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from client_suite import Check, fresh, make_topic
from own_server import own_server
from sql_suite import CHECKS

from shared_loop import SharedLoop
from tianzhou import PushConsumer
from tianzhou.errors import BrokerError


@pytest.fixture(scope="module")
def namesrv(shared_loop: SharedLoop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the name server of a broker that filters by SQL92."""
    return shared_loop.open(own_server(tmp_path_factory.mktemp("server")))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sql_with_our_server(check: Check, namesrv: str, tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        await check(namesrv, tmp_path / "client")


async def test_a_broker_that_does_not_filter_says_what_to_set(tmp_path: Path) -> None:
    async with asyncio.timeout(60), own_server(tmp_path, enable_property_filter=False) as namesrv:
        consumer = PushConsumer(fresh("G"), namesrv)
        consumer.subscribe(await make_topic(namesrv, 1), sql="n > 1")
        with pytest.raises(BrokerError, match="set enablePropertyFilter=true at the broker"):
            await consumer.start()
