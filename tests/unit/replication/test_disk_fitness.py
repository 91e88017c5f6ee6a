"""Conditions under which a member with a failing disk must not lead."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tianzhou.replication.disk_fitness import PATIENCE_S, DiskRefusal, write_probe
from tianzhou.store.flags import RunningFlag, RunningFlags


def test_a_leader_has_five_seconds_and_every_other_member_none() -> None:
    disk = DiskRefusal()
    assert disk.unfit("", 0.0, leads=True) == ""
    assert disk.unfit("disk full", 1.0, leads=True) == ""
    assert disk.unfit("disk full", 1.0 + PATIENCE_S - 0.1, leads=True) == ""
    assert disk.unfit("disk full", 1.0 + PATIENCE_S, leads=True) == "its disk refuses writes: disk full"
    assert disk.unfit("disk full", 2.0, leads=False) == "its disk refuses writes: disk full"


def test_a_disk_that_takes_writes_again_begins_anew() -> None:
    disk = DiskRefusal()
    disk.unfit("disk full", 0.0, leads=True)
    assert disk.unfit("", 4.0, leads=True) == ""
    assert disk.unfit("disk full", 6.0, leads=True) == ""
    assert disk.unfit("disk full", 11.0, leads=True)


def test_flags_of_the_disk_are_told_from_others() -> None:
    flags = RunningFlags()
    flags.put_up(RunningFlag.FENCED, "fenced")
    assert flags.text_of(RunningFlag.DISK_FULL | RunningFlag.NOT_WRITABLE) == ""
    flags.put_up(RunningFlag.DISK_FULL, "full")
    assert flags.text_of(RunningFlag.DISK_FULL | RunningFlag.NOT_WRITABLE) == "full"


def test_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    write_probe(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="No such file") as missing:
        write_probe(tmp_path / "away")
    assert missing.value.errno == errno.ENOENT
