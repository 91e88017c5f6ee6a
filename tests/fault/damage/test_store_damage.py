"""Torn, changed, cut or missing files: the store opens, logs its repairs, and serves no wrong message.

Each test opens the store twice, because a second start must not fail on the files that the first start has repaired.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store_reads import read_now
from tianzhou.errors import CorruptRecord
from tianzhou.records.codec import decode_record
from tianzhou.store import MessageStore, NewRecord, PutStatus, StoreSettings
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.queues.consumequeue import UNIT_SIZE
from tianzhou.store.startup.proved_note import read_note

SEGMENT = 16_384
QUEUES = 3
COUNT = 150
STOPS = ("clean", "killed", "power")


def settings_for(folder: Path) -> StoreSettings:
    return StoreSettings(
        store_path_root_dir=str(folder),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=50,
        max_index_num=100,
    )


def body_of(number: int) -> bytes:
    return b"%d " % number * (number * 7 % 90 + 1)


def fill(store: MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01u{number}\x02".encode()
        record = NewRecord("T", number % QUEUES, body_of(number), properties, keys=f"k{number}", uniq_key=f"u{number}")
        assert store.append(record).status is PutStatus.PUT_OK


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Create the stores after a clean stop, the death of the process and a loss of power; no write is lost."""
    root = tmp_path_factory.mktemp("damage")
    store = MessageStore(settings_for(root / "live"))
    store.open()
    fill(store, 0, COUNT - 50)
    store.close_now()
    store = MessageStore(settings_for(root / "live"))
    store.open()
    fill(store, COUNT - 50, COUNT)
    shutil.copytree(root / "live", root / "killed")
    shutil.copytree(root / "live", root / "power")
    (root / "power" / "running.json").write_text('{"pid": 1, "boot": "another"}')
    store.close_now()
    (root / "live").rename(root / "clean")
    return {stop: root / stop for stop in STOPS}


@pytest.fixture
def copy(originals: dict[str, Path], tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    def make(stop: str) -> Path:
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
        target = Path(tempfile.mkdtemp(dir=shared, prefix="tianzhou-"))
        shutil.copytree(originals[stop], target, dirs_exist_ok=True)
        made.append(target)
        return target

    made: list[Path] = []
    yield make
    for target in made:
        shutil.rmtree(target, ignore_errors=True)


def served(store: MessageStore) -> dict[int, bytes | None]:
    """Return bodies by number, from a client's view; None where the client detects a damaged body."""
    found: dict[int, bytes | None] = {}
    for queue_id in range(QUEUES):
        position, end = max(store.min_offset("T", queue_id), 0), store.max_offset("T", queue_id)
        while position < end:
            result = read_now(store, "T", queue_id, position, 32)
            assert result.next_offset > position
            for part in result.parts:
                size = int.from_bytes(part[:4], "big")
                assert size == len(part), "a client would take the next record for part of this one"
                try:
                    record = decode_record(part, check_crc=True)
                except CorruptRecord:
                    found[-1 - len(found)] = None
                    continue
                number = int(record.body.split()[0])
                assert record.body == body_of(number)
                assert number not in found
                found[number] = record.body
            position = result.next_offset
    return found


def open_twice(folder: Path) -> tuple[dict[int, bytes | None], list[str]]:
    """Start a store, append, stop and start it again. Return the messages and the report of the first start."""
    store = MessageStore(settings_for(folder))
    report = store.open()
    first = served(store)
    fill(store, 1000, 1000 + QUEUES)
    store.close_now()
    again = MessageStore(settings_for(folder))
    again.open()
    second = served(again)
    # The second start may repair files that the first one skipped, but must not lose further messages.
    assert {number: body for number, body in first.items() if number >= 0}.items() <= second.items()
    assert all(number in second for number in range(1000, 1000 + QUEUES))
    again.close_now()
    return first, report.notes


EVERYTHING = {number: body_of(number) for number in range(COUNT)}


@pytest.mark.lengthy
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("rubbish", [False, True])
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_last_record_torn_at_any_byte_is_whole_or_gone(
    copy: Callable[[str], Path], originals: dict[str, Path], stop: str, rubbish: bool, step: int
) -> None:
    last = list(StoreScan(originals[stop]).records())[-1][0]
    name = f"{last.offset // SEGMENT * SEGMENT:020d}"
    rng = random.Random(7)
    gone = 0
    for cut in range(0, last.size, step):
        folder = copy(stop)
        with (folder / "commitlog" / name).open("r+b") as file:
            file.seek(last.offset % SEGMENT + cut)
            file.write(rng.randbytes(last.size - cut) if rubbish else bytes(last.size - cut))
        in_properties = cut >= last.size - len(last.properties)
        found, notes = open_twice(folder)
        missing = EVERYTHING.keys() - found.keys()
        assert missing <= {COUNT - 1}, (cut, missing)
        if missing:
            gone += 1
        else:
            # No CRC covers properties: random bytes of the right length pass, zeros do not.
            assert (rubbish, in_properties) == (True, True), cut
        if stop == "clean" and missing:
            assert notes
        shutil.rmtree(folder)
    assert gone * step >= last.size - len(last.properties)


def files_of(folder: Path, kind: str) -> list[Path]:
    if kind in {"commitlog", "consumequeue", "index"}:
        return sorted(path for path in (folder / kind).rglob("*") if path.is_file())
    return [folder / kind] if (folder / kind).exists() else []


KINDS = (
    "commitlog",
    "consumequeue",
    "index",
    "checkpoint",
    "abort",
    "abort.bak",
    "proved.json",
    "running.json",
    "lock",
)
LARGE_KINDS = KINDS[:3]


def flip(path: Path, rng: random.Random) -> int:
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0")) or len(data)
    at = rng.randrange(used)
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return at


def check_flips(copy: Callable[[str], Path], kind: str, stop: str, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        folder = copy(stop)
        files = [path for path in files_of(folder, kind) if path.stat().st_size]
        if not files:
            return
        path = rng.choice(files)
        at = flip(path, rng)
        unproved = stop == "power" and seed % 2
        if unproved:
            # Otherwise the start does not read the part that the note covers.
            (folder / "proved.json").unlink(missing_ok=True)
        context = f"seed {seed}: {path.relative_to(folder)} byte {at}"
        try:
            found, notes = open_twice(folder)
        except Exception as error:
            raise AssertionError(f"{context}: {error!r}") from error
        missing = EVERYTHING.keys() - found.keys()
        context = f"{context}: missing {missing}, {notes}"
        if kind in {"commitlog", "consumequeue"}:
            # A flipped bit costs only the message or unit that contains it.
            assert len(missing) <= 1, context
            if kind == "consumequeue" and unproved:
                assert not missing, context
        else:
            assert not missing, context
            assert None not in found.values(), context
        shutil.rmtree(folder)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_costs_one_message_at_most(copy: Callable[[str], Path], kind: str, stop: str) -> None:
    check_flips(copy, kind, stop, range(20 if kind in LARGE_KINDS else 6))


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_flipped_bits_each_cost_one_message_at_most(copy: Callable[[str], Path], kind: str, stop: str) -> None:
    check_flips(copy, kind, stop, range(1000, 2500 if kind in LARGE_KINDS else 1050))


@pytest.mark.parametrize("stop", ["killed", "power"])
@pytest.mark.parametrize("field", [0, 8])
def test_the_last_unit_known_to_be_on_the_disk_is_not_believed_blindly(
    copy: Callable[[str], Path], stop: str, field: int
) -> None:
    folder = copy(stop)
    note = read_note(folder)
    assert note is not None
    for (topic, queue_id), (_, end) in note.queue_ends.items():
        assert end > 0
        at = (end - 1) * UNIT_SIZE
        size = settings_for(folder).mapped_file_size_consume_queue
        with (folder / "consumequeue" / topic / str(queue_id) / f"{at - at % size:020d}").open("r+b") as file:
            file.seek(at % size + field)
            file.write(b"\x01")
    found, _ = open_twice(folder)
    # A unit at the end of its queue is rebuilt; one in the middle costs its message.
    assert len(EVERYTHING.keys() - found.keys()) <= (0 if stop == "power" else QUEUES)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("harm", ["missing", "empty", "half", "stray", "longer"])
@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_missing_or_cut_are_rebuilt(
    copy: Callable[[str], Path], kind: str, harm: str, stop: str
) -> None:
    folder = copy(stop)
    files = files_of(folder, kind)
    if not files:
        pytest.skip("there is no such file after such a stop")
    if kind == "commitlog":
        files = files[-1:]
    elif kind == "consumequeue":
        files = files[1:-1:2]
    elif kind == "index" and harm == "half":
        # If all had another length, they would have been written with other settings.
        files = files[1:]
    for path in files:
        match harm:
            case "missing":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "half":
                os.truncate(path, path.stat().st_size // 2 // 20 * 20)
            case "stray":
                path.with_name(path.name + ".stray").write_text("not ours")
            case "longer":
                if kind in {"commitlog", "consumequeue", "index"}:
                    return  # written with another setting: refused by name, see test_store_opening.py
                with path.open("ab") as file:
                    file.write(b"more")
    found, _ = open_twice(folder)
    missing = EVERYTHING.keys() - found.keys()
    if kind == "commitlog" and harm in {"missing", "empty", "half"}:
        # Messages in the last segment, or in its second half, are lost; all others are present.
        assert missing == set(range(COUNT - len(missing), COUNT))
        assert len(missing) < COUNT // 2
        assert missing or harm == "half"
    else:
        assert not missing
