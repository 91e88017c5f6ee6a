"""Disks that refuse to sync, and slow ones: every acknowledged message is on the disk (users.md faults 5, 7)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from mmap import mmap
from pathlib import Path

import pytest
from processes import Tianzhou

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou import Message, MessageQueue, Producer, PullConsumer, SendStatus
from tianzhou.admin import Admin
from tianzhou.errors import TianzhouError
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore, NewRecord, PutResult, PutStatus, StoreSettings
from tianzhou.store.files import pages

FLAKY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* msync as the real one, but slower or refused while the file $FLAKY_DISK.slow or $FLAKY_DISK.eio exists. */
static int there(const char *suffix) {
    char path[4096];
    const char *base = getenv("FLAKY_DISK");
    struct stat found;
    size_t n = 0, m = 0;
    if (!base) return 0;
    while (base[n] && n < 4000) { path[n] = base[n]; n++; }
    while (suffix[m]) { path[n++] = suffix[m++]; }
    path[n] = 0;
    return stat(path, &found) == 0;
}

int msync(void *address, size_t length, int flags) {
    static int (*real)(void *, size_t, int);
    if (!real) real = (int (*)(void *, size_t, int)) dlsym(RTLD_NEXT, "msync");
    if (there(".slow")) usleep(200000);
    if (there(".eio")) { errno = EIO; return -1; }
    return real(address, length, flags);
}
"""


def settings_for(folder: Path, **more: object) -> StoreSettings:
    values: dict[str, object] = {
        "store_path_root_dir": str(folder),
        "mapped_file_size_commit_log": 1 << 18,
        "mapped_file_size_consume_queue": 4000,
        "max_hash_slot_num": 500,
        "max_index_num": 2000,
        "flush_disk_type": "SYNC_FLUSH",
        "flush_interval_consume_queue": 20,
        "flush_consume_queue_thorough_interval": 50,
        "sync_flush_timeout": 3000,
    }
    return StoreSettings(**{**values, **more})  # type: ignore[arg-type]


class Disk:
    """`pages.sync` with injected faults, and a record of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real = pages.sync
        self.refuse_after: int | None = None
        self.delay: tuple[float, float] = (0, 0)
        self.calls = 0
        self.running = 0
        self.most = 0
        self.guard = threading.Lock()
        self.rng = random.Random(3)
        monkeypatch.setattr(pages, "sync", self.sync)

    def sync(self, memory: mmap, address: int, start: int, end: int) -> None:
        with self.guard:
            self.calls += 1
            refused = self.refuse_after is not None and self.calls > self.refuse_after
            delay = self.rng.uniform(*self.delay)
        time.sleep(delay)
        if refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.real(memory, address, start, end)


def put(store: MessageStore, number: int) -> PutResult:
    text = f"{number}"
    return store.append(
        NewRecord("T", number % 3, text.encode() * 20, f"UNIQ_KEY\x01{text}\x02".encode(), uniq_key=text)
    )


def numbers(store: MessageStore) -> dict[int, int]:
    """Return physical offsets by number, of all served messages."""
    found = {}
    for queue_id in range(3):
        position = 0
        while (result := read_now(store, "T", queue_id, position, 32)).status is GetStatus.FOUND:
            for part in result.parts:
                record = decode_record(part, check_crc=True)
                found[int(record.properties[9:-1])] = record.physical_offset
            position = result.next_offset
    return found


@pytest.mark.parametrize("refuse_after", [0, 1, 5, 17, 40])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_after_a_failed_sync_nothing_is_acknowledged_and_reading_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refuse_after: int, flush: str
) -> None:
    disk = Disk(monkeypatch)
    acknowledged: dict[int, PutResult] = {}
    safe_end = 0

    async def main() -> None:
        nonlocal safe_end
        settings = settings_for(
            tmp_path, flush_disk_type=flush, flush_interval_commit_log=5, flush_commit_log_thorough_interval=5
        )
        async with MessageStore(settings) as store:
            disk.refuse_after = disk.calls + refuse_after

            async def one(number: int) -> PutStatus:
                result = put(store, number)
                status = await store.settle(result)
                if status is PutStatus.PUT_OK:
                    acknowledged[number] = result
                return status

            number = 0
            deadline = time.monotonic() + 20
            while store.writable and time.monotonic() < deadline:
                statuses = await asyncio.gather(*(one(number + n) for n in range(5)))
                number += 5
                assert set(statuses) <= {
                    PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.SERVICE_NOT_AVAILABLE,
                }  # fmt: skip
                await asyncio.sleep(0.001)
            assert not store.writable
            safe_end = store.flushed.value
            refused = put(store, number)
            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            if StoreProbe(store).flush_failed:
                assert "only reads" in refused.remark
            # Messages served before are still served.
            present = numbers(store)
            if flush == "SYNC_FLUSH":
                assert acknowledged.keys() <= present.keys()
            disk.refuse_after = None
            # The disk works again, but it may have dropped pages: the store does not retry.
            await asyncio.sleep(0.1)
            if StoreProbe(store).flush_failed:
                assert put(store, number).status is PutStatus.SERVICE_NOT_AVAILABLE

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert caplog.records, "loud"
    if flush == "SYNC_FLUSH":
        assert all(result.end_offset <= safe_end for result in acknowledged.values())
    assert (tmp_path / "abort").exists(), "the next start has to look"
    store = MessageStore(settings_for(tmp_path))
    assert not store.open().clean
    present = numbers(store)
    for number, result in acknowledged.items():
        assert present[number] == result.physical_offset
    assert put(store, 1_000_000).status is PutStatus.PUT_OK
    store.close_now()


def test_a_slow_disk_delays_acknowledgements_and_fakes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)

    async def main() -> tuple[list[float], int]:
        async with MessageStore(settings_for(tmp_path)) as store:
            disk.delay = (0.05, 0.5)
            took: list[float] = []
            waiting = most = 0

            async def one(number: int) -> None:
                nonlocal waiting, most
                began = time.monotonic()
                result = put(store, number)
                waiting += 1
                most = max(most, waiting)
                status = await store.settle(result, 10_000)
                waiting -= 1
                took.append(time.monotonic() - began)
                assert status is PutStatus.PUT_OK
                assert store.flushed.value >= result.end_offset

            for turn in range(6):
                await asyncio.gather(*(one(turn * 50 + n) for n in range(50)))
            disk.delay = (0, 0)
            # A limit shorter than the disk's time has its own response code, not success.
            disk.delay = (0.3, 0.3)
            assert await store.settle(put(store, 999), 20) is PutStatus.FLUSH_DISK_TIMEOUT
            disk.delay = (0, 0)
            return took, disk.calls

    took, calls = asyncio.run(main())
    assert min(took) >= 0.05
    assert max(took) < 5
    # Waiting messages share a sync, so a slow disk gets few syncs.
    assert calls < 120


@pytest.fixture(scope="module")
def flaky_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a C compiler makes the disk of a real process fail; there is none")
    folder = tmp_path_factory.mktemp("flaky")
    (folder / "flaky.c").write_text(FLAKY)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", "flaky.so", "flaky.c", "-ldl"], cwd=folder, check=True, timeout=60
    )
    return folder / "flaky.so"


def test_a_broker_whose_disk_fails_says_so_and_only_reads(
    tmp_path: Path, flaky_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process: acknowledgements end with the sync, reads continue, memory is bounded, a restart has
    all messages.
    """
    control = tmp_path / "disk"
    (tmp_path / "broker.conf").write_text(
        f"brokerName=broker-a\nbrokerIP1=127.0.0.1\nlistenPort=0\nstorePathRootDir={tmp_path / 'store'}\n"
        "flushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=4000\n"
        "maxHashSlotNum=500\nmaxIndexNum=5000\nsyncFlushTimeout=2000\ndiskMaxUsedSpaceRatio=99\n"
    )
    acknowledged: list[tuple[int, bytes]] = []
    refusals: list[str] = []

    async def send(producer: Producer, body: bytes) -> SendStatus | None:
        queue = MessageQueue("T", "broker-a", 0)
        try:
            result = await producer.send(Message("T", body), queue=queue, timeout_ms=8_000)
        except TianzhouError as error:
            refusals.append(str(error))
            return None
        if result.status is SendStatus.SEND_OK:
            acknowledged.append((result.queue_offset, body))
        return result.status

    async def bodies(namesrv: str) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        async with PullConsumer("reader", namesrv) as consumer:
            queue = MessageQueue("T", "broker-a", 0)
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset)
                found |= {message.queue_offset: message.body for message in result.messages}
                offset = result.next_offset
        return found

    async def main(broker: Tianzhou, namesrv: str) -> None:
        async with Admin(namesrv) as admin:
            await admin.topics.create("T", read_queue_nums=1, write_queue_nums=1)
        async with Producer("P", namesrv, retry_times_when_send_failed=0) as producer:
            assert await send(producer, b"first") is SendStatus.SEND_OK
            control.with_suffix(".slow").touch()
            before = broker.figure("RssAnon")
            began = time.monotonic()
            slow = await asyncio.gather(*(send(producer, b"slow %d " % n * 200) for n in range(400)))
            took = time.monotonic() - began
            assert set(slow) == {SendStatus.SEND_OK}
            assert 0.2 <= took < 8
            assert broker.figure("RssAnon") < before + (48 << 20)
            control.with_suffix(".slow").unlink()
            control.with_suffix(".eio").touch()
            count = len(acknowledged)
            failed = await asyncio.gather(*(send(producer, b"failed %d" % n) for n in range(20)))
            assert len(acknowledged) == count
            assert SendStatus.SEND_OK not in failed
            control.with_suffix(".eio").unlink()
            assert await send(producer, b"too late") is None
            assert "only reads" in refusals[-1]
        found = await bodies(namesrv)
        assert all(found[offset] == body for offset, body in acknowledged)

    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(Tianzhou(tmp_path, "namesrv", "--port", 0, "-o", "json"))
        address = f"127.0.0.1:{namesrv.ready()['port']}"
        with monkeypatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(flaky_library))
            patch.setenv("FLAKY_DISK", str(control))
            broker = stack.enter_context(Tianzhou(tmp_path, "broker", "-c", "broker.conf", "-n", address, "-o", "json"))
        broker.ready()
        asyncio.run(main(broker, address))
        assert "refused the commit log" in broker.err
        broker.interrupt()
        again = stack.enter_context(Tianzhou(tmp_path, "broker", "-c", "broker.conf", "-n", address, "-o", "json"))
        again.ready()
        found = asyncio.run(bodies(address))
        assert all(found[offset] == body for offset, body in acknowledged)
        assert "not stopped cleanly" in again.err
