"""Records that dispatch cannot handle: left out after a few tries, so that the records behind them are dispatched."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from small_store import small_store

from store_reads import read_now
from tianzhou.store import NewRecord
from tianzhou.store.flags import RunningFlag
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.testing.clock import VirtualClock, run

pytestmark = pytest.mark.runner.with_args(run)
ODD = "Odd"


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[int]:
    """Have units of the odd topic fail while the list is empty."""
    put, healed = ConsumeQueue.put, list[int]()

    def fails(self: ConsumeQueue, *args: Any) -> bool:
        if self.topic == ODD and not healed:
            raise error
        return put(self, *args)

    monkeypatch.setattr(ConsumeQueue, "put", fails)
    return healed


async def test_a_record_that_fails_because_of_itself_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(monkeypatch, ValueError("no unit can have this"))
    async with small_store(tmp_path, VirtualClock()) as store:
        store.append(NewRecord(ODD, 0, b"odd", b""))
        store.append(NewRecord("T", 0, b"even", b""))
        await asyncio.sleep(5)
        assert read_now(store, "T", 0, 0, 1).count == 1
        assert store.max_offset(ODD, 0) == 0
        assert not store.flags.bits & RunningFlag.QUEUE_ERROR
        store.append(NewRecord("T", 0, b"next", b""))
        await asyncio.sleep(0.1)
        assert read_now(store, "T", 0, 0, 2).count == 2
    assert sum("no unit can have this" in line and "Odd/0" in line for line in caplog.messages) == 1


async def test_a_disk_that_refuses_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healed = refuse(monkeypatch, OSError(errno.ENOSPC, "no space"))
    async with small_store(tmp_path, VirtualClock()) as store:
        store.append(NewRecord(ODD, 0, b"odd", b""))
        store.append(NewRecord("T", 0, b"even", b""))
        await asyncio.sleep(20)
        assert read_now(store, "T", 0, 0, 1).count == 0
        healed.append(1)
        await asyncio.sleep(2)
        assert [read_now(store, topic, 0, 0, 1).count for topic in (ODD, "T")] == [1, 1]
