"""Deaths and power failures at any moment while state files are written, and damage of the files that are left.

Each round is its seed: `TIANZHOU_SEED=<seed> pytest tests/fault/damage/test_state_power_loss.py -k one_round` runs one
again. After a round the state is whole, or an error refuses the start with a remedy.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tianzhou.access.user_table import UserTable
from tianzhou.access.users import User
from tianzhou.broker.rebuilt_note import rebuilt_tables
from tianzhou.broker.rebuilt_state import DELAYS, FILTERS, GROUPS, OFFSETS, TOPICS, StoredQueues
from tianzhou.broker.replication.tables_note import NoteFile, TablesNote
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import Tables, make_tables
from tianzhou.broker.state_files import StateFiles
from tianzhou.client.consumer.offset_store import LocalOffsets
from tianzhou.client.producer.outbox.outbox_file import OutboxFile
from tianzhou.damaged_files import accept_lost_state
from tianzhou.errors import ClientError, ConfigError, StateLost, StoreUnreadable
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, TopicConfig
from tianzhou.namesrv.files import replace_text
from tianzhou.namesrv.kv import KvConfig
from tianzhou.remoting.users import user_store
from tianzhou.store.entries.member_files import GroupFile, TermFile
from tianzhou.store.settings import StoreSettings
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.disk import ForgetfulDisk, PowerLostError

STORED = StoredQueues(1000)
QUEUE = MessageQueue("T", "b", 0)
REFUSALS = (StoreUnreadable, ConfigError, ClientError)


@dataclass(frozen=True)
class Kind:
    """A kind of state.

    Attributes:
        files: its files, relative to the folder.
        write: writes the next version, a number from 1 on, to the disk; the number counts once it returns.
        read: returns the versions found, one a table.
        accept: accepts the loss, if there is a way to.
        fallback: whether a damaged file is replaced by the previous version.
        is_gone_refused: whether a start notices that all files are missing.
    """

    files: tuple[str, ...]
    write: Callable[[Path, int], None]
    read: Callable[[Path], list[int]]
    accept: Callable[[Path], None] | None = None
    fallback: bool = True
    is_gone_refused: bool = False


# --- the kinds


def loaded(root: Path) -> tuple[Tables, StateFiles]:
    tables = make_tables(BrokerSettings(), StoreSettings(), 0)
    files = StateFiles(tables, root / "config", VirtualClock())
    files.load(STORED)
    return tables, files


def write_tables(root: Path, number: int) -> None:
    tables, files = loaded(root)
    tables.topics.put(TopicConfig("T", number, number), number)
    tables.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=number), number)
    tables.offsets.commit("G", "T", 0, number, number)
    tables.delays.advance(1, number, number)
    tables.delays.settled(tables.delays.offsets())
    files.close()
    assert files.unwritten == []


def read_tables(root: Path) -> list[int]:
    tables, files = loaded(root)
    topic, group = tables.topics.get("T"), tables.groups.get("G")
    files.close()
    return [
        0 if topic is None else topic.write_queue_nums,
        0 if group is None else group.retry_queue_nums,
        tables.offsets.committed("G", "T", 0) or 0,
        tables.delays.offset(1),
    ]


def read_kv(root: Path) -> list[int]:
    kv = KvConfig(root / "kvConfig.json")
    kv.load()
    return [int(kv.get("n", "k") or 0)]


def write_kv(root: Path, number: int) -> None:
    replace_text(root / "kvConfig.json", json.dumps({"configTable": {"n": {"k": str(number)}}}))


def read_local(root: Path) -> list[int]:
    offsets = LocalOffsets(root, "c", "G")

    async def read() -> int:
        await offsets.load()
        return await offsets.read(QUEUE) or 0

    return [asyncio.run(read())]


def write_local(root: Path, number: int) -> None:
    offsets = LocalOffsets(root, "c", "G")

    async def write() -> None:
        await offsets.load()
        assert await offsets.persist({QUEUE: number}) == {QUEUE}

    asyncio.run(write())


def write_users(root: Path, number: int) -> None:
    table = UserTable({f"u{one}": User(f"u{one}", "12345678") for one in range(number)})
    user_store.store(root / "users.json", table)


def write_outbox(root: Path, number: int) -> None:
    file = OutboxFile(root)
    file.write([b"m%d" % number])
    file.close()


def read_outbox(root: Path) -> list[int]:
    file = OutboxFile(root)
    try:
        return [len(file.peek(1 << 20))]
    finally:
        file.close()


def write_note(root: Path, number: int) -> None:
    NoteFile(root).write(TablesNote(number, 1, complete=True))


def read_note(root: Path) -> list[int]:
    note = NoteFile(root).read()
    # A lost note is rebuilt from the group's log; a note ahead of the log would hide changes.
    return [0 if note is None else max(note.index, 0)]


def write_group(root: Path, number: int) -> None:
    GroupFile(root, "g").write(f"{number:032x}", "")


def read_group(root: Path) -> list[int]:
    file = GroupFile(root, "g")
    file.load()
    return [int(file.group_id or "0", 16)]


KINDS = {
    "tables": Kind(
        tuple(f"config/{name}" for name in (TOPICS, GROUPS, OFFSETS, DELAYS, FILTERS)),
        write_tables,
        read_tables,
        lambda root: accept_lost_state(root / "config"),
        is_gone_refused=True,
    ),
    "kv": Kind(("kvConfig.json",), write_kv, read_kv, accept_lost_state),
    "local offsets": Kind(("c/G/offsets.json",), write_local, read_local),
    "users": Kind(
        ("users.json",),
        write_users,
        lambda root: [len(user_store.load(root / "users.json").users)],
        fallback=False,
    ),
    "outbox": Kind(("outbox.db",), write_outbox, read_outbox, fallback=False, is_gone_refused=True),
    "term": Kind(
        ("currterm",),
        lambda root, number: TermFile(root).write(number, "n0"),
        lambda root: [TermFile(root).read()[0]],
        fallback=False,
    ),
    "group": Kind(("group.json",), write_group, read_group, fallback=False),
    "note": Kind(("tablesInLog.json",), write_note, read_note),
}


# --- a round


def damage(file: Path, rng: random.Random) -> str:
    """Damage a file like a disk that loses synced data; return the kind of damage."""
    data = file.read_bytes()
    how = rng.choice(("zeroed", "cut", "emptied", "dropped", "zeroed behind"))
    at = rng.randrange(len(data)) if data else 0
    match how:
        case "zeroed":
            file.write_bytes(bytes(len(data)))
        case "cut":
            file.write_bytes(data[:at])
        case "emptied":
            file.write_bytes(b"")
        case "dropped":
            file.unlink()
        case _:
            file.write_bytes(data[:at] + bytes(len(data) - at))
    return how


def run_round(seed: int, root: Path) -> Counter[str]:
    """Write versions until the power fails or the process dies, damage some files, and start again."""
    rng = random.Random(seed)
    name = list(KINDS)[seed % len(KINDS)]
    kind, counts = KINDS[name], Counter[str]()
    home, image = root / "home", root / "image"
    home.mkdir(parents=True)
    disk = ForgetfulDisk(home, rng)
    disk.forgets = rng.random() < 0.75 and name != "outbox"  # SQLite writes past the functions that the disk watches
    disk.target = image
    disk.fail_at = rng.choice((None, rng.randint(1, 20), rng.randint(1, 120)))
    acknowledged = 0
    try:
        with disk.watching():
            for number in range(1, rng.randint(2, 6)):
                kind.write(home, number)
                acknowledged = number
            disk.cut()
    except PowerLostError:
        counts["power failed" if disk.forgets else "killed"] += 1
    hurt: dict[str, str] = {}
    if rng.random() < 0.6:
        victims = [path for one in kind.files for path in (image / one, image / f"{one}.bak") if path.exists()]
        for path in rng.sample(victims, min(len(victims), rng.randint(1, 3))):
            hurt[path.relative_to(image).as_posix()] = damage(path, rng)
    context = f"round {seed}, {name}: version {acknowledged} was acknowledged, damaged: {hurt}"
    check(kind, image, acknowledged, hurt, counts, context)
    return counts


def check(kind: Kind, image: Path, acknowledged: int, hurt: dict[str, str], counts: Counter[str], context: str) -> None:
    """Start twice on the files that are left: the state is whole, or an error refuses the start with a remedy."""
    silent = hurt and set(hurt.values()) == {"dropped"} and not kind.is_gone_refused
    least = acknowledged if not hurt else max(acknowledged - 1, 0) if kind.fallback and not silent else 0
    for again in (False, True):
        found, text = [], ""
        try:
            found = kind.read(image)
        except REFUSALS as error:
            text = str(error)
        except Exception as error:
            raise AssertionError(f"{context}: {error!r}") from error
        if text:
            assert hurt, f"{context}: refused without damage: {text}"
            assert any(Path(one).name.removesuffix(".bak") in text for one in hurt), f"{context}: {text}"
            assert "\n" not in text
            assert any(word in text for word in ("put", "copy", "write", "move")), f"{context}: no remedy: {text}"
            counts["refused"] += not again
            continue
        if not silent and kind.read is not read_note and kind.read is not read_outbox:
            assert min(found) >= least, f"{context}: found {found}"
        if kind.read is read_outbox and not hurt:
            assert found == [acknowledged] or found == [acknowledged + 1], f"{context}: found {found}"
        counts["whole"] += not again and min(found) >= acknowledged
        counts["from the version before"] += not again and min(found) < acknowledged
    if counts["refused"] and kind.accept is not None:
        kind.accept(image)
        found = kind.read(image)
        counts["accepted"] += 1
        assert len(found) == len(kind.read(image)), f"{context}: a second start after the accepted loss"
        if kind.is_gone_refused:
            assert rebuilt_tables(image), f"{context}: nothing notes what was rebuilt"


def run_rounds(seeds: range, root: Path) -> Counter[str]:
    total: Counter[str] = Counter()
    failed = []
    for seed in seeds:
        try:
            total += run_round(seed, root / str(seed))
        except (AssertionError, StateLost) as error:
            failed.append(str(error))
        shutil.rmtree(root / str(seed), ignore_errors=True)
    print(f"{len(seeds)} rounds: {dict(total)}")
    assert not failed, "\n".join(failed)
    return total


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder in memory if possible, because the model of the disk decides which data survive."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="tianzhou-") as folder:
        yield Path(folder)


def test_one_round(memory_path: Path) -> None:
    run_round(int(os.environ.get("TIANZHOU_SEED", "0")), memory_path / "r")


def test_state_is_whole_or_the_start_is_refused(memory_path: Path) -> None:
    total = run_rounds(range(1, 65), memory_path)
    assert min(total[one] for one in ("whole", "from the version before", "refused", "accepted", "killed")) > 0


@pytest.mark.slow
def test_state_is_whole_or_the_start_is_refused_in_many_rounds(memory_path: Path) -> None:
    run_rounds(range(1_000, 1_000 + int(os.environ.get("TIANZHOU_ROUNDS", "500"))), memory_path)
