"""A start on a disk without space: refused with an error, or serving the stored messages; never ended by a signal."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Tianzhou
from small_disk import KINDS, small_disk

from store_reads import read_now
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.store.files.lookup_steps import at_once

KIBIBYTE = 1 << 10
COUNT, QUEUES = 300, 20
PROGRAM = """
import json, sys
from tianzhou.errors import DiskFull
from tianzhou.store import MessageStore, NewRecord, ReadRequest, StoreSettings
from tianzhou.store.files.lookup_steps import at_once

store = MessageStore(StoreSettings(**json.loads(sys.argv[1])))
try:
    store.open()
except DiskFull as error:
    print("refused", error)
    raise SystemExit
found = sum(store.read(ReadRequest("T", queue, 0, 32), blocks=True).count for queue in range(int(sys.argv[2])))
store.append(NewRecord("T", 0, b"x" * 300, b"KEYS\\x01later\\x02", keys="later"))
for key in range(400):
    try:
        at_once(store.lookups.key_steps("T", f"k{key}", 5))
    except OSError as error:
        assert error.errno == 28, error
store.close_now()
print("served", found)
"""


def settings(folder: Path) -> StoreSettings:
    return StoreSettings(
        store_path_root_dir=str(folder), mapped_file_size_commit_log=4 << 20, mapped_file_size_consume_queue=400_000,
        max_hash_slot_num=100_000, max_index_num=100_000, clean_file_forcibly_enable=False,
    )  # fmt: skip


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of its own, of 16 MiB."""
    with small_disk(request.param, tmp_path, 16, 16) as target:
        yield target


def fill(disk: Path, leave: int) -> Path:
    """Fill the disk up to about the given number of free bytes."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for step in (1 << 18, 4096):
            try:
                while True:
                    file.write(b"\xff" * step)
                    if step == 4096:
                        os.fsync(file.fileno())
            except OSError:
                pass
        if leave:
            file.truncate(max(file.tell() - leave, 0))
            os.fsync(file.fileno())
    return ballast


@pytest.mark.parametrize("stop", ["clean", "killed", "lost power"])
@pytest.mark.parametrize("leave", [0, 12, 40])
def test_a_start_on_a_full_disk_ends_with_words(disk: Path, tmp_path: Path, stop: str, leave: int) -> None:
    folder = disk / "store"
    store = MessageStore(settings(folder))
    store.open()
    for number in range(COUNT):
        key = f"k{number}"
        store.append(NewRecord("T", number % QUEUES, b"x" * 300, f"KEYS\x01{key}\x02".encode(), keys=key))
    running = (folder / "running.json").read_bytes()
    store.close_now()
    if stop != "clean":
        (folder / "abort").write_text(str(os.getpid()))
    if stop == "killed":
        (folder / "running.json").write_bytes(running)
    ballast = fill(disk, leave * KIBIBYTE)

    given = json.dumps(dataclasses.asdict(settings(folder)))
    with Tianzhou(tmp_path, given, QUEUES, program=PROGRAM) as child:
        assert child.wait() == 0, child.err
    if child.out.startswith("refused"):
        assert "free space" in child.out
    else:
        assert child.out == f"served {COUNT}\n"

    ballast.unlink()
    again = MessageStore(settings(folder))
    again.open()
    assert sum(read_now(again, "T", queue, 0, 32).count for queue in range(QUEUES)) in {COUNT, COUNT + 1}
    assert all(len(at_once(again.lookups.key_steps("T", f"k{number}", 5)).parts) == 1 for number in range(COUNT))
    again.close_now()
