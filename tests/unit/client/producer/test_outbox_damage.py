"""An outbox whose write-ahead log was damaged, cut or removed: the start counts the missing messages."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou.client.producer.outbox.outbox_file import OutboxFile
from tianzhou.client.producer.outbox.written_note import WrittenNote, decode_note, missing_count


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number + b"x" * 500 for number in range(first, first + count)]


def left(file: OutboxFile) -> list[int]:
    return [int(frame.payload[:8]) for frame in file.peek(1 << 30)]


def killed(file: OutboxFile, to: Path) -> Path:
    """Return a copy of the folder as a process leaves it that is killed now."""
    shutil.copytree(file.folder, to)
    (to / "outbox.db-shm").unlink(missing_ok=True)
    return to


def zeroed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes(len(data) - at)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def cut(data: bytes, at: int) -> bytes:
    return data[:at]


@pytest.mark.parametrize("damage", [zeroed, flipped, cut])
def test_messages_of_a_damaged_log_are_counted(
    damage: Callable[[bytes, int], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = OutboxFile(tmp_path / "outbox")
    for number in range(20):
        file.write(numbered(number, 1))
    sizes = (tmp_path / "outbox/outbox.db-wal").stat().st_size
    for trial, at in enumerate(range(0, sizes, sizes // 7)):
        copy = killed(file, tmp_path / str(trial))
        log = copy / "outbox.db-wal"
        log.write_bytes(damage(log.read_bytes(), at))
        caplog.clear()
        found = OutboxFile(copy)
        numbers = left(found)
        assert numbers == list(range(len(numbers)))
        assert found.lost == 20 - len(numbers)
        if found.lost:
            assert f"{found.lost} messages are lost: messages up to number 20 were written" in caplog.text
            assert "write-ahead log outbox.db-wal was damaged, cut or removed" in caplog.text
        found.write(numbered(100, 2))
        found.close()
        again = OutboxFile(copy)  # a loss is reported once
        assert (again.lost, left(again)) == (0, [*numbers, 100, 101])
        again.close()
    file.close()


def test_a_log_that_was_left_out_of_a_copy_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = OutboxFile(tmp_path / "outbox")
    file.write(numbered(0, 5))
    file.advance(file.peek(1)[:1])
    copy = killed(file, tmp_path / "copy")
    (copy / "outbox.db-wal").unlink()
    found = OutboxFile(copy)
    # The first message was sent and removed, and its removal was in the lost log as well.
    assert (found.count, found.lost) == (0, 4)
    assert "outbox.db-wal was damaged, cut or removed" in caplog.text
    found.close()
    file.close()


def test_an_older_copy_of_the_database_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = OutboxFile(tmp_path)
    file.write(numbered(0, 5))
    file.close()
    shutil.copy(tmp_path / "outbox.db", tmp_path / "backup")
    file = OutboxFile(tmp_path)
    file.write(numbered(5, 5))
    file.advance(file.peek(1 << 30)[:7])
    file.close()
    shutil.copy(tmp_path / "backup", tmp_path / "outbox.db")
    file = OutboxFile(tmp_path)
    assert (left(file), file.lost) == ([0, 1, 2, 3, 4], 3)  # 0 to 6 were sent, 7 to 9 are lost
    assert "or the database is an older copy" in caplog.text
    file.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_killed_process_and_a_note_that_the_disk_has_an_older_one_of_are_no_damage(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    file, written = OutboxFile(tmp_path / "outbox"), 0
    notes = []
    for step in range(40):
        if rng.random() < 0.6:
            count = rng.randint(1, 5)
            file.write(numbered(written, count))
            written += count
        elif frames := file.peek(rng.randint(1, 3_000)):
            file.advance(frames[: rng.randint(1, len(frames))])
        notes.append((tmp_path / "outbox/lock").read_bytes())
        if rng.random() < 0.2:
            expected = left(file)
            copy = killed(file, tmp_path / str(step))
            if rng.random() < 0.5:
                (copy / "lock").write_bytes(rng.choice(notes))
            found = OutboxFile(copy)
            assert (found.lost, left(found)) == (0, expected)
            found.close()
            if rng.random() < 0.3:
                file.close()
                file = OutboxFile(tmp_path / "outbox")
                assert file.lost == 0
    file.close()


def test_a_damaged_note_is_no_note(tmp_path: Path) -> None:
    line = WrittenNote(20, 3).encode()
    assert decode_note(line) == WrittenNote(20, 3)
    for at in range(len(line)):
        assert decode_note(flipped(line, at)) is None
    assert decode_note(line[:-1]) is None
    assert decode_note(b"") is None


@pytest.mark.parametrize(
    ("note", "removed", "found", "missing"),
    [
        (WrittenNote(10, 0), 0, 10, 0),
        (WrittenNote(10, 0), 0, 7, 3),
        (WrittenNote(10, 4), 0, 6, 0),  # the removal of 4 was not on the disk
        (WrittenNote(10, 0), 4, 6, 0),  # the note is older than the removal
        (WrittenNote(10, 0), 12, 0, 0),
    ],
)
def test_missing_messages_are_those_that_neither_side_has_removed(
    note: WrittenNote, removed: int, found: int, missing: int
) -> None:
    assert missing_count(note, removed, found) == missing
