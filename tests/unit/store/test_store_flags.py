"""Running flags: the requests that each refuses, and the replies to producers (store.md §9.2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_store import opened, small_store

from store_reads import read_now
from tianzhou.store import NewRecord, PutStatus
from tianzhou.store.flags import RunningFlag, RunningFlags


@pytest.mark.parametrize("flag", RunningFlag)
def test_each_flag_has_its_effect(flag: RunningFlag) -> None:
    flags = RunningFlags()
    assert (flags.bits, flags.refusal) == (0, None)
    assert flags.put_up(flag, "why")
    assert not flags.put_up(flag, "why else")
    assert flags.bits == flag
    assert flags.refusal == (None if flag is RunningFlag.NOT_READABLE else "why else")
    assert flags.take_down(flag)
    assert not flags.take_down(flag)
    assert flags.refusal is None


def test_a_store_refuses_puts_until_the_last_flag_is_down(tmp_path: Path) -> None:
    store = small_store(tmp_path)
    assert store.append(NewRecord("t", 0, b"x", b"")).status is PutStatus.SERVICE_NOT_AVAILABLE
    with opened(store):
        assert store.append(NewRecord("t", 0, b"x", b"")).status is PutStatus.PUT_OK
        store.flags.put_up(RunningFlag.DISK_FULL, "the disk is full; free space")
        store.flags.put_up(RunningFlag.FENCED, "fenced")
        refused = store.append(NewRecord("t", 0, b"x", b""))
        assert (refused.status, refused.remark) == (PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full; free space")
        assert read_now(store, "t", 0, 0, 1).count == 1
        store.flags.take_down(RunningFlag.DISK_FULL)
        assert store.append(NewRecord("t", 0, b"x", b"")).remark == "fenced"
        assert not store.writable
        store.flags.take_down(RunningFlag.FENCED)
        assert store.append(NewRecord("t", 0, b"x", b"")).status is PutStatus.PUT_OK
