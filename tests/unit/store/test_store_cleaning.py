"""Old files are deleted, younger ones stay, and readers are unaffected (store.md §12, §2.7, §5.7, §8.7, §5.10)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_store import SEGMENT, by_key, small_store

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.settings import bind
from tianzhou.store import GetStatus, MessageStore, NewRecord, PutStatus, StoreSettings
from tianzhou.store.files import pages
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.properties import encode_properties
from waiting import until_async

GOLDEN = Path(__file__).parents[2] / "golden" / "store"
BODY = b"b" * 900
READABLE = (GetStatus.FOUND, GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)


def some_hours_away(hours: int) -> str:
    return f"{(datetime.now().astimezone() + timedelta(hours=hours)).hour:02d}"


def small(folder: Path, **changes: Any) -> MessageStore:
    quick = {
        "delete_when": some_hours_away(12), "delete_commit_log_files_interval": 1, "max_index_num": 40,
        "delete_consume_queue_files_interval": 1, "flush_interval_commit_log": 10, "flush_interval_consume_queue": 10,
        # On a disk that is three quarters full, expired files would be deleted at any hour.
        "disk_max_used_space_ratio": 95,
    }  # fmt: skip
    return small_store(folder, **{**quick, **changes})


def put(store: MessageStore, count: int, topic: str = "T", queues: int = 2) -> None:
    for number in range(count):
        key = f"{topic}{number}"
        properties = encode_properties({"KEYS": key})
        result = store.append(NewRecord(topic, number % queues, BODY, properties, keys=key))
        assert result.status is PutStatus.PUT_OK, result.remark


def age(folder: Path, hours: float = 100.0, *, but: int = 1) -> None:
    """Make the log's files look `hours` old, except for the last `but`."""
    when = time.time() - hours * 3600
    for path in sorted((folder / "commitlog").iterdir())[:-but]:
        os.utime(path, (when, when))


async def flushed(store: MessageStore) -> None:
    store.settings.flush_commit_log_least_pages = 0
    await until_async(lambda: store.flushed.value >= store.end_offset)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await main

    asyncio.run(limited())


pytestmark = pytest.mark.runner.with_args(run)


async def test_expiry_deletes_log_queue_and_index_files_and_nothing_else(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        put(store, 250)
        await flushed(store)
        log_files = len(list((tmp_path / "commitlog").iterdir()))
        index_files = len(list((tmp_path / "index").iterdir()))
        end = store.end_offset
        assert log_files > 14
        age(tmp_path, but=4)
        store.delete_expired()
        await until_async(lambda: len(list((tmp_path / "commitlog").iterdir())) == log_files - 10)
        store.delete_expired()
        await until_async(lambda: len(list((tmp_path / "commitlog").iterdir())) == 4)
        await until_async(lambda: len(list((tmp_path / "index").iterdir())) < index_files)
        # The queues follow the log; until then they begin with deleted messages.
        await until_async(
            lambda: all(at_once(store.lookups.time_steps("T", q, store.min_offset("T", q))) >= 0 for q in range(2))
        )
        begin = store.begin_offset
        assert begin == int(min((tmp_path / "commitlog").iterdir()).name)
        found = 0
        for queue_id in range(2):
            low, high = store.min_offset("T", queue_id), store.max_offset("T", queue_id)
            assert 0 < low < high == 125
            assert read_now(store, "T", queue_id, 0, 1).status is GetStatus.OFFSET_TOO_SMALL
            assert read_now(store, "T", queue_id, 0, 1).next_offset == low
            for offset in range(low, high):
                assert read_now(store, "T", queue_id, offset, 1).status is GetStatus.FOUND
                found += 1
                number = 2 * offset + queue_id
                assert len(by_key(store, f"T{number}").parts) == 1
            await until_async(lambda: min(os.listdir(tmp_path / "consumequeue" / "T" / "0")) > "0" * 20)
        # Every record left in the log is also in its queue.
        left = sum(1 for _ in StoreScan(tmp_path).records())
        assert found == left
        assert store.end_offset == end
        assert by_key(store, "T0").parts == []
    async with small(tmp_path) as store:
        assert store.report.clean
        assert store.report.notes == []
        put(store, 1)
        await until_async(lambda: store.max_offset("T", 0) == 126)


async def test_readers_pass_over_what_the_log_has_lost_before_the_queues_know(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        put(store, 60, queues=1)
        await flushed(store)
        age(tmp_path)
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            reached.set()
            await go_on.wait()

        StoreProbe(store).clean_queues_after(wait)
        store.delete_expired()
        await reached.wait()
        assert store.begin_offset > 0
        assert store.min_offset("T", 0) == 0
        found = read_now(store, "T", 0, 0, 1)
        while found.status is GetStatus.MESSAGE_WAS_REMOVING:
            found = read_now(store, "T", 0, found.next_offset, 1)
        assert (found.status, found.count) == (GetStatus.FOUND, 1)
        oldest = found.next_offset - 1
        assert oldest > 0
        # The index still has the key, but its record is deleted.
        assert by_key(store, f"T{oldest - 1}").parts == []
        assert len(by_key(store, f"T{oldest}").parts) == 1
        assert at_once(store.lookups.time_steps("T", 0, 0)) == -1
        go_on.set()
        await until_async(lambda: store.min_offset("T", 0) == oldest)
        assert read_now(store, "T", 0, 0, 1).status is GetStatus.OFFSET_TOO_SMALL


async def test_nothing_goes_outside_the_hour_and_all_that_expired_goes_in_it(tmp_path: Path) -> None:
    async with small(tmp_path, clean_resource_interval=20) as store:
        settings = store.settings
        put(store, 60)
        await flushed(store)
        age(tmp_path)
        await StoreProbe(store).clean()
        assert store.begin_offset == 0
        settings.delete_when = f"{some_hours_away(12)};{some_hours_away(0)}"
        settings.file_reserved_time = 200
        await StoreProbe(store).clean()
        assert store.begin_offset == 0
        settings.file_reserved_time = 72
        await StoreProbe(store).clean()
        assert store.begin_offset == int(max((tmp_path / "commitlog").iterdir()).name)


async def test_a_segment_being_read_stays_readable_until_the_reader_is_done(tmp_path: Path) -> None:
    async with small(tmp_path, redelete_hanged_file_interval=1) as store:
        put(store, 60)
        await flushed(store)
        held = [at_once(store.lookups.record_steps(0))]
        before = [bytes(record or b"") for record in held]
        age(tmp_path)
        store.delete_expired()
        await until_async(lambda: not (tmp_path / "commitlog" / f"{0:020d}").exists())
        await StoreProbe(store).clean()
        assert [bytes(record or b"") for record in held] == before != [b""]
        assert StoreProbe(store).held_segments == 1
        held.clear()
        store.delete_expired()
        await asyncio.sleep(0.01)
        store.delete_expired()
        await until_async(lambda: not StoreProbe(store).held_segments)


async def test_a_full_disk_deletes_what_is_not_expired_and_says_what(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with small(tmp_path, disk_space_clean_forcibly_ratio=30, disk_space_warning_level_ratio=90) as store:
        put(store, 60)
        await flushed(store)
        with pytest.MonkeyPatch.context() as patch:
            full_to(patch, 0.87)
            await StoreProbe(store).check_space()
            with caplog.at_level(logging.ERROR):
                await StoreProbe(store).clean()
        assert store.begin_offset > 0
        text = caplog.messages[0]
        for part in ("NOT EXPIRED", "00000000000000000000", "messages stored from 20", "cleanFileForciblyEnable"):
            assert part in text
        assert store.append(NewRecord("T", 0, BODY, b"")).status is PutStatus.PUT_OK


def full_to(patch: pytest.MonkeyPatch, ratio: float) -> None:
    total = 1 << 40
    usage = SimpleNamespace(total=total, used=int(total * ratio), free=total - int(total * ratio))
    patch.setattr("tianzhou.store.upkeep.cleaner.shutil.disk_usage", lambda _: usage)


async def test_the_full_flag_goes_up_above_90_percent_and_down_below_85(tmp_path: Path) -> None:
    async with small(tmp_path, clean_file_forcibly_enable=False) as store:
        settings = store.settings
        put(store, 60)
        for ratio, accepted in ((0.89, True), (0.91, False), (0.88, False), (0.84, True), (0.89, True)):
            with pytest.MonkeyPatch.context() as patch:
                full_to(patch, ratio)
                await StoreProbe(store).check_space()
            result = store.append(NewRecord("T", 0, BODY, b""))
            assert (result.status is PutStatus.PUT_OK) is accepted
            assert accepted or "diskSpaceWarningLevelRatio=90" in result.remark
            assert read_now(store, "T", 0, 0, 1).status is GetStatus.FOUND
        assert store.begin_offset == 0
        with pytest.MonkeyPatch.context() as patch:
            full_to(patch, 0.5)
            settings.disk_space_warning_level_ratio = 40
            settings.disk_space_clean_forcibly_ratio = 35
            store.settings_changed()
            await until_async(lambda: not store.writable)
            settings.disk_space_warning_level_ratio = 90
            settings.disk_space_clean_forcibly_ratio = 85
            store.settings_changed()
            await until_async(lambda: store.writable)


async def test_dying_while_files_are_deleted_loses_nothing_more(tmp_path: Path) -> None:
    store = small(tmp_path)
    await store.start()
    put(store, 100)
    put(store, 10, topic="Idle", queues=1)
    put(store, 60)
    await flushed(store)
    age(tmp_path)
    steps = 0

    async def in_thread(_: object, work: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > 9:
            raise SystemError("died")
        return work(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        StoreProbe(store).clean_by(patch, in_thread)
        store.settings.delete_when = some_hours_away(0)
        with pytest.raises(SystemError):
            await StoreProbe(store).clean()
    begin, end = store.begin_offset, store.end_offset
    assert 0 < begin < end
    # A dying process leaves this: unchanged files, the marker, and a released lock.
    await store.supervisor.end()
    StoreProbe(store).unlock()
    async with small(tmp_path) as again:
        assert not again.report.clean
        assert again.report.read_from >= begin
        smallest = again.begin_offset
        assert smallest >= begin - SEGMENT
        assert again.end_offset == end
        found = 0
        for topic, queues in (("T", 2), ("Idle", 1)):
            for queue_id in range(queues):
                low, high = again.min_offset(topic, queue_id), again.max_offset(topic, queue_id)
                for offset in range(low, high):
                    assert read_now(again, topic, queue_id, offset, 1).status is GetStatus.FOUND
                    found += 1
        assert again.max_offset("Idle", 0) == 10
        assert found == sum(1 for _ in StoreScan(tmp_path).records())


async def test_a_store_whose_beginning_rocketmq_deleted_goes_on(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "expired.tar.xz") as archive:
        archive.extractall(tmp_path)
    manifest = json.loads((GOLDEN / "expired.json").read_bytes())
    settings = bind(StoreSettings, manifest["brokerConf"])
    settings.store_path_root_dir = str(tmp_path / "store")
    settings.file_reserved_time = 72

    async with MessageStore(settings) as store:
        begin = store.begin_offset
        assert begin > 0
        bounds = {(q["topic"], q["queueId"]): q for q in manifest["queues"]}
        plain = NewRecord("M5Plain", 0, b"b" * 3000, b"")
        for _ in range(100):
            assert store.append(plain).status is PutStatus.PUT_OK
        await flushed(store)
        age(tmp_path / "store", 100)
        store.delete_expired()
        await until_async(lambda: store.begin_offset > begin)
        queues = list(bounds)
        await until_async(lambda: all(read_now(store, *q, store.min_offset(*q), 1).status in READABLE for q in queues))
        assert store.min_offset("M5Plain", 0) > bounds["M5Plain", 0]["minOffset"]
        assert store.max_offset("M5Plain", 0) == bounds["M5Plain", 0]["maxOffset"] + 100
        for (topic, queue_id), queue in bounds.items():
            # Deleted messages stay deleted; the offsets continue.
            assert store.max_offset(topic, queue_id) >= queue["maxOffset"]
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            assert low <= high


async def test_a_topic_is_deleted_beside_the_loop_and_its_name_is_free_at_once(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        put(store, 60)
        put(store, 4, topic="Other")
        await until_async(lambda: store.max_offset("T", 0) == 30)
        held = read_now(store, "T", 0, 0, 1).parts
        store.delete_topic("T")
        assert store.max_offset("T", 0) == 0
        assert not (tmp_path / "consumequeue" / "T").exists()
        put(store, 2, queues=1)
        await until_async(lambda: store.max_offset("T", 0) == 2)
        assert read_now(store, "T", 0, 0, 5).count == 2
        assert bytes(held[0])
        await until_async(lambda: not (tmp_path / "deleted").exists())
        assert (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").exists()
        assert store.max_offset("Other", 0) == 2
        store.delete_topic("T")
    assert not (tmp_path / "deleted").exists()


async def test_what_a_dead_process_was_about_to_delete_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "deleted" / "123-1" / "0").mkdir(parents=True)
    async with small(tmp_path):
        await until_async(lambda: not (tmp_path / "deleted").exists())


async def test_a_file_that_cannot_be_deleted_stops_deleting_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with small(tmp_path, redelete_hanged_file_interval=0) as store:
        settings = store.settings
        put(store, 60)
        await flushed(store)
        age(tmp_path)

        def refuse(path: Path, missing_ok: bool = False) -> None:
            raise PermissionError(1, "Operation not permitted", str(path))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            settings.delete_when = some_hours_away(0)
            await StoreProbe(store).clean()
            await StoreProbe(store).clean()
        assert store.begin_offset == SEGMENT
        assert "cannot be deleted" in caplog.text
        await StoreProbe(store).clean()
        assert not (tmp_path / "commitlog" / f"{0:020d}").exists()
        assert store.begin_offset > SEGMENT


async def test_nothing_is_unlinked_or_synced_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, set[int]] = {}

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            calls.setdefault(name, set()).add(threading.get_ident())
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, watched)

    ext = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024}
    async with small(tmp_path, delete_file_batch_max=100, **ext) as store:
        put(store, 20)
        put(store, 2, topic="Other")
        await until_async(lambda: store.max_offset("Other", 0) == 1)
        for owner, name in (
            (pages, "sync"), (pages, "detach"), (os, "fsync"), (os, "fdatasync"), (os, "unlink"), (Path, "unlink"),
            (shutil, "rmtree"),
        ):  # fmt: skip
            watch(owner, name)
        put(store, 230)
        put(store, 10, topic="Other")
        await flushed(store)
        await until_async(lambda: store.max_offset("Other", 0) == 6)
        age(tmp_path)
        store.delete_expired()
        await until_async(lambda: min(os.listdir(tmp_path / "consumequeue" / "T" / "0")) > "0" * 20)
        await until_async(lambda: min(os.listdir(tmp_path / "consumequeue_ext" / "T" / "0")) > "0" * 20)
        store.delete_topic("Other")
        await until_async(lambda: not (tmp_path / "deleted").exists())
        await StoreProbe(store).flush_queues(thorough=True)
        seen = {name: set(threads) for name, threads in calls.items()}
    assert {"sync", "detach", "unlink", "rmtree"} <= seen.keys()
    assert {name for name, threads in seen.items() if threading.get_ident() in threads} == set()


async def test_deleting_what_is_gone_already_is_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with small(tmp_path) as store:
        put(store, 100)
        put(store, 4, topic="Other")
        await flushed(store)
        age(tmp_path)
        # An operator deleted it first.
        (tmp_path / "commitlog" / f"{SEGMENT:020d}").unlink()
        (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
        for _ in range(5):
            store.delete_expired()
            store.clean_queues()
        last = max(path.name for path in (tmp_path / "commitlog").iterdir())
        await until_async(lambda: store.begin_offset == int(last))
        await until_async(lambda: store.min_offset("T", 0) > 40)
        store.delete_topic("Other")
        store.delete_topic("Other")
        store.delete_topic("Never")
        assert store.delete_other_topics({"T"}.__contains__) == []
        begin = store.begin_offset
        for _ in range(3):
            await StoreProbe(store).clean()
        assert store.begin_offset == begin
        assert not StoreProbe(store).held_segments
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
        for queue_id in range(2):
            low, high = store.min_offset("T", queue_id), store.max_offset("T", queue_id)
            assert 0 < low < high == 50
            assert read_now(store, "T", queue_id, low, 1).status is GetStatus.FOUND


@pytest.mark.parametrize("batched", [False, True])
async def test_a_queue_of_which_everything_expired_goes_on_counting(tmp_path: Path, *, batched: bool) -> None:
    def opened() -> MessageStore:
        sizes = {"mapper_file_size_batch_consume_queue": 920, "delete_file_batch_max": 100}
        return small(tmp_path, batch_topics=["Idle"] if batched else [], **sizes)

    def check(store: MessageStore, end: int) -> None:
        assert (store.min_offset("Idle", 0), store.max_offset("Idle", 0)) == (end, end)
        gone = read_now(store, "Idle", 0, 3, 1)
        assert (gone.status, gone.next_offset) == (GetStatus.OFFSET_TOO_SMALL, end)
        assert read_now(store, "Idle", 0, end, 1).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert at_once(store.lookups.first_time_steps("Idle", 0)) == -1

    async with opened() as store:
        put(store, 30, topic="Idle", queues=1)
        put(store, 60)
        await flushed(store)
        age(tmp_path)
        store.delete_expired()
        await until_async(lambda: store.min_offset("Idle", 0) == 30)
        check(store, 30)
    async with opened() as store:
        assert store.report.clean
        check(store, 30)
        put(store, 1, topic="Idle", queues=1)
        await until_async(lambda: store.max_offset("Idle", 0) == 31)
        found = read_now(store, "Idle", 0, 30, 1)
        assert (found.status, found.next_offset, found.min_offset) == (GetStatus.FOUND, 31, 30)
