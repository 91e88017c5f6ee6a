"""`@once` with a real Redis as its cache, which is killed while messages come."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from once_kinds import Kind, insert, message
from once_suite import LogLines

from tianzhou.client import RedisIds
from waiting import until

redis = pytest.importorskip("redis")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a redis-server that listens on a socket file of the test."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not on the path (Debian: apt-get install redis-server)")
    words = [
        "--port",
        "0",
        "--unixsocket",
        f"{tmp_path}/redis",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(tmp_path),
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([binary, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until((tmp_path / "redis").exists, "the socket of redis-server")
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_redis_answers_first_and_may_go_away(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    kind = Kind(lambda: sqlite3.connect(tmp_path / "shop.db"), lambda: None)
    ids = kind.store()
    cache = RedisIds(f"unix://{tmp_path}/redis")
    handler = kind.handler(lambda one, do, _: insert(one, do), ids, cache=cache)
    kind.call(handler, message("A"))
    kind.query(f"ALTER TABLE {kind.table} RENAME TO elsewhere")
    assert kind.call(handler, message("A")) is None  # the cache knows, and the database is not asked
    kind.query(f"ALTER TABLE elsewhere RENAME TO {kind.table}")
    server.kill()
    server.wait(10)
    with LogLines("tianzhou.client.consumer.once.first_cache") as lines:
        for key in "ABBAC":
            kind.call(handler, message(key))
    assert kind.done() == ["A", "B", "C"]
    assert len(lines) == 1
    assert "the cache of @once (RedisIds) failed" in lines[0]
    assert "the database decides alone" in lines[0]
    kind.close()
