"""A broker whose descriptors run out: it reserves those for itself, and recovers when descriptors are free again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import Tianzhou

from tianzhou import Message, MessageQueue, Producer, SendStatus
from tianzhou.admin import Admin
from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.errors import TianzhouError
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.store.settings import StoreSettings

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of other processes are Linux's")
LIMIT = 160
BODY = os.urandom(100_000)
"""Incompressible, so that segments of a mebibyte fill up."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[Tianzhou, str, int]]:
    """Yield a broker, its name server's address, and its port."""
    (tmp_path / "broker.conf").write_text(
        f"brokerName=broker-a\nbrokerIP1=127.0.0.1\nlistenPort=0\nstorePathRootDir={tmp_path / 'store'}\n"
        "flushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=4000\n"
        "maxHashSlotNum=500\nmaxIndexNum=5000\nsyncFlushTimeout=1000\ndiskMaxUsedSpaceRatio=99\n"
    )
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(Tianzhou(tmp_path, "namesrv", "--port", 0, "-o", "json"))
        address = f"127.0.0.1:{namesrv.ready()['port']}"
        one = stack.enter_context(Tianzhou(tmp_path, "broker", "-n", address, "-c", "broker.conf", "-o", "json"))
        yield one, address, int(one.ready()["port"])


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(limited())


pytestmark = pytest.mark.runner.with_args(run)


def queue(number: int = 0) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


def crowd(port: int, count: int) -> list[socket.socket]:
    """Open the connections of a peer that wants all descriptors; it sends a little over each so that the broker accepts
    them.
    """
    found = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), 5)
        with contextlib.suppress(OSError):
            one.sendall(b"\0")
        found.append(one)
    return found


def test_peers_cannot_take_the_descriptors_the_store_needs(broker: tuple[Tianzhou, str, int]) -> None:
    process, namesrv, port = broker
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

    async def main() -> None:
        async with Admin(namesrv) as admin, Producer("P", namesrv, retry_times_when_send_failed=0) as producer:
            await admin.topics.create("T", read_queue_nums=8, write_queue_nums=8)
            assert (await producer.send(Message("T", BODY), queue=queue())).status is SendStatus.SEND_OK
            connections = await asyncio.to_thread(crowd, port, 2 * LIMIT)
            try:
                # Segments, queues and tables are still created and written.
                for number in range(40):
                    sent = await producer.send(Message("T", BODY), queue=queue(number % 8))
                    assert sent.status is SendStatus.SEND_OK
                await admin.topics.create("U", read_queue_nums=1, write_queue_nums=1)
            finally:
                for one in connections:
                    one.close()

    run(main())
    assert "refusing further connections" in process.err
    assert process.interrupt()[0] == 0
    process.assert_no_traceback()


async def test_when_there_are_none_at_all_sends_work_again_seconds_after_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, because only here a test can take all descriptors and release them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for user in ("process.open_files", "remoting.server", "store.files.directories"):
        monkeypatch.setattr(f"tianzhou.{user}.allow_more_files", lambda: 0)
    settings = replace(
        BrokerSettings(), broker_name="broker-a", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0
    )
    store = StoreSettings(
        store_path_root_dir=str(tmp_path / "store"), flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=4000, max_hash_slot_num=500, max_index_num=5000, sync_flush_timeout=1000,
        disk_max_used_space_ratio=99,
    )  # fmt: skip
    names = NamesrvSettings(
        bind_address="127.0.0.1", listen_port=0, kv_config_path=str(tmp_path / "kv.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )  # fmt: skip

    async with NameServer(names) as namesrv:
        address = f"127.0.0.1:{namesrv.port}"
        broker = Broker(replace(settings, namesrv_addr=address), store)
        async with (
            broker,
            Admin(address) as admin,
            Producer("P", address, retry_times_when_send_failed=0) as producer,
        ):
            await broker.ready()

            async def send(number: int) -> bool:
                try:
                    sent = await producer.send(Message("T", BODY), queue=queue(number % 8), timeout_ms=5000)
                except TianzhouError:
                    return False
                return sent.status is SendStatus.SEND_OK

            await admin.topics.create("T", read_queue_nums=8, write_queue_nums=8)
            assert await send(0)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
                outcomes = [await send(number) for number in range(24)]
                assert not all(outcomes)
                began = time.monotonic()
                with pytest.raises(TianzhouError, match=r"topics\.json cannot be written .*the change counts now"):
                    await admin.topics.create("U", read_queue_nums=1, write_queue_nums=1)
                assert time.monotonic() - began < 5
                await asyncio.sleep(3)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            began = time.monotonic()
            while not await send(1):
                await asyncio.sleep(0.1)
            assert time.monotonic() - began < 5
            assert all([await send(number) for number in range(24)])
            (status,) = await admin.cluster.status()
            while status.troubles:
                await asyncio.sleep(0.1)
                (status,) = await admin.cluster.status()
        assert broker.left_undone == []
    # Topics created meanwhile exist, and the stop was a clean one.
    async with Broker(settings, store) as again:
        assert again.tables.topics.get("U") is not None
        assert again.store.report.clean
