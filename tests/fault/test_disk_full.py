"""A disk that fills up: reads continue, sends are refused with a remedy, and both work when space is free again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_disk import KINDS, small_disk

from store_reads import read_now
from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.errors import BrokerError
from tianzhou.remoting.client import RemotingClient
from tianzhou.store import GetStatus, MessageStore, NewRecord, PutStatus, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from tianzhou.wire.properties import encode_properties
from waiting import until_async

BODY = b"b" * 20_000
MEBIBYTE = 1 << 20


def small(folder: Path, **changes: object) -> StoreSettings:
    values: dict[str, object] = {
        "store_path_root_dir": str(folder), "mapped_file_size_commit_log": 4 * MEBIBYTE,
        "mapped_file_size_consume_queue": 4_000, "max_hash_slot_num": 1000, "max_index_num": 4000,
        "clean_file_forcibly_enable": False, "flush_interval_commit_log": 20,
    }  # fmt: skip
    return StoreSettings(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of its own, of about 40 MiB."""
    with small_disk(request.param, tmp_path, 40, 48) as target:
        yield target


def free(disk: Path) -> int:
    usage = os.statvfs(disk)
    return usage.f_bavail * usage.f_frsize


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill the disk up to the given number of free bytes."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        try:
            while (room := free(disk) - leave) > 0:
                file.write(b"\xff" * min(max(room, 4096), MEBIBYTE))
                if leave == 0 or room <= 4096:
                    os.fsync(file.fileno())
        except OSError:
            pass
    return ballast


def message(number: int) -> NewRecord:
    key = f"k{number}"
    return NewRecord("T", number % 3, BODY, encode_properties({"KEYS": key}), keys=key)


def readable(store: MessageStore) -> int:
    found = 0
    for queue_id in range(3):
        for offset in range(store.min_offset("T", queue_id), store.max_offset("T", queue_id)):
            assert read_now(store, "T", queue_id, offset, 1).status is GetStatus.FOUND
            found += 1
    return found


async def test_a_write_the_disk_refused_is_answered_for_and_recovered_from(disk: Path) -> None:
    folder = disk / "store"

    acknowledged = 0
    async with MessageStore(small(folder, clean_resource_interval=500)) as store:
        assert store.append(message(0)).status is PutStatus.PUT_OK
        await asyncio.sleep(0.05)
        ballast = fill(disk)
        # Preallocated segments are used up, then the disk is full; the ratio has not been checked yet.
        number = refused = 1
        for number in range(1, 2000):
            result = store.append(message(number))
            if result.status is not PutStatus.PUT_OK:
                break
            acknowledged = number
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        for part in ("disk full", str(disk), "free", "fileReservedTime=72"):
            assert part in result.remark
        assert not store.writable
        assert readable(store) > 0
        for _ in range(3):
            await asyncio.sleep(0.3)
            refused += store.append(message(0)).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert refused == 4
        ballast.unlink()
        await until_async(lambda: store.writable)
        for number in range(acknowledged + 1, acknowledged + 21):
            assert store.append(message(number)).status is PutStatus.PUT_OK
        acknowledged += 20
        # The unwritten parts of queues and index are written later.
        await until_async(lambda: readable(store) == acknowledged + 1)
        assert len(at_once(store.lookups.key_steps("T", f"k{acknowledged}", 5)).parts) == 1
    async with MessageStore(small(folder)) as store:
        assert store.report.damaged == []
        assert readable(store) == acknowledged + 1
    assert sum(1 for _ in StoreScan(folder).records()) == acknowledged + 1


async def test_a_broker_refuses_above_90_percent_and_accepts_again_within_10_seconds(disk: Path) -> None:
    settings = replace(
        BrokerSettings(), broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0, namesrv_addr=""
    )

    async def send(client: RemotingClient, address: str, number: int) -> Command:
        header = write_header(
            310, producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
            sys_flag=0, born_timestamp=1, flag=0, properties=f"UNIQ_KEY\x01u{number}\x02",
        )  # fmt: skip
        return await client.invoke(address, Command(310, fields=header, body=b"x" * 1000))

    async def pull(client: RemotingClient, address: str, offset: int) -> Command:
        header = write_header(
            11, consumer_group="G", topic="T", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=1000, subscription="*", sub_version=0,
        )  # fmt: skip
        return await client.invoke(address, Command(11, fields=header))

    async with Broker(settings, small(disk / "store")) as broker, RemotingClient() as client:
        assert (await send(client, broker.address, 0)).code == ResponseCode.SUCCESS
        await asyncio.sleep(0.05)
        size = os.statvfs(disk).f_blocks * os.statvfs(disk).f_frsize
        ballast = fill(disk, leave=size * 7 // 100)
        broker.store.settings_changed()
        await until_async(lambda: not broker.store.writable)
        refused = await send(client, broker.address, 1)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        for part in ("disk full", str(disk), "% used", "diskSpaceWarningLevelRatio=90", "free space"):
            assert part in (refused.remark or "")
        assert (await pull(client, broker.address, 0)).code == ResponseCode.SUCCESS
        ballast.unlink()
        began = time.monotonic()
        while (reply := await send(client, broker.address, 2)).code != ResponseCode.SUCCESS:
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert time.monotonic() - began < 10
            await asyncio.sleep(0.1)
        assert (await pull(client, broker.address, 1)).code == ResponseCode.SUCCESS


async def test_a_topic_made_on_a_full_disk_is_answered_for_and_written_when_there_is_space(disk: Path) -> None:
    settings = replace(
        BrokerSettings(), broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0, namesrv_addr=""
    )

    async def create(client: RemotingClient, address: str, topic: str) -> Command:
        header = write_header(
            17, topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        return await client.invoke(address, Command(17, fields=header))

    async with Broker(settings, small(disk / "store")) as broker, RemotingClient() as client:
        assert (await create(client, broker.address, "before")).code == ResponseCode.SUCCESS
        ballast = fill(disk)
        began = time.monotonic()
        refused = await create(client, broker.address, "meanwhile")
        assert time.monotonic() - began < 3
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        for part in ("topics.json cannot be written", "the disk is full; free space", "the change counts now"):
            assert part in (refused.remark or "")
        ballast.unlink()
        await until_async(lambda: not broker.troubles.present())
        assert (await create(client, broker.address, "after")).code == ResponseCode.SUCCESS
    assert broker.left_undone == []
    async with Broker(settings, small(disk / "store")) as again:
        assert {"before", "meanwhile", "after"} <= again.tables.topics.all().keys()


async def test_the_errors_client_side_name_what_to_do(disk: Path) -> None:
    """The client's own error contains the broker's text."""
    from tianzhou.client import Producer
    from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
    from tianzhou.model import Message

    server = EmbeddedServer(EmbeddedSettings(disk / "data", namesrv_port=0, broker_port=0))
    async with server:
        size = os.statvfs(disk).f_blocks * os.statvfs(disk).f_frsize
        ballast = fill(disk, leave=size * 7 // 100)
        server.broker.store.settings_changed()
        await until_async(lambda: not server.broker.store.writable)
        async with Producer("P", namesrv_addr=server.namesrv_address) as producer:
            with pytest.raises(BrokerError, match="diskSpaceWarningLevelRatio=90") as caught:
                await producer.send(Message("TBW102x", b"x"))
            assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        ballast.unlink()
