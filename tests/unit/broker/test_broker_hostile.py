"""Every request code with hostile values in every field, against handlers without sockets: no request breaks the
broker.

The quick twin of tests/fault/hostile_peers/test_hostile_requests.py, which sends the same to processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
from dataclasses import replace
from pathlib import Path

import hostile
import pytest
from broker_bench import Bench, OpenBench

from tianzhou.broker.server import make_tables
from tianzhou.broker.state_files import StateFiles
from tianzhou.errors import TianzhouError
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import HOT_CODES

SEED = 20_301
FAMILIES = {
    "data": range(10, 17), "offsets and topics": range(17, 46), "others": range(46, 200), "groups": range(200, 210),
    "tools": range(210, 309), "newer": range(309, 1000), "newest": range(1000, 300_000),
}  # fmt: skip


async def attack(bench: Bench, code: int, outside: str, folder: Path) -> int:
    """Send all hostile requests of a code; return the number of replies."""
    peer, answered = bench.peer(), 0
    for request in hostile.requests(code, outside, SEED):
        if not hostile.small(request):
            continue
        if peer.transport.is_closing():
            peer = bench.peer()
        opaque = peer.next_opaque()
        peer.post_frame(request.frame(opaque))
        for _ in range(20):
            reply = peer.peek(opaque)
            if reply is not None:
                answered += 1
                if code in hostile.BODIES and reply.code == 0:
                    state_has_a_form(bench, folder, request.what)
                break
            await asyncio.sleep(0.001)
    peer.connection.close()
    return answered


@pytest.mark.parametrize("family", FAMILIES)
async def test_no_request_breaks_a_broker(
    broker: OpenBench, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (tmp_path / "config").mkdir()
    # Every state file is written, and no power failure is simulated, so skip fsync.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    async with broker() as bench:
        assert (await bench.peer().send("kept", b"kept")).code == 0
        for code in RequestCode:
            if code not in FAMILIES[family] or code not in bench.parts.router.codes:
                continue
            answered = await attack(bench, code, str(outside), tmp_path / "config")
            assert answered > 10, code
            state_can_be_written_and_read(bench, tmp_path / "config", code)
            assert [record.body for record in bench.records("kept")][:1] == [b"kept"], code
            assert (await bench.peer().send("kept", b"more")).code == 0
            errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert errors == [], code
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config", "outside", "store"]
    assert [path.name for path in outside.iterdir()] == ["precious"]


def state_has_a_form(bench: Bench, folder: Path, what: str) -> None:
    """Check that the tables can still be written after the request."""
    try:
        StateFiles(bench.tables, folder).close()
    except Exception as error:
        raise AssertionError(f"after {what}: {error}") from error


def state_can_be_written_and_read(bench: Bench, folder: Path, code: RequestCode) -> None:
    """Check that all tables can be written to the disk and read by the next start."""
    try:
        StateFiles(bench.tables, folder).close()
        tables = make_tables(replace(bench.settings), bench.store_settings, 0)
        StateFiles(tables, folder).load()
    except Exception as error:
        raise AssertionError(f"after {code.name}: {error}") from error
    assert tables.topics.all().keys() == bench.tables.topics.all().keys()
    assert tables.groups.all().keys() == bench.tables.groups.all().keys()


def test_every_code_belongs_to_a_family() -> None:
    assert all(any(code in family for family in FAMILIES.values()) for code in RequestCode)
    assert set(RequestCode) >= HOT_CODES


async def test_who_reads_a_body_gets_hostile_ones_of_its_kind(bench: Bench) -> None:
    connection = bench.peer().connection
    readers = set()
    for code in sorted(bench.parts.router.codes):
        request = hostile.Watched(Command(code, 1, fields=hostile.usual_fields(code), body=b"{}"))
        with contextlib.suppress(TianzhouError):
            reply = bench.parts.router.handler(code)(connection, request)
            if inspect.isawaitable(reply):
                async with asyncio.timeout(1):
                    await reply
        if request.read:
            readers.add(code)
    assert readers - HOT_CODES <= hostile.BODIES.keys() | hostile.TEXTS.keys(), "give tests/fault/hostile.py examples"
    assert {34, 41, 200} <= readers
