"""kill -9: all acknowledged messages are present afterwards, in order (store.md §10.4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_reads import read_now
from tianzhou.records.codec import decode_record
from tianzhou.store import MessageStore, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan

WRITER = """
import asyncio, sys
from tianzhou.store import MessageStore, NewRecord, PutStatus, StoreSettings

async def main(folder, flush_type):
    settings = StoreSettings(
        store_path_root_dir=folder, mapped_file_size_commit_log=1 << 18, mapped_file_size_consume_queue=4000,
        max_hash_slot_num=500, max_index_num=2000, flush_disk_type=flush_type,
        flush_interval_consume_queue=20, flush_consume_queue_thorough_interval=50, disk_space_enough_free_bytes=1,
    )
    async with MessageStore(settings) as store:
        number = max((store.max_offset("T", q) for q in range(4)), default=0)
        async def one(queue_id, number):
            text = f"{queue_id}-{number}"
            record = NewRecord(
                "T", queue_id, text.encode() * 40, f"UNIQ_KEY\\x01{text}\\x02".encode(), uniq_key=text
            )
            result = store.append(record)
            assert result.status is PutStatus.PUT_OK, result
            assert await store.settle(result, 60_000) is PutStatus.PUT_OK
            print(queue_id, result.queue_offset, result.physical_offset, text, flush=True)
        while True:
            await asyncio.gather(*(one(q, number + n) for n in range(8) for q in range(4)))
            number += 8

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def killed_writer(folder: Path, flush_type: str, least_lines: int) -> list[tuple[int, int, int, str]]:
    """Run the writer until it has acknowledged enough, kill it, and return the acknowledged messages."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), flush_type], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        deadline = time.monotonic() + 60
        for line in process.stdout:
            lines.append(line)
            if len(lines) >= least_lines or time.monotonic() > deadline:
                break
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
    whole = [line.split() for line in lines if line.endswith("\n")]
    assert len(whole) >= least_lines
    return [(int(queue), int(offset), int(physical), text) for queue, offset, physical, text in whole]


def settings_for(folder: Path) -> StoreSettings:
    return StoreSettings(
        store_path_root_dir=str(folder),
        mapped_file_size_commit_log=1 << 18,
        mapped_file_size_consume_queue=4000,
        max_hash_slot_num=500,
        max_index_num=2000,
    )


def texts(store: MessageStore, queue_id: int) -> Iterator[tuple[int, int, str]]:
    position = 0
    while parts := read_now(store, "T", queue_id, position, 32).parts:
        for part in parts:
            record = decode_record(part, check_crc=True)
            assert record.queue_offset == position
            position += 1
            yield record.queue_offset, record.physical_offset, record.properties.decode().split("\x01")[1][:-1]


@pytest.mark.parametrize("flush_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_acknowledged_messages_survive_being_killed_again_and_again(tmp_path: Path, flush_type: str) -> None:
    acknowledged: list[tuple[int, int, int, str]] = []
    for _ in range(3):
        acknowledged += killed_writer(tmp_path, flush_type, 600)
        assert (tmp_path / "abort").exists()
    store = MessageStore(settings_for(tmp_path))
    report = store.open()
    assert not report.clean
    assert report.damaged == []
    for queue_id in range(4):
        found = list(texts(store, queue_id))
        assert len(found) == store.max_offset("T", queue_id)
        assert [physical for _, physical, _ in found] == sorted(physical for _, physical, _ in found)
        by_offset = {offset: (physical, text) for offset, physical, text in found}
        for queue, offset, physical, text in acknowledged:
            if queue == queue_id:
                assert by_offset[offset] == (physical, text)
    for _, _, physical, text in acknowledged[::37]:
        assert physical in at_once(store.lookups.key_steps("T", text, 64)).physical_offsets
    store.close_now()
    assert check_store(StoreScan(tmp_path), slots=500).problems == []


def test_being_killed_while_recovering_does_no_harm(tmp_path: Path) -> None:
    acknowledged = killed_writer(tmp_path, "SYNC_FLUSH", 300)
    code = (
        "import os, sys\nfrom tianzhou.store import MessageStore, StoreSettings\n"
        "from tianzhou.store.startup import replay\n"
        "count = 0\nbefore = replay.LogReplay._dispatch\n"
        "def dispatch(*a):\n    global count\n    count += 1\n"
        "    if count > int(sys.argv[2]): os.kill(os.getpid(), 9)\n"
        "    return before(*a)\n"
        "replay.LogReplay._dispatch = dispatch\n"
        "MessageStore(StoreSettings(store_path_root_dir=sys.argv[1], mapped_file_size_commit_log=1 << 18,"
        " mapped_file_size_consume_queue=4000, max_hash_slot_num=500, max_index_num=2000)).open()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for stop_after in (1, 50, 200):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(stop_after)], env=environment, timeout=60, check=False
        )
        assert done.returncode in {0, -signal.SIGKILL}
    store = MessageStore(settings_for(tmp_path))
    store.open()
    for queue_id in range(4):
        by_offset = {offset: (physical, text) for offset, physical, text in texts(store, queue_id)}
        for queue, offset, physical, text in acknowledged:
            if queue == queue_id:
                assert by_offset[offset] == (physical, text)
    store.close_now()
    assert check_store(StoreScan(tmp_path), slots=500).problems == []
