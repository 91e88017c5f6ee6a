"""A master's log at its slaves: byte for byte, with records where consumers find them (broker.md §17)."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from two_stores import bodies, caught_up, followed, log_of, master, put, slave, store_of

from tianzhou.store import NewRecord
from tianzhou.testing import AsyncCluster, run_virtual
from tianzhou.wire.ha import encode_report
from waiting import until_async


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


def test_a_topic_that_is_made_again_begins_again_at_the_slave(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server), slave(tmp_path / "s", server) as copy:
            put(store, 300)
            await caught_up(store, copy)
            arrived = copy.arrived("T", 0)
            assert arrived.value == 100
            store.delete_topic("T")
            end = store.end_offset
            put(store, 30, first=1000)
            await caught_up(store, copy)
            await until_async(lambda: copy.max_offset("T", 2) == 10, "dispatched")
            assert bodies(copy) == bodies(store)
            # A reader there waits for new messages, not for existing ones.
            reached = copy.arrived("T", 0).reached(11)
            assert not reached.done()
            put(store, 3, first=2000)
            await reached
            # Queues created after the request for the master's topics are not deleted.
            assert not copy.delete_topic_before("T", end)
            assert copy.max_offset("T", 0) == 11
            assert copy.delete_topic_before("T", copy.end_offset)
            assert copy.max_offset("T", 0) == 0

    asyncio.run(main())


def test_no_message_waits_for_a_heartbeat_while_queues_are_behind(tmp_path: Path) -> None:
    async def main() -> None:
        patient = {"ha_send_heartbeat_interval": 60_000}
        async with (
            master(tmp_path / "m", **patient) as (store, server),
            slave(tmp_path / "s", server, **patient) as copy,
            asyncio.timeout(30),
        ):
            for round_ in range(20):
                # More than one slice of the dispatcher, and one more message between the last two.
                put(store, 300, first=1000 * round_)
                await asyncio.sleep(0)
                put(store, 1, first=1000 * round_ + 500)
                await until_async(lambda: copy.end_offset == store.end_offset, "copied")

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


def cut_behind(folder: Path, end: int) -> None:
    """Cut a log like a power failure whose end was not on the disk."""
    for path in sorted((folder / "commitlog").iterdir()):
        start = int(path.name)
        if start >= end:
            path.unlink()
        elif start + path.stat().st_size > end:
            size = path.stat().st_size
            os.truncate(path, end - start)
            os.truncate(path, size)
    (folder / "abort").write_text("1")


@pytest.mark.parametrize("lost", [1, 100, 5000, 40_000, 150_000])
@pytest.mark.parametrize("stored", [0, 3, 400])
def test_a_slave_that_has_what_its_master_lost_cuts_it_off_and_goes_on(tmp_path: Path, lost: int, stored: int) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 1000)
            end = store.end_offset
            assert await followed(tmp_path / "s", server, lambda copy: copy.copy.whole == end, "copied") == [0]
        assert end > 200_000
        cut_behind(tmp_path / "m", end - lost)
        async with master(tmp_path / "m") as (store, server):
            agreed = store.end_offset
            assert agreed <= end - lost
            put(store, stored, first=5000)
            ends = await followed(
                tmp_path / "s", server, lambda copy: copy.copy.whole == store.end_offset, "copied again"
            )
            assert ends == [end, agreed]
            async with slave(tmp_path / "s", server) as copy:
                await caught_up(store, copy)
                for queue in range(3):
                    await until_async(lambda q=queue: copy.max_offset("T", q) == store.max_offset("T", q))  # type: ignore[misc]
                assert bodies(copy) == bodies(store)
                put(store, 100, first=9000)
                await caught_up(store, copy)
                assert bodies(copy) == bodies(store)
                assert log_of(tmp_path / "s", store.end_offset) == log_of(tmp_path / "m", store.end_offset)

    asyncio.run(main())


def test_a_slave_that_may_not_cut_stops_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 300)
            end = store.end_offset
            await followed(tmp_path / "s", server, lambda copy: copy.copy.whole == end, "copied")
        cut_behind(tmp_path / "m", end - 5000)
        async with master(tmp_path / "m") as (store, server):
            put(store, 5)
            async with slave(tmp_path / "s", server, ha_slave_cut_max=4000) as copy:
                await until_async(lambda: "haSlaveCutMax=4000" in caplog.text, "it is said")
                assert copy.end_offset == end
        assert caplog.text.count("haSlaveCutMax=4000") == 1

    asyncio.run(main())


def test_a_slave_that_becomes_the_master_before_its_log_is_cut_has_it_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 300)
            end = store.end_offset
            await followed(tmp_path / "s", server, lambda copy: copy.copy.whole == end, "copied")
        async with store_of(tmp_path / "s", "SLAVE") as copy:
            copy.cut_at_next_start(end - 1000, "of a test")
        for _ in range(2):
            async with store_of(tmp_path / "s", "ASYNC_MASTER") as copy:
                assert copy.end_offset == end

    asyncio.run(main())


def test_a_sign_of_life_to_a_slave_is_no_empty_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on, asyncio never finishes writing an empty piece, and its loop spins."""
    written: list[bytes] = []
    real = asyncio.selector_events._SelectorSocketTransport.writelines  # type: ignore[attr-defined]

    def writelines(transport: Any, pieces: Any) -> None:
        written.extend(map(bytes, pieces))
        real(transport, pieces)

    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.writelines", writelines)

    async def main() -> None:
        async with AsyncCluster(virtual=True, settings={"brokerRole": "ASYNC_MASTER"}) as cluster:
            host, _, port = cluster.brokers["broker-a"].running.replication.ha_address.rpartition(":")
            _reader, slave = await asyncio.open_connection(host, int(port))
            slave.write(encode_report(0))
            await cluster.advance(seconds=10)
            slave.close()

    run_virtual(main())
    assert written
    assert all(written)
