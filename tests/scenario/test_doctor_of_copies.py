"""The doctor at brokers with copies: a pair, and a group whose members stop one after the other."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from small_broker import name_server, run, small_broker

from server_ports import server_ports
from tianzhou.admin import Admin
from tianzhou.admin.copy_faults import copy_faults
from tianzhou.broker.server import Broker
from tianzhou.doctor import diagnose
from tianzhou.store import NewRecord
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)
LARGE = 4_000_000
COPIES = {"slave-missing", "slave-not-following", "slave-behind", "broker-without-master", "group-without-leader"}


async def ill(admin: Admin) -> set[str]:
    """Return the doctor's findings about masters, slaves and leaders."""
    return COPIES & set((await diagnose(admin, "broker")).names)


async def faults(admin: Admin) -> set[str]:
    """Return the faults for which `status` ends with 1."""
    return {str(one.kind) for one in copy_faults(await admin.cluster.status())}


def one_of_pair(folder: Path, namesrv: str, role: str, broker_id: int, **more: Any) -> Broker:
    store = {"broker_role": role, "store_path_root_dir": str(folder / role), **more}
    return small_broker(folder / role, store, namesrv_addr=namesrv, broker_id=broker_id)


async def test_a_pair_without_one_of_the_two(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        admin = await stack.enter_async_context(Admin(namesrv))
        async with one_of_pair(tmp_path, namesrv, "SYNC_MASTER", 0) as master:
            await master.ready()
            assert await ill(admin) == {"slave-missing"}
            assert await faults(admin) == {"slave-missing"}
            slave = await stack.enter_async_context(one_of_pair(tmp_path, namesrv, "SLAVE", 1))
            await slave.ready()
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")

            async def well() -> bool:
                return not await ill(admin) and not await faults(admin)

            await until_async(well, "the doctor finds nothing")
            await admin.topics.create("orders", broker_addr=f"127.0.0.1:{master.port}")
            await until_async(lambda: slave.tables.topics.get("orders") is not None, "the slave knows the topic")
        assert "broker-without-master" in await ill(admin)
        assert await faults(admin) == {"broker-without-master"}
        assert "topic-without-master" in (await diagnose(admin, "topic", "orders")).names


async def test_a_slave_that_is_not_let_in(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        admin = await stack.enter_async_context(Admin(namesrv))
        master = small_broker(tmp_path / "m", namesrv_addr=namesrv, replication_allowed_addresses="192.0.2.1")
        await stack.enter_async_context(master)
        await master.ready()
        slave = await stack.enter_async_context(one_of_pair(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()

        async def stands() -> bool:
            return await ill(admin) == {"slave-not-following"}

        # It knows its master, connects from time to time, and gets no data.
        await until_async(lambda: slave.replication.status().ha_client_runtime_info.master_addr, "it knows its master")
        await until_async(stands, "the doctor finds that it stands")


async def test_a_slave_that_gets_less_than_comes_in(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        admin = await stack.enter_async_context(Admin(namesrv))
        held = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 1_000,
                "mapped_file_size_commit_log": 1 << 26}  # fmt: skip
        master = await stack.enter_async_context(one_of_pair(tmp_path, namesrv, "ASYNC_MASTER", 0, **held))
        await master.ready()
        slave = await stack.enter_async_context(
            one_of_pair(tmp_path, namesrv, "SLAVE", 1, mapped_file_size_commit_log=1 << 26)
        )
        await slave.ready()
        for number in range(17):
            master.store.append(NewRecord("orders", 0, bytes([number]) * LARGE, b""))
        await until_async(lambda: 0 < slave.store.end_offset < LARGE, "it has begun to copy")

        async def behind() -> bool:
            return await ill(admin) == {"slave-behind"}

        await until_async(behind, "the doctor finds the slave behind")


async def test_a_group_that_loses_its_majority(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        ports = [server_ports() for _ in range(3)]
        peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(ports))
        admin = await stack.enter_async_context(Admin(f"127.0.0.1:{names.port}"))
        members = []
        for n in range(3):
            store = {
                "enable_d_leger_commit_log": True, "d_leger_group": "broker-a", "d_leger_peers": peers,
                "d_leger_self_id": f"n{n}", "d_leger_heart_beat_time_interval_ms": 200,
                "d_leger_min_vote_interval_ms": 50, "d_leger_max_vote_interval_ms": 200,
                "store_path_root_dir": str(tmp_path / f"n{n}" / "store"),
            }  # fmt: skip
            member = small_broker(tmp_path / f"n{n}", store, namesrv_addr=f"127.0.0.1:{names.port}")
            await member.__aenter__()
            members.append(member)
            stack.push_async_callback(member.__aexit__, None, None, None)

        async def led() -> bool:
            return (await admin.cluster.info()).broker_addr_table["broker-a"].master is not None

        await until_async(lambda: any(not one.replication.is_slave for one in members), "a leader")
        await until_async(led, "a master at the name server")
        await until_async(lambda: _all_registered(admin, 3), "all members at the name server")
        assert await ill(admin) == set()
        for member in sorted(members, key=lambda one: one.replication.is_slave)[:2]:
            await member.__aexit__(None, None, None)

        async def leaderless() -> bool:
            return "group-without-leader" in await ill(admin)

        await until_async(leaderless, "the doctor misses the leader")


async def _all_registered(admin: Admin, count: int) -> bool:
    return len((await admin.cluster.info()).broker_addr_table["broker-a"].broker_addrs) == count
