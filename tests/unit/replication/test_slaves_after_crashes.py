"""Slaves whose process or power ended at any moment, and several slaves of one master (broker.md §17.1)."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
from pathlib import Path

import pytest
from two_stores import bodies, caught_up, followed, log_of, master, put, slave, store_of

from tianzhou.clock import SystemClock
from tianzhou.replication.ha_client import SlaveHaClient
from tianzhou.replication.ha_server import HaServer
from tianzhou.store import MessageStore
from tianzhou.supervision import Supervisor
from waiting import until_async


async def equal_in_the_end(folder: Path, store: MessageStore, server: HaServer, master_folder: Path) -> None:
    await followed(folder, server, lambda copy: copy.copy.whole == store.end_offset, "copied again")
    async with slave(folder, server) as copy:
        await caught_up(store, copy)
        for queue in range(3):
            await until_async(lambda q=queue: copy.max_offset("T", q) == store.max_offset("T", q))  # type: ignore[misc]
        assert bodies(copy) == bodies(store)
        assert log_of(folder, store.end_offset) == log_of(master_folder, store.end_offset)


def lose_power(folder: Path, chance: random.Random, end: int) -> None:
    """Overwrite random pages of the log's last 32 KiB with zeros, as if they had not been on the disk."""
    (folder / "running.json").unlink(missing_ok=True)
    for path in (folder / "commitlog").iterdir():
        start = int(path.name)
        with path.open("r+b") as file:
            for page in range(0, path.stat().st_size, 4096):
                if start + page > end - 32_768 and chance.random() < 0.4:
                    file.seek(page)
                    file.write(bytes(4096))


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 8))])
def test_a_slave_goes_on_after_its_end_at_any_moment(tmp_path: Path, seed: int, *, power: bool) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 400)
            async with slave(tmp_path / "s", server) as copy:
                await until_async(lambda: copy.end_offset > 0, "copying")
                put(store, chance.randrange(400), first=400)
                for _ in range(chance.randrange(40)):
                    await asyncio.sleep(0)
                end = copy.end_offset
                shutil.copytree(tmp_path / "s", tmp_path / "crashed")
                if power:
                    lose_power(tmp_path / "crashed", chance, end)
            put(store, 50, first=2000)
            await equal_in_the_end(tmp_path / "crashed", store, server, tmp_path / "m")

    asyncio.run(main())


def test_a_slow_slave_holds_up_neither_the_others_nor_the_masters_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m", mapped_file_size_commit_log=4 << 20) as (store, server):
            slow = socket.create_connection(("127.0.0.1", server.port))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall((0).to_bytes(8, "big"))
            sizes = {"mapped_file_size_commit_log": 4 << 20}
            async with slave(tmp_path / "s", server, **sizes) as one, slave(tmp_path / "t", server, **sizes) as other:
                # Its kernel buffers some megabytes before the master has to wait.
                for round_ in range(24):
                    put(store, 1000, first=1000 * round_)
                    await caught_up(store, one)
                    await caught_up(store, other)
                assert store.end_offset > 8_000_000
                waits = next(link for link in server.links if link.slave.acked == 0)
                assert 0 < waits.unsent_bytes < 256 << 10
                assert bodies(one) == bodies(other) == bodies(store)
                assert sorted(s.acked for s in server.slaves.connected) == [0, store.end_offset, store.end_offset]
            slow.close()

    asyncio.run(main())


def test_an_empty_slave_begins_wherever_the_masters_log_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 500)
            first = sorted((tmp_path / "m" / "commitlog").iterdir())[:2]
        for path in first:
            path.unlink()
        async with master(tmp_path / "m") as (store, server):
            assert store.begin_offset > 0
            async with slave(tmp_path / "s", server) as copy:
                await caught_up(store, copy)
                assert copy.begin_offset == store.begin_offset
                for queue in range(3):
                    await until_async(lambda q=queue: copy.max_offset("T", q) == store.max_offset("T", q))  # type: ignore[misc]
                    assert copy.min_offset("T", queue) == store.min_offset("T", queue)

    asyncio.run(main())


def test_who_is_behind_what_the_master_has_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 10)
            await followed(tmp_path / "s", server, lambda copy: copy.copy.whole == store.end_offset, "copied")
            put(store, 490, first=10)
        for path in sorted((tmp_path / "m" / "commitlog").iterdir())[:2]:
            path.unlink()
        async with master(tmp_path / "m") as (store, server), store_of(tmp_path / "s", "SLAVE") as copy:
            supervisor = Supervisor("slave")
            client = SlaveHaClient(copy, SystemClock(), lambda: f"127.0.0.1:{server.port}")
            supervisor.own("copying", lambda: client.run(supervisor))
            await until_async(lambda: "what is between is gone" in caplog.text, "it is said")
            await supervisor.end()

    asyncio.run(main())
