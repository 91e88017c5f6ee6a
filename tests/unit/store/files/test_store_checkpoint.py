"""The checkpoint file reaches the disk before the store relies on it (store.md §9.1)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.testing.disk import ForgetfulDisk


@pytest.mark.parametrize("seed", range(20))
def test_a_written_checkpoint_survives_a_power_loss(tmp_path: Path, seed: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    checkpoint = Checkpoint(home / "checkpoint")
    checkpoint.write()
    disk = ForgetfulDisk(home, Random(seed))
    with disk.watching():
        checkpoint.physic_msg_timestamp = 1_700_000_000_000
        checkpoint.logics_msg_timestamp = 1_700_000_001_000
        checkpoint.index_msg_timestamp = 1_600_000_000_000
        checkpoint.write()
        disk.image(tmp_path / "image")
    found = Checkpoint(tmp_path / "image" / "checkpoint")
    assert found.load() == []
    assert found.encode() == checkpoint.encode()
    assert found.min_timestamp == 1_700_000_000_000 - 3000
