"""Names of new directories reach the disk with their files, and thousands of files with one sync."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tianzhou.store.files import directories, pages
from tianzhou.store.files.directories import begin_directory, make_directory
from tianzhou.store.files.segments import Segment, SegmentQueue
from tianzhou.store.log.flush import MANY, sync_queues

SIZE = 8192


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the list of synced objects: directories by path, `pages` of a file, `system` for a whole file system."""
    calls: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        calls.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(pages, "sync", lambda *_: calls.append("pages"))
    monkeypatch.setattr(pages, "sync_file_system", lambda _: calls.append("system") or True)
    return calls


def queue(root: Path, topic: str, number: int) -> Segment:
    segment = SegmentQueue([root / "consumequeue" / topic / str(number)], SIZE).create(0)
    segment.map[:5] = b"units"
    return segment


def test_a_queues_first_file_is_made_without_waiting_for_the_disk(tmp_path: Path, synced: list[str]) -> None:
    first, second = queue(tmp_path, "T", 0), queue(tmp_path, "T", 1)
    assert synced == []
    first.sync(0, 20)
    folder = tmp_path / "consumequeue"
    assert synced[:2] == ["pages", str(folder / "T" / "0")]
    assert set(synced[2:]) == {str(tmp_path), str(folder), str(folder / "T")}
    synced.clear()
    second.sync(0, 20)
    assert synced == ["pages", str(folder / "T" / "1")]  # the parents are already synced, for both
    synced.clear()
    second.sync(20, 40)
    assert synced == ["pages"]


def test_a_file_that_does_not_begin_at_its_beginning_gets_its_name_too(tmp_path: Path, synced: list[str]) -> None:
    segment = queue(tmp_path, "T", 0)
    segment.sync(4096, 8192)
    assert str(tmp_path / "consumequeue" / "T" / "0") in synced


def test_a_name_that_the_disk_refused_is_tried_again(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = queue(tmp_path, "T", 0)
    with monkeypatch.context() as broken:

        def refuse(fd: int) -> None:
            raise OSError(errno.EIO, "broken")

        broken.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="broken"):
            segment.sync(4096, 8192)
    synced.clear()
    segment.sync(4096, 8192)
    assert {str(tmp_path / "consumequeue"), str(tmp_path / "consumequeue" / "T" / "0")} <= set(synced)


def test_a_directory_made_for_good_is_on_the_disk_on_return(tmp_path: Path, synced: list[str]) -> None:
    make_directory(tmp_path / "a" / "b")
    assert set(synced) == {str(tmp_path), str(tmp_path / "a")}
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_a_directory_that_was_deleted_meanwhile_is_no_error(tmp_path: Path, synced: list[str]) -> None:
    begin_directory(tmp_path / "a" / "b" / "c")
    (tmp_path / "a" / "b" / "c").rmdir()
    (tmp_path / "a" / "b").rmdir()
    directories.sync_new_directories(tmp_path / "a" / "b" / "c")
    assert set(synced) == {str(tmp_path), str(tmp_path / "a")}


@pytest.mark.parametrize("count", [MANY - 1, MANY])
def test_many_files_are_synced_with_their_file_system(tmp_path: Path, synced: list[str], count: int) -> None:
    segments = [queue(tmp_path, f"T{number % 7}", number) for number in range(count)]
    sync_queues([(segment, 0, 20) for segment in segments])
    if count < MANY:
        assert synced.count("pages") == count
    else:
        assert synced == ["system"]
        assert all(segment.named for segment in segments)


def test_syncing_many_files_does_not_ask_the_system_for_each(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [queue(tmp_path, f"T{number % 7}", number) for number in range(MANY)]
    real, asked = os.stat, []
    monkeypatch.setattr(os, "stat", lambda path, *others, **named: asked.append(path) or real(path, *others, **named))
    sync_queues([(segment, 0, 20) for segment in segments])
    assert synced == ["system"]
    assert asked == []


def test_many_files_on_two_disks_are_synced_with_both(tmp_path: Path, synced: list[str]) -> None:
    segments = [queue(tmp_path, "T", number) for number in range(MANY)]
    segments[5].device += 1
    sync_queues([(segment, 0, 20) for segment in segments])
    assert synced == ["system", "system"]


def test_a_file_knows_its_disk_while_it_is_mapped(tmp_path: Path) -> None:
    segment = queue(tmp_path, "T", 0)
    device = tmp_path.stat().st_dev
    assert segment.device == device
    segment.close()
    assert segment.device == -1
    assert segment.map[:5] == b"units"
    assert segment.device == device
    segment.retire().release()
    assert segment.device == -1


def test_where_file_systems_cannot_be_synced_each_file_is(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "sync_file_system", lambda _: False)
    sync_queues([(queue(tmp_path, "T", number), 0, 20) for number in range(MANY)])
    assert synced.count("pages") == MANY


def test_files_deleted_meanwhile_do_not_keep_the_others_from_the_disk(tmp_path: Path, synced: list[str]) -> None:
    segments = [queue(tmp_path, "T", number) for number in range(MANY)]
    segments[3].delete()
    sync_queues([(segment, 0, 20) for segment in segments])
    assert synced.count("pages") == MANY - 1


def test_a_whole_file_system_can_be_synced_here(tmp_path: Path) -> None:
    assert directories.sync_file_system(tmp_path)


def test_maps_take_no_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    segments = [Segment.create(tmp_path / f"{number:020d}", 0, SIZE) for number in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    segments[7].map[10:15] = b"bytes"
    assert (tmp_path / f"{7:020d}").read_bytes()[10:15] == b"bytes"
    for segment in segments:
        segment.close()
