"""Background work after puts: dispatch, flush, checkpoint, preallocation (store.md §9, §11, §13)."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
from small_store import small_store

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.errors import StoreError
from tianzhou.store import GetStatus, MessageStore, NewRecord, PutStatus
from tianzhou.store.dispatch import dispatch as dispatch_module
from tianzhou.store.files import directories
from tianzhou.store.files.segments import Segment
from tianzhou.store.flags import RunningFlag
from tianzhou.store.log import commitlog as commitlog_module
from tianzhou.store.log.flush import is_reachable
from waiting import until_async

small = partial(small_store, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=4000)


def message(number: int = 0, size: int = 100, **changes: object) -> NewRecord:
    return NewRecord("T", 0, b"x" * size, b"", uniq_key=f"u{number}", **changes)  # type: ignore[arg-type]


async def test_a_put_shows_in_the_next_turn_of_the_loop_and_wakes_who_waits(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        arrived = store.arrived("T", 0)
        waiting = asyncio.create_task(arrived.reach(3))
        for number in range(3):
            store.append(message(number))
            assert read_now(store, "T", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert store.max_offset("T", 0) == 0
        assert store.max_offset("T", 0, committed=False) == 3
        assert store.dispatch_behind_bytes == store.end_offset
        await asyncio.sleep(0)
        assert store.max_offset("T", 0) == 3
        assert store.dispatch_behind_bytes == 0
        assert StoreProbe(store).dispatcher.position == store.end_offset
        await asyncio.wait_for(waiting, 5)
        assert store.arrived("T", 0).value == 3


async def test_dispatch_works_in_slices_and_lets_others_run(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        for number in range(2000):
            store.append(message(number))
        turns = 0
        seen = []
        while store.max_offset("T", 0) < 2000:
            await asyncio.sleep(0)
            turns += 1
            seen.append(store.max_offset("T", 0))
        assert turns >= 2000 // dispatch_module.SLICE_RECORDS
        assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= dispatch_module.SLICE_RECORDS


async def test_a_flood_without_turns_of_the_loop_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.store.appender.BACKLOG_LIMIT", 500)

    async with small(tmp_path) as store:
        for number in range(3000):
            store.append(message(number))
            assert len(StoreProbe(store).dispatcher.pending) <= 501


async def test_sync_flush_settles_when_the_disk_has_it_and_shows_it_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    passed = Segment.sync

    def held(self: Segment, start: int, end: int) -> None:
        gate.wait(10)
        passed(self, start, end)

    async with small(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        monkeypatch.setattr(Segment, "sync", held)
        first = store.append(message(1))
        assert await store.settle(first, 30) is PutStatus.FLUSH_DISK_TIMEOUT
        group = [store.append(message(number)) for number in range(2, 50)]
        settled = [asyncio.create_task(store.settle(result)) for result in [first, *group]]
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in settled)
        assert store.max_offset("T", 0) == 0
        gate.set()
        assert set(await asyncio.gather(*settled)) == {PutStatus.PUT_OK}
        assert store.flushed.value == store.end_offset
        await asyncio.sleep(0)
        assert store.max_offset("T", 0) == 49


async def test_async_flush_settles_at_once(tmp_path: Path) -> None:
    async with small(tmp_path, flush_interval_commit_log=60_000) as store:
        result = store.append(message())
        assert await store.settle(result) is PutStatus.PUT_OK
        assert store.flushed.value == 0


async def test_async_flush_reaches_the_disk_by_interval(tmp_path: Path) -> None:
    async with small(tmp_path, flush_interval_commit_log=5, flush_commit_log_thorough_interval=20) as store:
        result = store.append(message())
        await asyncio.wait_for(store.flushed.reach(result.end_offset), 5)


async def test_a_failing_disk_ends_acknowledgements_and_puts_but_not_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Segment, start: int, end: int) -> None:
        raise OSError(5, "Input/output error")

    async with small(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        good = store.append(message(1))
        assert await store.settle(good) is PutStatus.PUT_OK
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "sync", broken)
            bad = store.append(message(2))
            assert await store.settle(bad) is PutStatus.FLUSH_DISK_TIMEOUT
        refused = store.append(message(3))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "Input/output error" in refused.remark
        assert "repair the disk" in refused.remark
        with pytest.raises(StoreError, match="only reads"):
            await store.flushed.reach(bad.end_offset)
        assert read_now(store, "T", 0, 0, 32).count == 1
        assert not store.writable
    assert "refused the commit log" in caplog.text
    assert (tmp_path / "abort").exists()  # so the next start reads the log


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("how", ["removed", "moved", "replaced", "segment removed", "lock removed"])
async def test_nothing_is_acknowledged_in_a_folder_that_has_lost_its_path(
    tmp_path: Path, how: str, flush: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    async with small(home, flush_disk_type=flush, flush_interval_commit_log=5) as store:
        first = store.append(message(1))
        await store.secure(first.end_offset)
        match how:
            case "removed":
                shutil.rmtree(home)
            case "moved":
                home.rename(tmp_path / "elsewhere")
            case "replaced":
                home.rename(tmp_path / "elsewhere")
                shutil.copytree(tmp_path / "elsewhere", home)
            case "segment removed":
                next((home / "commitlog").iterdir()).unlink()
            case _:
                (home / "lock").unlink()
        second = store.append(message(2))
        assert second.status is PutStatus.PUT_OK, "nobody has looked yet"
        with pytest.raises(StoreError, match=r"was removed, moved or replaced.*put the folder back"):
            await store.secure(second.end_offset)
        assert store.flushed.value == first.end_offset
        refused = store.append(message(3))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert str(home) in refused.remark
    assert "put the folder back, then restart the broker" in caplog.text


def test_a_segment_that_was_cut_off_while_it_was_flushed_is_not_missed(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path / "00000000000000004096", 4096, 4096)
    assert is_reachable(segment)
    segment.path.unlink()
    assert not is_reachable(segment)
    segment.close()
    assert is_reachable(segment), "nobody writes there any more"


class RefusesOnce:
    """A disk that reports a lost page once, like Linux: the next sync of the same pages succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.go_on = threading.Event()
        real = Segment.sync

        def sync(segment: Segment, start: int, end: int) -> None:
            if segment.path.parent.name == "commitlog":
                self.asked += 1
                if self.asked == 1:
                    assert self.go_on.wait(10)
                    raise OSError(5, "Input/output error")
            real(segment, start, end)

        monkeypatch.setattr(Segment, "sync", sync)

    async def busy(self) -> None:
        while not self.asked:
            await asyncio.sleep(0)


async def test_a_disk_that_refused_once_is_not_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RefusesOnce(monkeypatch)
    async with small(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        # Two flushes of the same range at the same time: the store's own, and that of a caller of the flush.
        results = [store.append(message(number)) for number in range(3)]
        waiting = [asyncio.create_task(store.settle(result, 5000)) for result in results]
        sure = asyncio.create_task(store.secure(store.end_offset))
        await disk.busy()
        disk.go_on.set()
        assert [await task for task in waiting] == [PutStatus.FLUSH_DISK_TIMEOUT] * 3
        with pytest.raises(StoreError, match="refused the commit log"):
            await sure
        assert store.flushed.value == 0
        assert store.append(message(3)).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert (tmp_path / "abort").exists(), "the folder must not say that it was stopped cleanly"


@pytest.mark.parametrize("how", ["goes on", "is closed"])
async def test_a_refusal_is_known_when_nobody_waits_for_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    disk = RefusesOnce(monkeypatch)
    async with small(tmp_path) as store:
        result = store.append(message())
        sure = asyncio.create_task(store.secure(store.end_offset))
        await disk.busy()
        sure.cancel()
        disk.go_on.set()
        await asyncio.gather(sure, return_exceptions=True)
        if how == "goes on":
            with pytest.raises(StoreError, match="refused the commit log"):
                await store.secure(result.end_offset)
            assert store.append(message(1)).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.flushed.value == 0
    assert (tmp_path / "abort").exists()


async def test_the_checkpoint_follows_what_is_on_disk(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    often = {"flush_interval_commit_log": 5, "flush_interval_consume_queue": 5, "flush_commit_log_least_pages": 0}
    async with small(tmp_path, flush_consume_queue_thorough_interval=5, **often) as store:
        times = store.append(message(1)).store_timestamp.to_bytes(8, "big") * 2
        await until_async(lambda: checkpoint.exists() and checkpoint.read_bytes()[:16] == times)


async def test_a_busy_log_is_prepared_ahead_and_an_idle_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commitlog_module, "AHEAD", 512 << 10)
    monkeypatch.setattr(commitlog_module, "_BUSY", 256 << 10)
    folder = tmp_path / "commitlog"

    async with small(tmp_path) as store:
        store.append(message(size=1000))
        await asyncio.sleep(0.05)
        assert folder.joinpath(f"{0:020d}").stat().st_blocks * 512 <= 128 << 10
        for _ in range(100):
            for number in range(8):
                store.append(message(number, size=1000))
            await asyncio.sleep(0.001)
        await until_async(lambda: len(list(folder.iterdir())) == 2)
        assert store.end_offset < 1 << 20
        for number in range(400):
            store.append(message(number, size=1000))
        assert store.end_offset > 1 << 20
        await asyncio.sleep(0)
    # Preallocated but unused files are removed.
    assert len(list(folder.iterdir())) == -(-store.end_offset // (1 << 20))


async def test_stopping_right_after_puts_loses_nothing(tmp_path: Path) -> None:
    for count in (0, 300, 600):
        async with small(tmp_path) as store:
            assert store.report.clean
            assert store.max_offset("T", 0) == count
            for number in range(300):
                store.append(message(number))


class Descriptors:
    """Removes the descriptors that the sync of a directory needs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = True
        self._open = directories.open_file
        monkeypatch.setattr(directories, "open_file", self.open)

    def open(self, path: Path, flags: int) -> int:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return self._open(path, flags)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_flush_without_descriptors_is_done_when_there_are_some_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tianzhou.store.log.flush.RETRY_S", 0.02)
    descriptors = Descriptors(monkeypatch)

    store = small(
        tmp_path, flush_disk_type=flush, flush_commit_log_thorough_interval=20, flush_interval_commit_log=10,
        flush_interval_consume_queue=20, flush_consume_queue_thorough_interval=20, sync_flush_timeout=100,
    )  # fmt: skip
    async with store:
        descriptors.left = False
        result = store.append(message())
        assert result.status is PutStatus.PUT_OK
        waited = await store.settle(result)
        assert waited is (PutStatus.FLUSH_DISK_TIMEOUT if flush == "SYNC_FLUSH" else PutStatus.PUT_OK)
        await until_async(lambda: "flushing the commit log" in store.supervisor.troubles)
        assert RunningFlag.NOT_WRITABLE not in store.flags.bits
        assert store.flushed.value < result.end_offset
        descriptors.left = True
        await until_async(lambda: store.flushed.value >= result.end_offset)
        await until_async(lambda: not store.supervisor.troubles.present() and not StoreProbe(store).dispatcher.dirty)
        assert store.append(message(1)).status is PutStatus.PUT_OK
    assert store.unclean == ""
    async with MessageStore(store.settings) as again:
        assert again.report.clean
    assert "flushing the commit log works again" in caplog.text


async def test_a_stop_without_descriptors_is_not_a_clean_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.store.log.flush.RETRY_S", 0.001)
    descriptors = Descriptors(monkeypatch)

    async with small(tmp_path) as store:
        descriptors.left = False
        store.append(message())
        await asyncio.sleep(0)
    assert "not everything is on the disk" in store.unclean or "the disk refused" in store.unclean
    descriptors.left = True
    async with small(tmp_path) as again:
        assert not again.report.clean
        assert read_now(again, "T", 0, 0, 32).status is GetStatus.FOUND


async def test_a_record_no_queue_takes_refuses_puts_loudly_instead_of_hiding_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tianzhou.store.dispatch.dispatch._RETRY_SECONDS", 0.02)

    def refuse(*_: object) -> int:
        raise ValueError("no such unit")

    async with small(tmp_path) as store:
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr("tianzhou.store.dispatch.dispatch.fill", refuse)
            assert store.append(message()).status is PutStatus.PUT_OK
            await until_async(lambda: not store.writable)
            refused = store.append(message(1))
            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "no such unit" in refused.remark
        await until_async(lambda: store.writable)
        assert store.append(message(2)).status is PutStatus.PUT_OK
    assert "filling the queues failed" in caplog.text


async def test_what_was_prepared_for_a_log_that_was_cut_meanwhile_is_prepared_again(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        first_end = store.append(message()).end_offset
        for number in range(200):
            store.append(message(number, size=1000))
        log = StoreProbe(store).log
        job = log.next_reservation()
        assert job is not None
        segment, start, end = job
        assert segment is not None
        segment.reserve_range(start, end)
        log.resume(first_end)  # frees the disk space after its end
        log.prepared(segment, start, end)
        assert log.next_reservation() == (segment, first_end, end)
