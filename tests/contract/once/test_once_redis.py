"""`@once` with a real Redis as its cache, which is killed while messages arrive."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from once_kinds import Kind, insert, message
from once_suite import LogLines
from redis_server import RedisServer

from tianzhou.client import RedisIds


def test_redis_answers_first_and_may_go_away(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        kind = Kind(lambda: sqlite3.connect(tmp_path / "shop.db"), lambda: None)
        ids = kind.store()
        cache = RedisIds(server.url)
        handler = kind.handler(lambda one, do, _: insert(one, do), ids, cache=cache)
        kind.call(handler, message("A"))
        kind.query(f"ALTER TABLE {kind.table} RENAME TO elsewhere")
        assert kind.call(handler, message("A")) is None  # the cache has it, so the database is not queried
        kind.query(f"ALTER TABLE elsewhere RENAME TO {kind.table}")
        server.kill()
        with LogLines("tianzhou.client.consumer.once.first_cache") as lines:
            for key in "ABBAC":
                kind.call(handler, message(key))
        assert kind.done() == ["A", "B", "C"]
        assert len(lines) == 1
        assert "the cache of @once (RedisIds) failed" in lines[0]
        assert "the database decides alone" in lines[0]
        kind.close()
