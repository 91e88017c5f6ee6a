"""An archive without Spark: each message once, whatever is killed when, and who else writes to its folders."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
from fake_queues import FakeQueues

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.pipelines import archive_parts
from tianzhou.pipelines.archive_folders import ArchiveFolders
from tianzhou.pipelines.archive_log import UnknownForm
from tianzhou.pipelines.few_archived import FewArchived, is_little, options_of
from tianzhou.pipelines.few_replayed import Checkpoint
from tianzhou.spark.source.offsets import DataLoss

A, B = (MessageQueue("orders", "broker-a", number) for number in range(2))
DAY_MS = 86_400_000


@pytest.fixture
def queues():
    queues = FakeQueues()
    queues.add(A, 7)
    queues.add(B, 3)
    return queues


@pytest.fixture
def to(tmp_path) -> Path:
    return tmp_path / "the archive"


def begun(queues, to, *, topics=("orders",), most=100, skip_lost=False, checkpoint=None):
    options = options_of(topics, {"namesrvAddr": "a:1", "tls": None}, {}, most=most, skip_lost=skip_lost)
    archive = FewArchived(options, lambda _: queues, ArchiveFolders(str(to), checkpoint))
    return archive, archive.begin()


def run(queues, to, **more):
    archive, _ = begun(queues, to, **more)
    return archive.run()


def files(to) -> list[Path]:
    """The files that the table's lists name, as a reader finds them that goes by these."""
    lists = {int(path.name.removesuffix(".compact")): path for path in (to / "_spark_metadata").glob("[0-9]*")}
    whole = max((number for number, path in lists.items() if path.suffix), default=0)
    found = []
    for number in range(whole, max(lists, default=-1) + 1):
        version, *lines = lists[number].read_text(encoding="utf-8").split("\n")
        assert version == "v1"
        for line in map(json.loads, lines):
            path = Path(unquote(urlsplit(line["path"]).path))
            assert path.stat().st_size == line["size"]
            assert int(path.stat().st_mtime * 1000) == pytest.approx(line["modificationTime"], abs=1)
            found.append(path)
    return found


def rows(to) -> list[dict]:
    return [row for path in files(to) for row in pq.ParquetFile(path).read(use_threads=False).to_pylist()]


def places(to) -> Counter:
    found: Counter = Counter()
    for path in files(to):
        status = path.stat()
        found.update(places_in(path, status.st_ino, status.st_mtime_ns, status.st_size))
    return found


@cache
def places_in(path: Path, *file: int) -> tuple[tuple[int, int], ...]:
    """Return queues and offsets in a file. The numbers in the cache's key detect a rewritten file of the same name."""
    columns = pq.ParquetFile(path).read(["queueId", "queueOffset"], use_threads=False)
    return tuple(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def every(queues) -> Counter:
    return Counter((queue.queue_id, offset) for queue, records in queues.records.items() for offset in records)


def test_each_run_goes_on_where_the_last_one_was(queues, to, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    first, waiting = begun(queues, to)
    assert waiting == 10
    done = first.run()
    assert (done.rows, done.bytes, done.positions) == (10, 30, {A: 7, B: 3})
    for round_ in range(25):
        queues.add(A, 1)
        queues.add(B, round_ % 3)
        assert run(queues, to, most=2).rows == 1 + round_ % 3
        assert places(to) == every(queues)
    done = run(queues, to)
    assert (done.rows, done.bytes) == (0, 0)
    assert done.positions == {A: queues.maximum[A], B: queues.maximum[B]}
    assert not list(to.glob(".tianzhou*"))


def test_a_topic_without_messages_is_noted(queues, to):
    """Messages that come and are deleted before the next run are known to be lost."""
    queues.maximum[MessageQueue("bills", "broker-a", 0)] = 0
    assert run(queues, to, topics=["bills"]).rows == 0
    assert sorted(path.name for path in (to / "_checkpoint" / "commits").iterdir()) == ["0"]
    assert run(queues, to, topics=["bills"]).rows == 0
    assert sorted(path.name for path in (to / "_checkpoint" / "commits").iterdir()) == ["0"]
    bills = MessageQueue("bills", "broker-a", 0)
    queues.add(bills, 5)
    queues.expire(bills, 2)
    with pytest.raises(DataLoss, match="2 messages of bills@broker-a:0 from offset 0 to 1 are lost"):
        run(queues, to, topics=["bills"])


def test_the_rows_are_whole(queues, to):
    queues.add(A, 1, body=b"\xff\x00", tag="paid", at_ms=DAY_MS - 8)
    queues.add(A, 1, at_ms=DAY_MS - 8)
    run(queues, to)
    found = {(path.parent.parent.name, path.parent.name) for path in files(to)}
    assert found == {("topic=orders", "day=1970-01-01"), ("topic=orders", "day=1970-01-02")}
    row = next(row for row in rows(to) if (row["queueId"], row["queueOffset"]) == (0, 7))
    assert (row["body"], row["tags"], row["keys"]) == (b"\xff\x00", "paid", None)
    assert dict(row["properties"]) == {"UNIQ_KEY": "id-0-7", "n": "7", "TAGS": "paid"}
    assert pq.read_schema(files(to)[0]).equals(archive_parts.ROWS)


class Killed(BaseException):
    """A process ends, without a word."""


class Process:
    """What dies at a step does nothing any more, cleaning up included."""

    def __init__(self, last: int, after: bool) -> None:
        self.left, self.after, self.dead = last, after, False

    def doing(self, act):
        def step(*args, **more):
            if self.dead:
                raise Killed
            self.left -= 1
            self.dead = self.left < 0
            if self.dead and not self.after:
                raise Killed
            result = act(*args, **more)
            if self.dead:
                raise Killed
            return result

        return step


STEPS = [(os, "link"), (os, "fsync"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir"), (shutil, "rmtree")]


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_run_is_gone_on_with(to, monkeypatch, after):
    """It is killed before, or after, each thing that it does to the disk, in two batches of which one lists all."""
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def killed_at(last, after, queues, **more):
        process = Process(last, after)
        with monkeypatch.context() as patched:
            for owner, name in STEPS:
                patched.setattr(owner, name, process.doing(getattr(owner, name)))
            try:
                run(queues, to, **more)
            except Killed:
                return True
        return False

    def there(a, b):
        queues = FakeQueues()
        queues.add(A, a)
        queues.add(B, b)
        return queues

    whole = to.with_name("whole")
    assert run(there(7, 1), to, most=1).rows == 8
    assert run(there(7, 2), to).rows == 1
    shutil.copytree(to, whole)
    for last in range(1000):
        queues = there(9, 3)
        shutil.rmtree(to)
        shutil.copytree(whole, to)
        died = killed_at(last, after, queues, most=2)
        if last % 3 == 0:
            killed_at(last % 20, not after, queues, most=1)
        if last % 2:
            queues.add(B, 1)
        run(queues, to, most=2)
        assert places(to) == every(queues)
        assert not [*to.glob("**/.*.tianzhou"), *to.glob(".tianzhou*")]
        if not died:
            break
    assert last > 30


@pytest.mark.parametrize("after", [False, True])
def test_the_very_first_run_is_killed(queues, to, monkeypatch, after):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for last in range(100):
        shutil.rmtree(to, ignore_errors=True)
        process = Process(last, after)
        with monkeypatch.context() as patched:
            for owner, name in STEPS:
                patched.setattr(owner, name, process.doing(getattr(owner, name)))
            with contextlib.suppress(Killed):
                run(queues, to)
        run(queues, to)
        assert places(to) == every(queues)
        if not process.dead:
            break
    assert last > 15


def test_what_a_killed_attempt_left_is_not_read(queues, to, monkeypatch):
    """The files are in their places, and no list has them."""
    archive, _ = begun(queues, to)
    monkeypatch.setattr(ArchiveFolders, "log_files", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        archive.run()
    monkeypatch.undo()
    assert len(list(to.glob("topic=*/day=*/*.parquet"))) == 1
    run(queues, to)
    assert len(list(to.glob("topic=*/day=*/*.parquet"))) == 2
    assert places(to) == every(queues)


def test_a_batch_is_done_again_for_the_very_messages_it_was_begun_with(queues, to, monkeypatch):
    archive, _ = begun(queues, to, most=4)
    monkeypatch.setattr(ArchiveFolders, "log_files", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        archive.run()
    monkeypatch.undo()
    offsets = (to / "_checkpoint" / "offsets" / "0").read_text(encoding="utf-8")
    queues.add(A, 20)
    again, waiting = begun(queues, to)
    assert waiting == 30
    assert again.run().rows == 30
    assert (to / "_checkpoint" / "offsets" / "0").read_text(encoding="utf-8") == offsets
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in files(to)[:1]) == 4


def test_one_archive_at_a_time(to):
    with (
        ArchiveFolders(str(to), None).held(),
        pytest.raises(ConfigError, match="_checkpoint: another archive runs with it; wait, or give one of its own"),
        ArchiveFolders(str(to), None).held(),
    ):
        pass


def test_a_disk_without_locks_does(queues, to, monkeypatch):
    def no(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("tianzhou.pipelines.folder_lock.fcntl.flock", no)
    with ArchiveFolders(str(to), None).held():
        run(queues, to)
    assert places(to) == every(queues)
    with pytest.raises(OSError, match="No locks"), Checkpoint(str(to)).held():
        pass


def test_who_was_first_has_the_batch(queues, to):
    """Another archive, or a query of Spark's with the same checkpoint, has begun the batch meanwhile."""
    late, _ = begun(queues, to)
    run(queues, to)
    with pytest.raises(
        ConfigError, match=r"_checkpoint: .*offsets/0 was written by another archive meanwhile; nothing"
    ):
        late.run()
    assert places(to) == every(queues)
    assert run(queues, to).rows == 0


def test_a_table_belongs_to_one_checkpoint(queues, to, tmp_path):
    other = str(tmp_path / "other")
    late, _ = begun(queues, to, checkpoint=other)
    run(queues, to)
    with pytest.raises(ConfigError, match=r"_spark_metadata/0 was written by another archive meanwhile"):
        late.run()
    queues.add(A, 1)
    run(queues, to)
    with pytest.raises(
        ConfigError, match=r"has files up to batch 1 of another checkpoint than .*other, whose last is 0"
    ):
        begun(queues, to, checkpoint=other)
    assert places(to) == every(queues)


def test_on_a_disk_without_hard_links(queues, to, monkeypatch):
    def no(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no)
    late, _ = begun(queues, to)
    run(queues, to, most=3)
    assert places(to) == every(queues)
    with pytest.raises(ConfigError, match="offsets/0 was written by another archive meanwhile"):
        late.run()


def test_no_checksum_of_another_file_stays_beside_a_new_one(queues, to):
    stale = [to / "_checkpoint" / "offsets" / ".0.crc", to / "_spark_metadata" / ".0.crc"]
    for path in stale:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"crc")
    run(queues, to)
    assert not any(path.exists() for path in stale)


def test_messages_that_were_deleted_before(queues, to):
    run(queues, to)
    queues.add(A, 5)
    queues.expire(A, 9)
    with pytest.raises(DataLoss, match="2 messages of orders@broker-a:0 from offset 7 to 8 are lost"):
        run(queues, to)
    assert sum(places(to).values()) == 10
    done = run(queues, to, skip_lost=True)
    assert (done.rows, done.positions[A]) == (3, 12)
    assert places(to) == every(queues) - Counter({(0, 7): 1, (0, 8): 1})


def test_messages_of_a_batch_that_was_begun_are_deleted(queues, to, monkeypatch):
    monkeypatch.setattr(ArchiveFolders, "log_files", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        run(queues, to)
    monkeypatch.undo()
    queues.expire(A, 2)
    with pytest.raises(DataLoss, match="2 messages of orders@broker-a:0 from offset 0 to 1 are lost"):
        run(queues, to)
    assert run(queues, to, skip_lost=True).rows == 8


def test_queues_and_topics_that_come_and_go(queues, to):
    run(queues, to)
    new, bills = MessageQueue("orders", "broker-b", 0), MessageQueue("bills", "broker-a", 0)
    queues.add(new, 2)
    queues.add(bills, 4)
    assert run(queues, to).rows == 2
    assert run(queues, to, topics=["bills"]).rows == 4
    queues.add(A, 3)
    # A topic that was not named meanwhile goes on where it was.
    assert run(queues, to, topics=["orders", "bills"]).rows == 3
    assert len(rows(to)) == sum(map(len, queues.records.values()))


def test_old_logs_are_taken_away(queues, to, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("tianzhou.pipelines.archive_folders.READERS_S", -1)
    queues.add(B, 125)
    checkpoint, lists = to / "_checkpoint", to / "_spark_metadata"
    run(queues, to, most=60)
    (checkpoint / "offsets" / ".0.crc").write_bytes(b"crc")
    run(queues, to)
    queues.add(A, 125)
    run(queues, to, most=1)
    newest = len(list(lists.glob("*"))) - 1
    for name in ("offsets", "commits"):
        found = sorted(int(path.name) for path in (checkpoint / name).glob("[0-9]*"))
        assert len(found) == 101
        assert found[-1] == 127
        assert not list((checkpoint / name).glob(".*"))
    assert {path.name for path in lists.glob("*.compact")} == {f"{number}.compact" for number in range(19, 128, 10)}
    assert newest < 110
    assert places(to) == every(queues)


def test_many_days_need_few_open_files(queues, to, monkeypatch):
    monkeypatch.setattr(archive_parts, "OPEN", 2)
    monkeypatch.setattr(archive_parts, "WAITING_BYTES", 1)
    for queue in (A, B):
        for day in range(5):
            queues.add(queue, 3, at_ms=day * DAY_MS)
    run(queues, to)
    assert places(to) == every(queues)
    for path in files(to):
        day = path.parent.name.removeprefix("day=")
        assert {f"{row['storeTimestamp']:%Y-%m-%d}" for row in pq.ParquetFile(path).read().to_pylist()} == {day}


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("_checkpoint/sources/0/0", "0\n"),
        ("_checkpoint/state/0", ""),
        ("_checkpoint/offsets/0", "v2\n{}"),
        ("_checkpoint/offsets/0", "v1\n{}\n5"),
        ("_checkpoint/offsets/0", "\xff"),
        ("_spark_metadata/0.compact", "v1"),
    ],
)
def test_what_is_not_known_is_left_to_spark(queues, to, place, text):
    run(queues, to)
    (to / place).parent.mkdir(parents=True, exist_ok=True)
    (to / place).write_bytes(text.encode("latin-1"))
    before = sorted(to.glob("**/*"))
    with pytest.raises(UnknownForm):
        begun(queues, to)
    assert sorted(to.glob("**/*")) == before


def test_a_checkpoint_without_an_id_is_left_to_spark(queues, to):
    run(queues, to)
    (to / "_checkpoint" / "metadata").unlink()
    with pytest.raises(UnknownForm):
        begun(queues, to)


@pytest.mark.parametrize(("waiting", "little"), [(0, True), (200_000, True), (200_001, False)])
def test_how_much_the_client_does(waiting, little):
    assert is_little(waiting) is little
