"""A backup of a running server, and the state of a server started on it: everything acknowledged before the backup."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from tianzhou.admin import Admin
from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.errors import StoreError
from tianzhou.model import Message, MessageQueue
from tianzhou.store.offline.backup import MANIFEST, Manifest, back_up, read_manifest, restore
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan

ACCOUNTS = """
accounts:
- accessKey: administrator
  secretKey: root-secret
  admin: true
"""
WHO = {"access_key": "administrator", "secret_key": "root-secret"}
VALUES = {"aclEnable": "true", "mappedFileSizeCommitLog": "262144", "flushConsumerOffsetInterval": "200"}
QUEUES = [MessageQueue("orders", "broker-a", n) for n in range(4)]


def served(data: Path) -> EmbeddedServer:
    return EmbeddedServer(EmbeddedSettings(data, namesrv_port=0, broker_port=0, values=VALUES))


def new_data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    accounts = data / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    return data


def copy(data: Path, to: Path, previous: Path | None = None) -> Manifest:
    return back_up(data, [data / "store"], to, previous=previous, version="test", now_ms=1)


@dataclass
class Load:
    """Sends messages until it is stopped; also creates a topic and a group."""

    producer: Producer
    admin: Admin
    acknowledged: list[tuple[MessageQueue, int, bytes]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    over: bool = False

    async def run(self) -> None:
        for number in count():
            if self.over:
                return
            body = b"%d " % number + b"x" * 2_000
            result = await self.producer.send(Message("orders", body, keys=f"key-{number}"), QUEUES[number % 4])
            self.acknowledged.append((QUEUES[number % 4], result.queue_offset, body))
            if number % 200 == 0:
                await self.admin.topics.create(f"topic-{number}", read_queue_nums=1, write_queue_nums=1)
                self.topics.append(f"topic-{number}")

    async def until(self, sent: int, sending: asyncio.Task[None]) -> None:
        while len(self.acknowledged) < sent:
            if sending.done():
                await sending
            await asyncio.sleep(0.01)


async def test_all_that_was_acknowledged_before_a_backup_is_there_after_it_is_restored(tmp_path: Path) -> None:
    data, backup, again = new_data(tmp_path), tmp_path / "backup", tmp_path / "again"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(served(data))
        admin = await stack.enter_async_context(Admin(server.namesrv_address, **WHO))
        producer = await stack.enter_async_context(Producer("shop", server.namesrv_address, **WHO))
        await admin.topics.create("orders", read_queue_nums=4, write_queue_nums=4)
        await admin.groups.create("billing", retry_max_times=7)
        load = Load(producer, admin)
        sending = asyncio.create_task(load.run())
        try:
            await load.until(500, sending)
            await admin.groups.reset("billing", "orders", to_latest=True)
            before = {one.queue: one.consumer_offset for one in (await admin.groups.lag("billing")).queues}
            await asyncio.sleep(0.5)  # the server writes offsets every 0.2 s
            acknowledged, topics = list(load.acknowledged), list(load.topics)
            manifest = await asyncio.to_thread(copy, data, backup)
            await load.until(len(load.acknowledged) + 50, sending)
        finally:
            load.over = True
            await sending
    assert sum(name.startswith("files/store/commitlog/") for name in manifest.files) > 2
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in backup.rglob("*") if path.is_file())

    restore(backup, again)
    assert stat.S_IMODE((again / "plain_acl.yml").stat().st_mode) == 0o600
    async with served(again) as server, Admin(server.namesrv_address, **WHO) as admin:
        assert set(topics) <= set(await admin.topics.names())
        assert (await admin.groups.config("billing"))["broker-a"].retry_max_times == 7
        after = {one.queue: one for one in (await admin.groups.lag("billing")).queues}
        assert {queue: one.consumer_offset for queue, one in after.items()} == before
        assert all(one.consumer_offset <= one.broker_offset for one in after.values())
        for queue, offset, body in acknowledged:
            message = await admin.messages.by_offset(queue, offset)
            assert message is not None
            assert message.body == body
        async with Producer("shop", server.namesrv_address, **WHO) as producer:
            result = await producer.send(Message("orders", b"after"), QUEUES[0])
        assert result.queue_offset >= max(offset for queue, offset, _ in acknowledged if queue == QUEUES[0])
        with pytest.raises(Exception, match=r"secret|signature|account|denied|sign"):
            async with Admin(server.namesrv_address, access_key="administrator", secret_key="guess") as stranger:
                await stranger.groups.config("billing")
    assert check_store(StoreScan(again / "store")).sound


async def test_a_queue_whose_messages_are_all_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    data, backup, again = new_data(tmp_path), tmp_path / "backup", tmp_path / "again"
    async with served(data) as server, Producer("shop", server.namesrv_address, **WHO) as producer:
        for topic, messages in (("old", 20), ("new", 300)):
            queue = MessageQueue(topic, "broker-a", 0)
            async with Admin(server.namesrv_address, **WHO) as admin:
                await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
            for _ in range(messages):
                await producer.send(Message(topic, b"x" * 2_000), queue)
    min((data / "store" / "commitlog").iterdir()).unlink()
    copy(data, backup)
    restore(backup, again)
    async with served(again) as server, Producer("shop", server.namesrv_address, **WHO) as producer:
        result = await producer.send(Message("old", b"one more"), MessageQueue("old", "broker-a", 0))
    assert result.queue_offset == 20


async def test_files_of_the_log_that_are_as_they_were_are_shared_with_the_backup_before(tmp_path: Path) -> None:
    data, first, second = new_data(tmp_path), tmp_path / "first", tmp_path / "second"
    async with served(data) as server, Producer("shop", server.namesrv_address, **WHO) as producer:
        for _ in range(200):
            await producer.send(Message("orders", b"x" * 2_000))
        await asyncio.to_thread(copy, data, first)
        for _ in range(200):
            await producer.send(Message("orders", b"y" * 2_000))
        await asyncio.to_thread(copy, data, second, first)
    log = Path("files/store/commitlog")
    shared = [path.name for path in sorted((second / log).iterdir()) if path.stat().st_nlink == 2]
    assert f"{0:020}" in shared
    assert len(shared) < len(list((first / log).iterdir())) < len(list((second / log).iterdir()))
    restore(second, tmp_path / "again")
    assert check_store(StoreScan(tmp_path / "again" / "store")).sound


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Return a small backup of a stopped server."""

    async def main() -> None:
        async with served(data) as server, Producer("shop", server.namesrv_address, **WHO) as producer:
            await producer.send(Message("orders", b"x" * 2_000))

    data = new_data(tmp_path)
    asyncio.run(main())
    copy(data, tmp_path / "backup")
    return tmp_path / "backup"


def flipped(backup: Path) -> None:
    path = next((backup / "files" / "store" / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"?")


def unreadable(backup: Path) -> None:
    (backup / MANIFEST).write_text("{")


def of_a_later_version(backup: Path) -> None:
    path = backup / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))


def leading_out(backup: Path) -> None:
    path = backup / MANIFEST
    path.write_text(path.read_text().replace("files/plain_acl.yml", "files/../../plain_acl.yml"))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (flipped, "is not as it was written"),
        (unreadable, "cannot be read"),
        (of_a_later_version, "format 2"),
        (leading_out, "outside of the backup"),
        (lambda backup: (backup / MANIFEST).unlink(), "is no backup"),
        (
            lambda backup: (backup.parent / "again").mkdir() or (backup.parent / "again" / "x").touch(),
            "something in it",
        ),
    ],
)
def test_what_cannot_be_restored_is_an_error_with_words(
    tmp_path: Path, backup: Path, harm: Callable[[Path], None], words: str
) -> None:
    harm(backup)
    with pytest.raises(StoreError, match=words):
        restore(backup, tmp_path / "again")


def test_what_cannot_be_backed_up_is_an_error_with_words(tmp_path: Path, backup: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(StoreError, match="is there already"):
        copy(data, backup)
    (tmp_path / "half.part").mkdir()
    with pytest.raises(StoreError, match="did not end"):
        copy(data, tmp_path / "half")
    with pytest.raises(StoreError, match="is no backup"):
        copy(data, tmp_path / "third", tmp_path / "data")
    assert read_manifest(backup).store == "store"
