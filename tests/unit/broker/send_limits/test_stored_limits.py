"""Limits of senders on the disk: over restarts, with a damaged file, and without any limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tianzhou.broker.send_limits.table import SendLimitTable
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import Tables, make_tables
from tianzhou.broker.state_files import StateFiles
from tianzhou.damaged_files import accept_lost_state
from tianzhou.errors import StateLost
from tianzhou.model.send_limit import LimitScope, limit_of
from tianzhou.store.settings import StoreSettings
from tianzhou.testing.clock import run

pytestmark = pytest.mark.runner.with_args(run)
NAME = "sendLimits.json"
LIMITS = [
    limit_of(LimitScope.TOPIC, "orders", 500, 1_000), limit_of(LimitScope.GROUP, "*", 0.5, 2, 1e6),
    limit_of(LimitScope.CLIENT, "::1", None, None, 1e6),
]  # fmt: skip


@asynccontextmanager
async def tables(folder: Path) -> AsyncIterator[tuple[Tables, StateFiles]]:
    """Tables of a broker with their files, from start to stop."""
    found = make_tables(BrokerSettings(), StoreSettings(), 0)
    files = StateFiles(found, folder)
    files.load()
    writing = asyncio.ensure_future(files.run())
    try:
        yield found, files
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        files.close()


def texts(table: SendLimitTable) -> list[str]:
    return [f"{limit}: {limit.text}" for limit in table.all().values()]


async def test_limits_outlive_a_stop_and_a_death(tmp_path: Path) -> None:
    async with tables(tmp_path) as (found, files):
        found.send_limits.put(LIMITS)
        await files.settled()
        killed = (tmp_path / NAME).read_bytes()
    assert (tmp_path / NAME).read_bytes() == killed
    async with tables(tmp_path) as (found, files):
        assert texts(found.send_limits) == [
            "topic orders: 500 messages/s (burst 1000)",
            "group *: 0.5 messages/s (burst 2) and 1000000 bytes/s (burst 1000000)",
            "client ::1: 1000000 bytes/s (burst 1000000)",
        ]
        found.send_limits.delete(limit.key for limit in LIMITS)
        await files.settled()
    async with tables(tmp_path) as (found, _):
        assert len(found.send_limits) == 0


async def test_a_broker_without_limits_has_no_file(tmp_path: Path) -> None:
    async with tables(tmp_path):
        pass
    assert not (tmp_path / NAME).exists()
    assert (tmp_path / "topics.json").exists()


@pytest.mark.parametrize(
    "damage",
    [b"", bytes(100), b'{"sendLimitTable":', b"{}", b'{"sendLimitTable":{"topic:orders":{"rate":"x"}}}'],
    ids=["empty", "NUL bytes", "cut", "no table", "no number"],
)
async def test_a_damaged_file_gives_way_to_its_backup(
    damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for limits in (LIMITS[:1], LIMITS):
        async with tables(tmp_path) as (found, files):
            found.send_limits.put(limits)
            await files.settled()
    (tmp_path / NAME).write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        async with tables(tmp_path) as (found, _):
            assert texts(found.send_limits) == ["topic orders: 500 messages/s (burst 1000)"]
    assert NAME in caplog.text
    assert len(list(tmp_path.glob(f"{NAME}.damaged-*"))) == 1


@pytest.mark.parametrize("damage", [None, b""], ids=["gone", "empty"])
async def test_lost_limits_stop_the_start(damage: bytes | None, tmp_path: Path) -> None:
    async with tables(tmp_path) as (found, files):
        found.send_limits.put(LIMITS)
        await files.settled()
    for path in (tmp_path / NAME, tmp_path / f"{NAME}.bak"):
        path.unlink(missing_ok=True)
        if damage is not None:
            path.write_bytes(damage)
    with pytest.raises(StateLost, match=NAME):
        async with tables(tmp_path):
            pass
    accept_lost_state(tmp_path)
    async with tables(tmp_path) as (found, _):
        assert len(found.send_limits) == 0
