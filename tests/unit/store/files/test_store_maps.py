"""More queues than the system lets a process have maps: the files used last are mapped, and all of them are served."""

from __future__ import annotations

import errno
import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_store import opened, small_store

from store_probe import StoreProbe, is_mapped
from store_reads import read_now
from tianzhou.shortages import advice
from tianzhou.store import GetStatus, MessageStore, NewRecord
from tianzhou.store.files import pages
from tianzhou.store.files.maps import QueueMaps, most_for_queues, system_limit
from tianzhou.store.files.segments import Segment

QUEUES = 150
FEW = 1
"""A limit below the minimum of 64, which then counts."""


small = partial(
    small_store,
    most_maps=FEW,
    batch_topics="B",
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue_ext=1 << 16,
    mapper_file_size_batch_consume_queue=460,
)


def send(store: MessageStore, topic: str, text: str) -> None:
    for queue in range(QUEUES):
        store.append(NewRecord(topic, queue, f"{text}-{queue}.".encode(), b""))


def bodies(store: MessageStore, topic: str, offset: int, text: str) -> int:
    """Return the number of queues that have the text's message at the offset."""
    found = 0
    for queue in range(QUEUES):
        result = read_now(store, topic, queue, offset, 1)
        found += result.status is GetStatus.FOUND and f"{text}-{queue}.".encode() in bytes(result.records)
    return found


@pytest.mark.parametrize(("topic", "changes"), [("T", {}), ("T", {"enable_consume_queue_ext": True}), ("B", {})])
def test_queues_without_number_are_written_read_stopped_and_started(
    tmp_path: Path, topic: str, changes: dict[str, Any]
) -> None:
    with opened(small(tmp_path, **changes)) as store:
        send(store, topic, "first")
        send(store, topic, "second")
        assert len(store.queue_kinds.maps) <= 64
        assert bodies(store, topic, 0, "first") == bodies(store, topic, 1, "second") == QUEUES
    assert len(store.queue_kinds.maps) == 0

    with opened(small(tmp_path, **changes)) as again:
        assert again.report.clean
        assert again.report.notes == []
        send(again, topic, "third")
        assert [bodies(again, topic, n, text) for n, text in enumerate(("first", "second", "third"))] == [QUEUES] * 3
        assert len(again.queue_kinds.maps) <= 64


def test_a_store_of_more_queues_than_maps_starts_after_a_crash(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        send(store, "T", "first")
    (tmp_path / "abort").touch()
    with opened(small(tmp_path)) as again:
        assert not again.report.clean
        assert bodies(again, "T", 0, "first") == QUEUES


def test_a_topic_whose_maps_were_given_up_can_be_deleted(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        send(store, "T", "first")
        store.delete_topic("T")
        store.clean_queues()
        send(store, "T", "other")
        assert bodies(store, "T", 0, "other") == QUEUES


def test_when_the_system_has_no_more_maps_some_are_given_up_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(small(tmp_path, most_maps=0)) as store:
        real = pages.map_file

        def scarce(fd: int, size: int) -> object:
            if len(store.queue_kinds.maps) >= 40:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            return real(fd, size)

        monkeypatch.setattr(pages, "map_file", scarce)
        with caplog.at_level(logging.WARNING):
            send(store, "T", "first")
        assert bodies(store, "T", 0, "first") == QUEUES
        assert store.writable
        assert "10 of 40 queue files are let go" in caplog.text
    assert not (tmp_path / "abort").exists()


def test_without_any_map_the_reason_and_the_sysctl_are_named_until_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(small(tmp_path, most_maps=65_530)) as store:
        store.append(NewRecord("T", 0, b"zero", b""))

        def none(fd: int, size: int) -> object:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

        with monkeypatch.context() as patch:
            patch.setattr(pages, "map_file", none)
            store.append(NewRecord("T", 1, b"one", b""))
            refused = store.append(NewRecord("T", 2, b"two", b""))
            assert "sysctl -w vm.max_map_count=262144" in refused.remark
            assert "free space" not in refused.remark
            assert not store.writable
        StoreProbe(store).dispatch_all()
        assert store.writable
        assert read_now(store, "T", 1, 0, 1).status is GetStatus.FOUND
        assert read_now(store, "T", 0, 0, 1).status is GetStatus.FOUND
    assert not (tmp_path / "abort").exists()


def test_what_is_being_read_outlives_its_map(tmp_path: Path) -> None:
    maps = QueueMaps(FEW)
    maps.most = 2
    segments = [Segment.create(tmp_path / f"{n}", 0, 4096, maps) for n in range(2)]
    segments[0].map[:4] = b"here"
    view = segments[0].view[:4]
    Segment.create(tmp_path / "further", 0, 4096, maps)
    assert not is_mapped(segments[0])
    assert bytes(view) == b"here"
    assert bytes(segments[0].view[:4]) == b"here"


def test_what_was_written_before_the_map_was_given_up_reaches_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = QueueMaps(FEW)
    segment = Segment.create(tmp_path / "file", 0, 4096, maps)
    segment.map[:4] = b"here"
    segment.let_go()
    synced = []
    real = os.fdatasync

    def sync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    segment.sync(0, 4)
    assert synced == [(tmp_path / "file").stat().st_ino]
    segment.path.unlink()
    segment.sync(0, 4)  # deleted meanwhile, as topics are


@pytest.mark.parametrize(("limit", "most"), [(0, 1 << 62), (65_530, 57_339), (2000, 976), (10, 64), (1 << 20, 917_504)])
def test_queues_leave_maps_for_the_rest_of_the_process(limit: int, most: int) -> None:
    assert most_for_queues(limit) == most


def test_a_system_that_does_not_say_has_no_limit(tmp_path: Path) -> None:
    assert system_limit(tmp_path / "absent") == 0
    (tmp_path / "odd").write_text("many\n")
    assert system_limit(tmp_path / "odd") == 0
    (tmp_path / "there").write_text("65530\n")
    assert system_limit(tmp_path / "there") == 65_530


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "free space"),
        (errno.ENOMEM, "vm.max_map_count"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EACCES, "read and write everything"),
        (errno.EIO, "disk"),
    ],
)
def test_each_shortage_has_its_advice(number: int, text: str) -> None:
    assert text in advice(OSError(number, "x"))
