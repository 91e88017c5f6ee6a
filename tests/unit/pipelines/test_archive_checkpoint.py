"""Checkpoints of archives: one process at a time, and a table belongs to the checkpoint it was begun with."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest

from tianzhou.errors import ConfigError
from tianzhou.pipelines.archive_checkpoint import held_checkpoint, is_local, last_batch


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("archive", True),
        ("/data/archive", True),
        ("./a:b", True),
        ("a/b:c", True),
        ("hdfs://name/archive", False),
        ("file:/archive", False),
        ("s3a://bucket/archive", False),
        ("//host/archive", False),
        ("a:b", False),
        ("", False),
    ],
)
def test_folders_of_this_machine(path: str, local: bool) -> None:
    assert is_local(path) is local


def test_the_last_batch_by_the_names_of_logs() -> None:
    assert last_batch([]) == -1
    assert last_batch(["8", "9.compact", ".9.compact.crc", "metadata", "12.tmp", "010"]) == 9


def archived(to: Path, listed: int, begun: int, checkpoint: Path | None = None) -> None:
    """Write the names that Spark's logs have after micro-batches 0 to `listed` and `begun`."""
    for folder, last in ((to / "_spark_metadata", listed), ((checkpoint or to / "_checkpoint") / "offsets", begun)):
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(last + 1):
            (folder / str(number)).touch()


@pytest.mark.parametrize(("listed", "begun"), [(-1, -1), (-1, 0), (0, 0), (3, 4), (4, 4)])
def test_a_table_and_its_checkpoint_fit(tmp_path: Path, listed: int, begun: int) -> None:
    archived(tmp_path, listed, begun)
    with held_checkpoint(str(tmp_path), None):
        assert (tmp_path / "_checkpoint").is_dir()


@pytest.mark.parametrize(("begun", "last"), [(-1, "none"), (1, "1")])
def test_a_table_of_another_checkpoint_is_refused(tmp_path: Path, begun: int, last: str) -> None:
    other = tmp_path / "other"
    archived(tmp_path / "a", 2, begun, other)
    text = f"has files up to batch 2 of another checkpoint than {other}, whose last is {last}; "
    with pytest.raises(ConfigError, match=text), held_checkpoint(str(tmp_path / "a"), str(other)):
        pass


def test_one_archive_at_a_time(tmp_path: Path) -> None:
    with held_checkpoint(str(tmp_path), None):
        refused = pytest.raises(ConfigError, match="another archive runs with it; wait, or give one of its own")
        with refused, held_checkpoint(str(tmp_path), None):
            pass
        with held_checkpoint(str(tmp_path / "b"), None):
            pass


def test_a_disk_without_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    with held_checkpoint(str(tmp_path), None), held_checkpoint(str(tmp_path), None):
        pass


def test_a_uri_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with held_checkpoint("hdfs://name/archive", None), held_checkpoint("hdfs://name/archive", "c"):
        assert list(tmp_path.iterdir()) == []
