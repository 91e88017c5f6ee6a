"""The start after a crash with the broker's note of proved records, and cases in which it ignores the note (store.md
§10.4).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec.structs
import pytest
from small_store import by_key, fill, numbers, opened, small_store

from store_probe import StoreProbe
from tianzhou.store import MessageStore
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.startup import proved_note
from tianzhou.store.startup.proved_note import DAMAGE_NAME, StoreNote, read_damage, read_note, write_damage, write_note
from waiting import until_async

QUEUES = 3
COUNT = 300
NOTED = 200
SEGMENT = 1 << 20
small = partial(
    small_store, mapped_file_size_commit_log=SEGMENT, flush_interval_consume_queue=10, flush_interval_commit_log=10
)


def note_of(folder: Path) -> StoreNote:
    note = read_note(folder)
    assert note is not None
    return note


async def noted(store: MessageStore) -> StoreNote:
    """Wait until the note covers all records."""

    def found() -> StoreNote | None:
        StoreProbe(store).noted_to(-1)
        StoreProbe(store).request_flush()
        note = read_note(store.settings.root)
        return note if note is not None and note.log_end == store.end_offset else None

    note = await until_async(found)
    assert isinstance(note, StoreNote)
    return note


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Return a store that was killed after 300 messages, with a note about the first 200."""

    async def main() -> None:
        async with small(tmp_path / "live") as store:
            fill(store, 0, NOTED)
            note = await noted(store)
            assert 0 < note.log_end < SEGMENT
            StoreProbe(store).noted_to(note.log_end)
            fill(store, NOTED, COUNT)
            StoreProbe(store).dispatch_all()
            shutil.copytree(tmp_path / "live", tmp_path / "killed")
            assert note_of(tmp_path / "killed") == note

    asyncio.run(main())
    return tmp_path / "killed"


@contextmanager
def reopened(folder: Path) -> Iterator[MessageStore]:
    """Open the store of a folder and check that it has all messages."""
    with opened(small(folder)) as store:
        assert sorted(numbers(store)) == list(range(COUNT))
        for number in (0, NOTED - 1, NOTED, COUNT - 1):
            assert len(by_key(store, f"k{number}").parts) == 1
        yield store


def test_a_start_reads_the_log_from_where_the_note_says(killed: Path) -> None:
    end = note_of(killed).log_end
    with reopened(killed) as store:
        assert (store.report.clean, store.report.read_from, store.report.records) == (False, end, COUNT - NOTED)
        assert store.report.notes == []
        fill(store, COUNT, COUNT + 1)
    assert check_store(StoreScan(killed), slots=50).problems == []
    assert note_of(killed).log_end > end


@pytest.mark.parametrize("boot", ["this", "another"])
def test_a_start_that_is_killed_can_use_the_note_again(killed: Path, boot: str) -> None:
    end = note_of(killed).log_end
    for _ in range(3):
        if boot == "another":
            (killed / "running.json").unlink()
        with reopened(killed) as store:
            assert store.report.read_from == end
            again = killed.with_name(killed.name + "+")
            shutil.copytree(killed, again)
        killed = again


def test_after_a_loss_of_power_units_behind_the_note_are_made_again(killed: Path) -> None:
    (killed / "running.json").unlink()
    for path in (killed / "consumequeue").rglob("0*"):
        if path.is_file():
            data = path.read_bytes()
            first = int(path.name) // 20
            sound = max(0, min((NOTED + QUEUES - 1) // QUEUES - first, 20))
            path.write_bytes(data[: sound * 20] + b"\x01" * (len(data) - sound * 20))
    end = note_of(killed).log_end
    with reopened(killed) as store:
        # Some queues have lost their last unit; records before it are not read.
        assert end - QUEUES * 400 < store.report.read_from <= end


@pytest.mark.parametrize("harm", ["no note", "torn", "flipped", "lock", "no lock", "record", "log"])
def test_a_note_that_cannot_be_trusted_is_not(killed: Path, harm: str) -> None:
    note = note_of(killed)
    path = killed / proved_note.NOTE_NAME
    match harm:
        case "no note":
            path.unlink()
        case "torn":
            path.write_bytes(path.read_bytes()[:-40])
        case "flipped":
            path.write_bytes(path.read_bytes().replace(b'"logEnd":', b'"logEnd":1', 1))
        case "lock":
            # RocketMQ writes the same text when it uses the folder.
            (killed / "lock").write_bytes(b"lock")
        case "no lock":
            (killed / "lock").unlink()
        case "record":
            write_note(killed, msgspec.structs.replace(note, witness=(note.witness[0], note.witness[1], 1)))  # type: ignore[index]
        case "log":
            write_note(killed, msgspec.structs.replace(note, witness=(2 * SEGMENT, 100, 1), log_end=2 * SEGMENT))
    with reopened(killed) as store:
        assert store.report.read_from == 0


def test_units_that_have_gone_since_the_note_are_made_again(killed: Path) -> None:
    shutil.rmtree(killed / "consumequeue" / "T" / "1")
    last = max((killed / "consumequeue" / "T" / "2").iterdir())
    os.truncate(last, 0)
    os.truncate(last, 400)
    with reopened(killed) as store:
        assert store.report.read_from == 0
        assert any("T/1 has lost units" in text for text in store.report.notes)


def test_a_copy_taken_of_a_running_store_is_as_good_as_one_that_was_killed(tmp_path: Path, killed: Path) -> None:
    """Its files are from different moments, so the note may cover more than the log, which was copied before."""
    older = tmp_path / "older"
    shutil.copytree(killed, older)
    with reopened(killed) as store:
        fill(store, COUNT, COUNT + 50)
    shutil.copy2(killed / proved_note.NOTE_NAME, older / proved_note.NOTE_NAME)
    assert note_of(older).log_end > note_of(older).indexed - 1 > 0
    with reopened(older) as store:
        assert store.report.read_from == 0


def test_what_another_broker_did_in_between_counts(tmp_path: Path, killed: Path) -> None:
    """It cut the log before the end in the note, and appended other records."""
    note = (killed / proved_note.NOTE_NAME).read_bytes()
    times = (killed / proved_note.NOTE_NAME).stat().st_mtime_ns
    (killed / proved_note.NOTE_NAME).unlink()
    for path in (killed / "commitlog").iterdir():
        data = bytearray(path.read_bytes())
        data[note_of_end(note) // 2 :] = bytes(len(data) - note_of_end(note) // 2)
        path.write_bytes(data)
    with opened(small(killed)) as store:
        kept = sorted(numbers(store))
        assert 0 < len(kept) < NOTED
        fill(store, 1000, 1000 + COUNT)
        expected = sorted(numbers(store))
        shutil.copytree(killed, tmp_path / "again")
    (tmp_path / "again" / proved_note.NOTE_NAME).write_bytes(note)
    os.utime(tmp_path / "again" / proved_note.NOTE_NAME, ns=(times, times))
    with opened(small(tmp_path / "again")) as store:
        assert store.report.read_from == 0
        assert sorted(numbers(store)) == expected


def note_of_end(data: bytes) -> int:
    return int(data.split(b'"logEnd":')[1].split(b",")[0])


def test_a_topic_that_was_deleted_is_not_missed_by_the_next_start(tmp_path: Path) -> None:
    live = tmp_path / "live"

    async def main() -> None:
        async with small(live) as store:
            fill(store, 0, COUNT)
            fill(store, 0, 10, "Gone")
            await noted(store)
            store.delete_topic("Gone")
            # Files of deleted topics are unlinked outside the loop, so a copy must not run during that.
            await until_async(lambda: "Gone" not in note_of(live).queues and not (live / "deleted").exists())
            shutil.copytree(live, tmp_path / "killed")

    asyncio.run(main())
    with reopened(tmp_path / "killed") as store:
        assert (store.report.records, store.report.notes, store.topics()) == (0, [], ["T"])


def test_a_note_waits_for_the_log_to_be_on_the_disk(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        fill(store, 0, 10)
        with asyncio.Runner() as loop:
            loop.run(StoreProbe(store).flush_queues(thorough=True))
            assert read_note(tmp_path) is None
            end = store.end_offset
            StoreProbe(store).flush_log()
            fill(store, 10, 20)
            loop.run(StoreProbe(store).flush_queues(thorough=False))
        note = note_of(tmp_path)
        assert note.log_end == note.indexed == end
        assert {queue: maximum for (_, queue), (_, maximum) in note.queue_ends.items()} == {0: 4, 1: 3, 2: 3}


def test_no_note_tells_of_what_the_disk_refused(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        fill(store, 0, 10)
        StoreProbe(store).fail_upkeep()
        with asyncio.Runner() as loop:
            StoreProbe(store).flush_log()
            loop.run(StoreProbe(store).flush_queues(thorough=True))
    assert read_note(tmp_path) is None


@pytest.mark.parametrize("with_news", [0, 1, 8_000])
async def test_a_note_is_due_the_later_the_more_queues_have_to_be_synced_for_it(tmp_path: Path, with_news: int) -> None:
    async with small(tmp_path) as store:
        fill(store, 0, NOTED)
        note = await noted(store)
        keeper, dispatcher = StoreProbe(store).note_keeper, StoreProbe(store).dispatcher
        StoreProbe(store).noted_to(note.log_end)
        dispatcher.dirty = [next(iter(StoreProbe(store).queues()))] * with_news
        most = proved_note.NOTE_BYTES + with_news * proved_note.NOTE_BYTES_A_QUEUE
        dispatcher.position = note.log_end + most - 1
        assert not keeper.due
        dispatcher.position += 1
        assert keeper.due
        dispatcher.dirty, dispatcher.position = [], note.log_end


@pytest.mark.parametrize("damage", [b"", bytes(30), b'{"damaged":[[1', b'{"damaged":null}', b"[]"])
def test_a_damaged_note_of_broken_stretches_gives_way_to_the_version_before_it(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_damage(tmp_path) == []
    write_damage(tmp_path, [(10, 20)])
    write_damage(tmp_path, [(10, 20), (30, 40)])
    assert read_damage(tmp_path) == [(10, 20), (30, 40)]
    file = tmp_path / DAMAGE_NAME
    file.write_bytes(damage)
    assert read_damage(tmp_path) == [(10, 20)]
    assert "the version before it, damaged.json.bak, is used" in caplog.text
    for path in (file, tmp_path / f"{DAMAGE_NAME}.bak"):
        path.write_bytes(damage)
    assert read_damage(tmp_path) == []
    assert "reads find the damaged stretches of the log again" in caplog.text
    assert len(list(tmp_path.glob(f"{DAMAGE_NAME}*.damaged-*"))) == 3
