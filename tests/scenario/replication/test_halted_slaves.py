"""A master reports its halted slave, and a slave reports a master with another `durability`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from small_broker import ask, pair_site, run, send

from tianzhou.admin import Admin
from tianzhou.admin.copy_faults import CopyFaultKind, copy_faults
from tianzhou.broker.replication import replication
from tianzhou.remoting.client import RemotingClient
from tianzhou.replication import ha_client
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.json_dialect import loads
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


async def figures(client: RemotingClient, address: str) -> dict[str, str]:
    """Return the runtime figures of a broker."""
    found: dict[str, str] = loads((await ask(client, address, RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    return found


async def test_a_master_knows_that_its_slave_has_halted_and_that_it_copies_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replication, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(ha_client, "AGAIN_S", 0.05)
    monkeypatch.setattr(ha_client, "REFUSED_AGAIN_S", 0.2)
    async with pair_site(tmp_path) as site:
        slave = await site.slave(durability="zero-loss")
        async with site.running("SYNC_MASTER") as master:
            await send(site.client, master.address)
            await until_async(lambda: slave.store.end_offset == master.store.end_offset > 0, "copied")
        # A master with an empty folder lacks the message.
        async with site.running("SYNC_MASTER", store_path_root_dir=str(tmp_path / "empty")) as master:

            async def reported() -> str:
                return (await figures(site.client, master.address)).get("haHaltedSlaves", "")

            found = await until_async(reported, "the master knows", within_s=20)
            assert f"{slave.address}: durability=zero-loss" in found
            (line,) = (one for one in caplog.messages if "has halted and copies nothing" in one)
            assert slave.address in line
            async with Admin(site.namesrv) as admin:
                statuses = await admin.cluster.status()
            alone = [one for one in statuses if one.is_master]
            assert CopyFaultKind.SLAVE_HALTED in {one.kind for one in copy_faults(alone)}
        async with site.running("SYNC_MASTER") as master:
            await until_async(lambda: slave.replication.near_master, "the slave copies", within_s=20)
            assert "haHaltedSlaves" not in await figures(site.client, master.address)


@pytest.mark.parametrize(
    ("of_master", "of_slave", "says"),
    [
        ("zero-loss", "", "this slave's file has no durability and its master's has durability=zero-loss"),
        ("", "zero-loss", "this slave's file has durability=zero-loss and its master's has no durability"),
        ("zero-loss", "zero-loss", ""),
    ],
)
async def test_a_slave_warns_of_another_durability_at_its_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, of_master: str, of_slave: str, says: str
) -> None:
    caplog.set_level(logging.WARNING)
    async with pair_site(tmp_path) as site:
        await site.start("SYNC_MASTER", durability=of_master)
        slave = await site.slave(durability=of_slave)
        async with Admin(site.namesrv) as admin:
            await admin.groups.create("g")
        await until_async(lambda: "g" in slave.tables.groups, "the master's tables are taken")
        warned = [one for one in caplog.messages if "durability" in one]
        assert len(warned) == bool(says)
        assert all(says in one for one in warned)
