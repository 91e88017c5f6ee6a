"""The lines that a log follower sends, whatever happens to the files; without a server or a clock."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tianzhou.errors import ConfigError
from tianzhou.pipelines.logs import PRINT_BYTES, READ_BYTES, Follower, Positions


class Collector:
    """Collects the lines that a follower finds; `restart` is a new process with the old positions."""

    def __init__(self, folder: Path, pattern: str = "*.log", **options) -> None:
        self.folder = folder
        self.now = 0.0
        self._pattern = pattern
        self._options = options
        self._start()

    def _start(self) -> None:
        self.positions = Positions(self.folder / "state" / "positions")
        self.follower = Follower(
            [str(self.folder / self._pattern)], self.positions, now=lambda: self.now, **self._options
        )

    def take(self, acknowledge: bool = True) -> list[str]:
        """Return all available lines."""
        found = []
        for _ in range(50):
            more = False
            for lines in self.follower.poll():
                found += [line.decode() for _, line in lines.lines]
                more = acknowledge
                if acknowledge:
                    self.follower.sent(lines)
            if not more:
                return found
        raise AssertionError("there is no end to it")

    def restart(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        self.follower.close()
        self.positions.close()


@pytest.fixture
def logs(tmp_path):
    collector = Collector(tmp_path)
    yield collector
    collector.stop()


def write(path: Path, *lines: str, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[:-1]) + (f"{lines[-1]}{end}" if lines else ""))


def test_lines_are_sent_once_and_only_when_they_are_whole(logs, tmp_path):
    log = tmp_path / "a.log"
    write(log, "one", "", "two", "thr", end="")
    assert logs.take() == ["one", "two"]
    write(log, "ee\r", "four")
    assert logs.take() == ["three", "four"]
    assert logs.take() == []


def test_what_was_not_acknowledged_comes_again_after_a_restart(logs, tmp_path):
    write(tmp_path / "a.log", "one")
    assert logs.take() == ["one"]
    write(tmp_path / "a.log", "two", "three")
    assert logs.take(acknowledge=False) == ["two", "three"]
    logs.restart()
    assert logs.take() == ["two", "three"]
    logs.restart()
    assert logs.take() == []


@pytest.mark.parametrize("restart", [False, True])
def test_renamed_and_created_again(logs, tmp_path, restart):
    log = tmp_path / "a.log"
    write(log, "one")
    logs.take()
    write(log, "two")
    log.rename(tmp_path / "a.log.1")  # the pattern does not match it
    write(log, "three")
    if restart:
        logs.restart()
    assert logs.take() == ["two", "three"]
    write(tmp_path / "a.log.1", "late")  # its writer has not noticed yet
    assert logs.take() == ["late"]


def test_the_last_line_of_a_file_that_was_rotated_away_needs_no_end(logs, tmp_path):
    log = tmp_path / "a.log"
    write(log, "one", "unfinished", end="")
    assert logs.take() == ["one"]
    log.rename(tmp_path / "a.log.1")
    write(log, "two")
    logs.now = log.stat().st_mtime
    assert logs.take() == ["two"]
    logs.now += 5
    assert logs.take() == ["unfinished"]


@pytest.mark.parametrize("restart", [False, True])
def test_copied_and_truncated(logs, tmp_path, restart):
    log = tmp_path / "a.log"
    write(log, *[f"line {n}" for n in range(100)])
    logs.take()
    write(log, "unread")
    shutil.copy(log, tmp_path / "a.log.1")
    os.truncate(log, 0)
    write(log, "new")
    if restart:
        logs.restart()
    assert logs.take() == ["unread", "new"]
    assert logs.take() == []


@pytest.mark.parametrize("pattern", ["*.log", "a.log*"])
def test_truncated_and_longer_than_before(tmp_path, pattern):
    """The size does not reveal it, but the bytes before the position do."""
    logs = Collector(tmp_path, pattern)
    log = tmp_path / "a.log"
    write(log, "x" * 10)
    assert logs.take() == ["x" * 10]
    shutil.copy(log, tmp_path / "a.log.1")
    os.truncate(log, 0)
    write(log, "y" * 30)
    assert logs.take() == ["y" * 30]
    logs.stop()


def test_a_pattern_that_matches_rotated_files_sends_nothing_twice(tmp_path):
    logs = Collector(tmp_path, "a.log*")
    log = tmp_path / "a.log"
    write(log, "one", "two")
    assert logs.take() == ["one", "two"]
    for number in range(3):
        for old in range(number, 0, -1):
            (tmp_path / f"a.log.{old}").rename(tmp_path / f"a.log.{old + 1}")
        log.rename(tmp_path / "a.log.1")
        write(log, f"after {number}")
        assert logs.take() == [f"after {number}"]
    shutil.copy(log, tmp_path / "a.log.copy")
    os.truncate(log, 0)
    assert logs.take() == []
    logs.stop()


def test_a_deleted_file_is_read_to_its_end(logs, tmp_path):
    log = tmp_path / "a.log"
    write(log, "one")
    logs.take()
    write(log, "two")
    log.unlink()
    assert logs.take() == ["two"]
    write(log, "three")
    assert logs.take() == ["three"]


def test_a_file_in_the_place_of_another_is_recognised_by_its_bytes(logs, tmp_path):
    """Inodes are reused, and sizes may be equal."""
    log = tmp_path / "a.log"
    write(log, "a" * PRINT_BYTES, "one")
    logs.take()
    with log.open("r+") as file:  # the same inode, other content
        file.write("b" * PRINT_BYTES)
    assert logs.take() == ["b" * PRINT_BYTES, "one"]


def test_a_line_without_end_is_cut(logs, tmp_path):
    (tmp_path / "a.log").write_bytes(b"z" * (READ_BYTES + 5) + b"\n")
    assert [len(line) for line in logs.take()] == [READ_BYTES, 5]


def test_from_the_end_is_about_the_first_start_only(tmp_path):
    write(tmp_path / "a.log", "old")
    logs = Collector(tmp_path, from_end=True)
    assert logs.take() == []
    write(tmp_path / "a.log", "new")
    logs.restart()  # no line was sent yet, and still the start has passed
    write(tmp_path / "b.log", "other")
    assert sorted(logs.take()) == ["new", "other"]
    logs.stop()


def test_messages_say_where_they_are_from(logs, tmp_path):
    write(tmp_path / "a.log", "one", "two")
    (lines,) = logs.follower.poll()
    first, second = lines.messages("logs", "web-1", "app")
    inode = str((tmp_path / "a.log").stat().st_ino)
    assert second.properties == {"file": str(tmp_path / "a.log"), "inode": inode, "position": "4", "host": "web-1"}
    assert (second.body, second.tags, second.topic) == (b"two", "app", "logs")
    assert first.sharding_key == second.sharding_key


def test_a_file_of_positions_belongs_to_one_collector(logs, tmp_path):
    path = tmp_path / "state" / "positions"
    with pytest.raises(ConfigError, match="another collector uses it"):
        Positions(path)
    logs.stop()
    path.write_text("[1]")
    mine = Positions(path)
    with pytest.raises(ConfigError, match="is no file of positions"):
        mine.load()
    mine.close()
