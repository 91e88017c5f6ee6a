"""A power failure during the first run of a store: synced files are present, with the directory entries that lead to
them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from store_reads import read_now
from tianzhou.store import GetStatus, MessageStore, NewRecord, PutStatus, StoreSettings
from tianzhou.store.files.config_file import JsonFile
from tianzhou.testing.disk import ForgetfulDisk, watching

SEEDS = range(20)


def found_after(disk: ForgetfulDisk, place: Path) -> list[Path]:
    """Return some possible states after a power failure at this moment."""
    images = [place / str(seed) for seed in SEEDS]
    for image in images:
        disk.image(image)
    return images


async def test_a_new_store_is_found_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    disk = ForgetfulDisk(home, Random(1))

    def settings(where: Path) -> StoreSettings:
        return StoreSettings(
            store_path_root_dir=str(where / "broker" / "store"),
            mapped_file_size_commit_log=8_192,
            flush_disk_type="SYNC_FLUSH",
        )

    with disk.watching():
        async with MessageStore(settings(home)) as store:
            result = store.append(NewRecord("T", 0, b"first", b""))
            assert await store.settle(result) is PutStatus.PUT_OK
            images = found_after(disk, tmp_path / "images")
    for image in images:
        async with MessageStore(settings(image)) as store:
            assert read_now(store, "T", 0, 0, 1).status is GetStatus.FOUND


@pytest.mark.parametrize("times", [1, 2])
def test_a_configuration_that_was_written_is_found_again(tmp_path: Path, times: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    disk = ForgetfulDisk(home, Random(1))
    with disk.watching():
        for number in range(times):
            JsonFile(home / "config" / "topics.json").persist({"number": number})
        images = found_after(disk, tmp_path / "images")
    assert [JsonFile(image / "config" / "topics.json").load() for image in images] == [{"number": times - 1}] * len(
        images
    )


def test_two_disks_are_followed_at_once(tmp_path: Path) -> None:
    disks = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        disks.append(ForgetfulDisk(tmp_path / name, Random(1)))
    with watching(lambda: disks):
        JsonFile(tmp_path / "one" / "a.json").persist({"a": 1})
        JsonFile(tmp_path / "elsewhere" / "a.json").persist({"a": 1})
    assert disks[0].operations > 0
    assert disks[1].operations == 0
