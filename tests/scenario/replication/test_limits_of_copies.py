"""A slave has its master's limits of senders, including those set while the slave was down."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_broker import PairSite, pair_site, run

from tianzhou.broker.server import Broker
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


async def change(client: RemotingClient, broker: Broker, key: str, rate: float = 0) -> Command:
    """Set a limit, or delete it with a rate of 0."""
    fields = {"limit": key, "rate": str(rate), "burst": "7"} if rate else {"limit": key, "delete": "true"}
    return await client.invoke(broker.address, Command(int(RequestCode.UPDATE_SEND_LIMITS), fields=fields), 5_000)


def limits(broker: Broker) -> dict[str, float]:
    return {key: limit.rate for key, limit in broker.tables.send_limits.all().items()}


async def test_a_slave_follows_its_master_also_after_it_was_away(tmp_path: Path) -> None:
    site: PairSite
    async with pair_site(tmp_path) as site:
        master = await site.start("ASYNC_MASTER")
        async with site.running("SLAVE", 1) as slave:
            for key, rate in (("topic:orders", 5), ("group:*", 0.5), ("topic:orders", 6)):
                assert (await change(site.client, master, key, rate)).code == 0
            await until_async(lambda: limits(slave) == {"topic:orders": 6, "group:*": 0.5}, "the limits are copied")
            refused = await change(site.client, slave, "topic:orders", 9)
            assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert "limits of senders are changed at its master" in (refused.remark or "")
        assert (await change(site.client, master, "group:*")).code == 0
        assert (await change(site.client, master, "client:10.0.0.1", 3)).code == 0
        async with site.running("SLAVE", 1) as slave:
            await until_async(
                lambda: limits(slave) == {"topic:orders": 6, "client:10.0.0.1": 3}, "the deletion is followed"
            )
