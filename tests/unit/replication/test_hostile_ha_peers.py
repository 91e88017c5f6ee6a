"""Hostile peers at the HA port: they cost the master no memory, no log lines and no slave (broker.md §17.1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import tracemalloc
from pathlib import Path

import pytest
from two_stores import caught_up, master, put, slave

from tianzhou.errors import ProtocolError
from tianzhou.replication.ha_server import MOST_SLAVES
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import JSON, ROCKETMQ, Command, encode
from tianzhou.wire.ha import StretchReader, encode_head, encode_report
from waiting import until_async

MIB = 1 << 20


async def close_all(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()
    await asyncio.sleep(0)


def test_thousands_of_connections_without_a_report_cost_a_few_megabytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 10)
            async with slave(tmp_path / "s", server) as copy:
                await caught_up(store, copy)
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
                most = 0
                for round_ in range(33):
                    strangers = []
                    for _ in range(100):
                        one = socket.socket()
                        one.setblocking(False)
                        one.connect_ex(("127.0.0.1", server.port))
                        strangers.append(one)
                    if round_ % 11 == 0:
                        # The last ones stay until the next hundred have come.
                        await until_async(lambda: len(server.links) >= MOST_SLAVES, "they are there")
                    await asyncio.sleep(0)
                    most = max(most, len(server.links))
                    await close_all(strangers)
                taken = tracemalloc.get_traced_memory()[1] - before
                tracemalloc.stop()
                assert most <= MOST_SLAVES + 100  # accepted in one loop iteration
                assert taken < 5 * MIB  # 3.3 MB; of 33 000, too
                put(store, 10, first=10)
                await caught_up(store, copy)
                assert len(caplog.records) <= 12

    asyncio.run(main())


def test_who_sends_garbage_is_disconnected_and_some_lines_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 10)
            for number in range(60):
                hello = (encode_report(1 << 62), encode_report(-1), b"\xff" * 65_536)[number % 3]
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(hello)
                async with asyncio.timeout(10):
                    with contextlib.suppress(ConnectionResetError):
                        assert await reader.read() == b""
                writer.close()
            assert store.durability.replicated.value == 0
            assert not server.slaves.connected
        assert 0 < len(caplog.records) <= 5

    asyncio.run(main())


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_a_request_of_a_client_is_no_report_of_a_slave_that_is_ahead(
    kind: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    request = encode(Command(RequestCode.GET_BROKER_RUNTIME_INFO, serialize_type=kind))

    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 10)
            for pieces in ([request], [request[:8], request[8:]], [request[:5], request[5:]]):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                for piece in pieces:
                    writer.write(piece)
                    await asyncio.sleep(0)
                async with asyncio.timeout(10):
                    with contextlib.suppress(ConnectionResetError):
                        assert await reader.read() == b"", "it is answered as a slave"
                writer.close()
            await until_async(lambda: not server.links, "they are gone")
            assert store.durability.replicated.value == 0

    asyncio.run(main())
    assert "does not speak as a slave" in caplog.text
    assert "empty the slave's store folder" not in caplog.text


def test_reports_that_drip_or_flood_take_no_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "m") as (store, server):
            put(store, 10)
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for byte in encode_report(1):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            await until_async(lambda: [one.acked for one in server.slaves.connected] == [1], "it has reported")
            for _ in range(64):
                writer.write(encode_report(1) * (MIB // 8))
                await writer.drain()
            taken = tracemalloc.get_traced_memory()[1] - before
            tracemalloc.stop()
            assert taken < 8 * MIB  # of 64 MiB; most of it in the writer
            assert [one.acked for one in server.slaves.connected] == [1]
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("head", [encode_head(0, (1 << 31) - 1), encode_head(-(1 << 62), 10), encode_head(0, -1)])
def test_a_master_that_announces_more_than_there_is_makes_its_slave_hold_nothing(head: bytes) -> None:
    with pytest.raises(ProtocolError, match="no HA port"):
        list(StretchReader().feed(head))
