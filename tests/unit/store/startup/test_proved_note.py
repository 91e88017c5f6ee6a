"""What a start after a crash believes of the note that the broker left, and when it does not (store.md §10.4)."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import msgspec.structs
import pytest

from tianzhou.records.codec import decode_record
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.queues.queues import each_queue
from tianzhou.store.startup import proved_note
from tianzhou.store.startup.proved_note import StoreNote, read_note, write_note

QUEUES = 3
COUNT = 300
NOTED = 200
SEGMENT = 1 << 20


def settings_for(folder: Path, **changes: object) -> StoreSettings:
    values: dict[str, object] = {
        "store_path_root_dir": str(folder),
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 50,
        "max_index_num": 100,
        "flush_interval_consume_queue": 10,
        "flush_interval_commit_log": 10,
    }
    return StoreSettings(**{**values, **changes})  # type: ignore[arg-type]


def fill(store: MessageStore, begin: int, end: int, topic: str = "T") -> None:
    for number in range(begin, end):
        record = NewRecord(topic, number % QUEUES, b"%d " % number * 50, b"", keys=f"k{number}", uniq_key=f"u{number}")
        record.properties = f"KEYS\x01{record.keys}\x02UNIQ_KEY\x01{record.uniq_key}\x02".encode()
        store.append(record)


def numbers(store: MessageStore, topic: str = "T") -> list[int]:
    found = []
    for queue_id in range(QUEUES):
        position = max(store.min_offset(topic, queue_id), 0)
        while (result := store.get(topic, queue_id, position, 32)).next_offset != position:
            found += [int(decode_record(part, check_crc=True).body.split()[0]) for part in result.parts]
            position = result.next_offset
    return sorted(found)


def note_of(folder: Path) -> StoreNote:
    note = read_note(folder)
    assert note is not None
    return note


async def noted(store: MessageStore) -> StoreNote:
    """Wait until there is a note about everything."""
    folder = Path(store.settings.store_path_root_dir)
    async with asyncio.timeout(10):
        while True:
            store._upkeep._notes._noted = -1
            note = read_note(folder)
            if note is not None and note.log_end == store.end_offset:
                return note
            store._flusher.request()
            await asyncio.sleep(0.005)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store that ran, of which a note tells the first 200 messages, and that was killed after 300."""

    async def main() -> None:
        async with MessageStore(settings_for(tmp_path / "live")) as store:
            fill(store, 0, NOTED)
            note = await noted(store)
            assert 0 < note.log_end < SEGMENT
            store._upkeep._notes._noted = note.log_end
            fill(store, NOTED, COUNT)
            store._dispatcher.drain()
            shutil.copytree(tmp_path / "live", tmp_path / "killed")
            assert note_of(tmp_path / "killed") == note

    asyncio.run(main())
    return tmp_path / "killed"


def reopened(folder: Path, **changes: object) -> MessageStore:
    store = MessageStore(settings_for(folder, **changes))
    store.open()
    assert numbers(store) == list(range(COUNT))
    for number in (0, NOTED - 1, NOTED, COUNT - 1):
        assert len(at_once(store.lookups.key_steps("T", f"k{number}", 10)).parts) == 1
    return store


def test_a_start_reads_the_log_from_where_the_note_says(killed: Path) -> None:
    end = note_of(killed).log_end
    store = reopened(killed)
    assert (store.report.clean, store.report.read_from, store.report.records) == (False, end, COUNT - NOTED)
    assert store.report.notes == []
    fill(store, COUNT, COUNT + 1)
    store.close_now()
    assert StoreScan(killed).check(slots=50).problems == []
    assert note_of(killed).log_end > end


@pytest.mark.parametrize("boot", ["this", "another"])
def test_a_start_that_is_killed_can_use_the_note_again(killed: Path, boot: str) -> None:
    end = note_of(killed).log_end
    for _ in range(3):
        if boot == "another":
            (killed / "running.json").unlink()
        store = reopened(killed)
        assert store.report.read_from == end
        again = killed.with_name(killed.name + "+")
        shutil.copytree(killed, again)
        store.close_now()
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
    store = reopened(killed)
    # Some queues have lost their last unit; records before it are not read.
    assert end - QUEUES * 400 < store.report.read_from <= end
    store.close_now()


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
            # RocketMQ writes the same text when it takes the folder.
            (killed / "lock").write_bytes(b"lock")
        case "no lock":
            (killed / "lock").unlink()
        case "record":
            write_note(killed, msgspec.structs.replace(note, witness=(note.witness[0], note.witness[1], 1)))  # type: ignore[index]
        case "log":
            write_note(killed, msgspec.structs.replace(note, witness=(2 * SEGMENT, 100, 1), log_end=2 * SEGMENT))
    store = reopened(killed)
    assert store.report.read_from == 0
    store.close_now()


def test_units_that_have_gone_since_the_note_are_made_again(killed: Path) -> None:
    shutil.rmtree(killed / "consumequeue" / "T" / "1")
    last = max((killed / "consumequeue" / "T" / "2").iterdir())
    os.truncate(last, 0)
    os.truncate(last, 400)
    store = reopened(killed)
    assert store.report.read_from == 0
    assert any("T/1 has lost units" in text for text in store.report.notes)
    store.close_now()


def test_a_copy_taken_of_a_running_store_is_as_good_as_one_that_was_killed(tmp_path: Path, killed: Path) -> None:
    """Its files are of different moments: the note may know more than the log that was copied before."""
    older = tmp_path / "older"
    shutil.copytree(killed, older)
    store = reopened(killed)
    fill(store, COUNT, COUNT + 50)
    store.close_now()
    shutil.copy2(killed / proved_note.NOTE_NAME, older / proved_note.NOTE_NAME)
    assert note_of(older).log_end > note_of(older).indexed - 1 > 0
    store = reopened(older)
    assert store.report.read_from == 0
    store.close_now()


def test_what_another_broker_did_in_between_counts(tmp_path: Path, killed: Path) -> None:
    """It cut the log before the end that the note speaks of, and went on in its own way."""
    note = (killed / proved_note.NOTE_NAME).read_bytes()
    times = (killed / proved_note.NOTE_NAME).stat().st_mtime_ns
    (killed / proved_note.NOTE_NAME).unlink()
    for path in (killed / "commitlog").iterdir():
        data = bytearray(path.read_bytes())
        data[note_of_end(note) // 2 :] = bytes(len(data) - note_of_end(note) // 2)
        path.write_bytes(data)
    store = MessageStore(settings_for(killed))
    store.open()
    kept = numbers(store)
    assert 0 < len(kept) < NOTED
    fill(store, 1000, 1000 + COUNT)
    expected = numbers(store)
    shutil.copytree(killed, tmp_path / "again")
    store.close_now()
    (tmp_path / "again" / proved_note.NOTE_NAME).write_bytes(note)
    os.utime(tmp_path / "again" / proved_note.NOTE_NAME, ns=(times, times))
    store = MessageStore(settings_for(tmp_path / "again"))
    store.open()
    assert store.report.read_from == 0
    assert numbers(store) == expected
    store.close_now()


def note_of_end(data: bytes) -> int:
    return int(data.split(b'"logEnd":')[1].split(b",")[0])


def test_a_topic_that_was_deleted_is_not_missed_by_the_next_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with MessageStore(settings_for(tmp_path / "live")) as store:
            fill(store, 0, COUNT)
            fill(store, 0, 10, "Gone")
            await noted(store)
            store.delete_topic("Gone")
            async with asyncio.timeout(10):
                # Files of deleted topics are unlinked beside the loop; a copy must not meet them half gone.
                while "Gone" in note_of(tmp_path / "live").queues or (tmp_path / "live" / "deleted").exists():
                    await asyncio.sleep(0.005)
            shutil.copytree(tmp_path / "live", tmp_path / "killed")

    asyncio.run(main())
    store = reopened(tmp_path / "killed")
    assert (store.report.records, store.report.notes, store.topics()) == (0, [], ["T"])
    store.close_now()


def test_a_note_waits_for_the_log_to_be_on_the_disk(tmp_path: Path) -> None:
    store = MessageStore(settings_for(tmp_path))
    store.open()
    fill(store, 0, 10)
    with asyncio.Runner() as loop:
        loop.run(store._upkeep._flush_queues(thorough=True))
        assert read_note(tmp_path) is None
        end = store.end_offset
        store._flusher.flush_now()
        fill(store, 10, 20)
        loop.run(store._upkeep._flush_queues(thorough=False))
    note = note_of(tmp_path)
    assert note.log_end == note.indexed == end
    assert {queue: maximum for (_, queue), (_, maximum) in note.queue_ends.items()} == {0: 4, 1: 3, 2: 3}
    store.close_now()


def test_no_note_tells_of_what_the_disk_refused(tmp_path: Path) -> None:
    store = MessageStore(settings_for(tmp_path))
    store.open()
    fill(store, 0, 10)
    store._upkeep.failed = True
    with asyncio.Runner() as loop:
        store._flusher.flush_now()
        loop.run(store._upkeep._flush_queues(thorough=True))
    store.close_now()
    assert read_note(tmp_path) is None


@pytest.mark.parametrize("with_news", [0, 1, 8_000])
async def test_a_note_is_due_the_later_the_more_queues_have_to_be_synced_for_it(tmp_path: Path, with_news: int) -> None:
    async with MessageStore(settings_for(tmp_path)) as store:
        fill(store, 0, NOTED)
        note = await noted(store)
        keeper, dispatcher = store._upkeep._notes, store._dispatcher
        keeper._noted = note.log_end
        dispatcher.dirty = [next(each_queue(store._queues.table))] * with_news
        most = proved_note.NOTE_BYTES + with_news * proved_note.NOTE_BYTES_A_QUEUE
        dispatcher.position = note.log_end + most - 1
        assert not keeper.due
        dispatcher.position += 1
        assert keeper.due
        dispatcher.dirty, dispatcher.position = [], note.log_end
