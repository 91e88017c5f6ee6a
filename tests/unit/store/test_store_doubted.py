"""`checkStoreOnStart`: a store on doubtful media is checked as a whole before it is served."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from small_store import flip, opened, read_queue, small_store

from store_reads import read_now
from tianzhou.errors import StoreUnreadable
from tianzhou.store import GetStatus, MessageStore, NewRecord


def store_of(root: Path, *, check: bool, log: str = "") -> MessageStore:
    return small_store(root, store_path_commit_log=log, check_store_on_start=check)


def fill(root: Path, log: str = "") -> None:
    with opened(store_of(root, check=True, log=log)) as store:
        for number in range(50):
            store.append(NewRecord("T", number % 2, b"body %d" % number, b"KEYS\x01k\x02", keys="k"))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_flipped_bit_in_a_body_is_found_before_serving(tmp_path: Path, elsewhere: bool) -> None:
    root, log = tmp_path / "store", str(tmp_path / "log") if elsewhere else ""
    fill(root, log)
    segment = Path(log or root / "commitlog") / f"{0:020d}"
    flip(segment, segment.read_bytes().index(b"body 30") + 2, 1)

    with pytest.raises(StoreUnreadable) as refusal:
        store_of(root, check=True, log=log).open()
    for part in ("no intact record between", "the CRC of the body is wrong", "tianzhou store repair", "=false"):
        assert part in str(refusal.value)
    with opened(store_of(root, check=False, log=log)) as as_it_is:
        assert read_now(as_it_is, "T", 0, 15, 1).status is GetStatus.FOUND


def test_a_sound_store_is_served_and_what_was_checked_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)
    with caplog.at_level(logging.INFO), opened(store_of(tmp_path, check=True)) as store:
        assert "50 messages in 2 queues checked" in caplog.text
        assert len(read_queue(store)) == 25


def test_the_loose_ends_of_a_crash_are_no_damage(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "abort").touch()
    segment = tmp_path / "commitlog" / f"{0:020d}"
    flip(segment, segment.read_bytes().index(b"body 49") + 2, 1)
    with opened(store_of(tmp_path, check=True)) as store:
        assert store.max_offset("T", 0) == 25
