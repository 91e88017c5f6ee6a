"""A master's log at its slaves: byte for byte, its records where consumers find them (broker.md §17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from small_store import small_store

from store_reads import read_now
from tianzhou.clock import SystemClock
from tianzhou.replication.ha_client import HaClient
from tianzhou.replication.ha_server import HaServer
from tianzhou.store import MessageStore, NewRecord
from tianzhou.supervision import Supervisor
from tianzhou.wire.ha import encode_report
from waiting import until_async

SEGMENT = 16 << 10


def store_of(folder: Path, role: str) -> MessageStore:
    sizes = {"mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": 4000, "max_index_num": 4000}
    return small_store(folder, broker_role=role, ha_send_heartbeat_interval=200, **sizes)


@asynccontextmanager
async def master(folder: Path) -> AsyncIterator[tuple[MessageStore, HaServer]]:
    async with (
        store_of(folder, "ASYNC_MASTER") as store,
        HaServer(store, SystemClock(), "127.0.0.1", 0) as server,
    ):
        yield store, server


@asynccontextmanager
async def slave(folder: Path, server: HaServer) -> AsyncIterator[MessageStore]:
    supervisor = Supervisor("slave")
    async with store_of(folder, "SLAVE") as store:
        client = HaClient(store, SystemClock(), lambda: f"127.0.0.1:{server.port}")
        supervisor.own("copying", lambda: client.run(supervisor))
        try:
            yield store
        finally:
            await supervisor.end()


def put(store: MessageStore, count: int, first: int = 0) -> None:
    for i in range(first, first + count):
        store.append(NewRecord("T", i % 3, b"body %d" % i * (i % 50 + 1), b"KEYS\x01k%d\x02" % i, keys=f"k{i}"))


def bodies(store: MessageStore) -> list[list[bytes]]:
    found = []
    for queue in range(3):
        parts: list[bytes] = []
        while len(parts) < store.max_offset("T", queue):
            parts += map(bytes, read_now(store, "T", queue, len(parts), 100).parts)
        found.append(parts)
    return found


def log_of(folder: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "commitlog").iterdir()))[:end]


async def caught_up(store: MessageStore, behind: MessageStore) -> None:
    await until_async(lambda: behind.end_offset == store.end_offset and not behind.dispatch_behind_bytes, "copied")
    await until_async(lambda: behind.copy.whole == store.end_offset, "dispatched")


def test_what_is_sent_before_and_after_a_slave_connects_is_served_by_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 500)
            async with slave(tmp_path / "s", server) as copy:
                await caught_up(store, copy)
                put(store, 500, first=500)
                await caught_up(store, copy)
                for queue in range(3):
                    await until_async(lambda q=queue: copy.max_offset("T", q) == store.max_offset("T", q))
                assert bodies(copy) == bodies(store)
                assert log_of(tmp_path / "s", store.end_offset) == log_of(tmp_path / "m", store.end_offset)

    asyncio.run(main())


def test_a_slave_goes_on_where_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            store, server = await stack.enter_async_context(master(tmp_path / "m"))
            for round_ in range(4):
                put(store, 300, first=300 * round_)
                async with slave(tmp_path / "s", server) as copy:
                    await caught_up(store, copy)
                    assert copy.report.clean
                    assert not copy.report.notes
            put(store, 1)
            async with slave(tmp_path / "s", server) as copy:
                await caught_up(store, copy)
                assert bodies(copy) == bodies(store)

    asyncio.run(main())


def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    with_store = store_of(tmp_path, "SLAVE")
    with_store.open()
    try:
        assert "slave" in with_store.append(NewRecord("T", 0, b"body", b"")).remark
    finally:
        with_store.close_now()


def test_strangers_at_the_port_are_disconnected_and_slaves_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 100)
            async with slave(tmp_path / "s", server) as copy:
                await caught_up(store, copy)
                for hello in (
                    b"GET / HTTP/1.1\r\n\r\n",
                    encode_report(1 << 62),
                    encode_report(-1),
                    b"\xff" * 4096,
                ):
                    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                    writer.write(hello)
                    async with asyncio.timeout(10):
                        assert await reader.read() == b""
                    writer.close()
                assert store.durability.replicated.value <= store.end_offset
                put(store, 100, first=100)
                await caught_up(store, copy)
                assert [one.acked for one in server.slaves.connected] == [store.end_offset]

    asyncio.run(main())


def test_a_slave_with_another_log_says_where_it_differs_and_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with master(tmp_path / "other") as (store, server):
            put(store, 50)
            async with slave(tmp_path / "s", server) as copy:
                await caught_up(store, copy)
        async with master(tmp_path / "m") as (store, server):
            put(store, 60, first=1000)
            async with slave(tmp_path / "s", server) as copy:
                end = copy.end_offset
                await until_async(lambda: "differs from its master's from" in caplog.text, "it is said")
                assert copy.end_offset == end
                assert len(bodies(copy)[0]) > 10

    asyncio.run(main())
