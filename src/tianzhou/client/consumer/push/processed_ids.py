"""Persistent stores of processed ids, for `tianzhou.client.consumer.push.idempotence`."""

from __future__ import annotations

import sqlite3
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from tianzhou.client.consumer.push.idempotence import Claim
from tianzhou.errors import ConfigError

PURGE_EVERY = 1_000
BUSY_TIMEOUT_S = 10.0
REDIS_TIMEOUT_S = 5.0
"""Seconds that a call waits for a Redis that does not answer."""
_TABLE = "CREATE TABLE IF NOT EXISTS processed(id TEXT PRIMARY KEY, done INTEGER NOT NULL, until_ms INTEGER NOT NULL)"
_INDEX = "CREATE INDEX IF NOT EXISTS processed_until ON processed(until_ms)"
_CLAIM = (
    "INSERT INTO processed(id, done, until_ms) VALUES(?, 0, ?) ON CONFLICT(id) DO UPDATE SET "
    "done = 0, until_ms = excluded.until_ms WHERE processed.until_ms <= ?"
)
_FINISH = "INSERT OR REPLACE INTO processed(id, done, until_ms) VALUES(?, 1, ?)"
_RUNNING, _DONE = b"r", b"d"


class SqliteIds:
    """Ids in an SQLite file, which the processes of one machine may share.

    Args:
        path: the file; it is created when it is missing.
        durable: whether each change survives a power failure, at the cost of a sync of the disk. Otherwise a power
            failure may lose the last changes, but the end of a process cannot.

    Raises:
        ConfigError: the file cannot be used.
    """

    blocking = True

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        self._lock = threading.Lock()
        self._claims = 0
        try:
            self._database = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._database.execute(_TABLE)
            self._database.execute(_INDEX)
        except sqlite3.Error as error:
            raise ConfigError(
                f"SqliteIds: {path} cannot be used ({error}); give a file in a folder that can be written"
            ) from error

    def claim(self, key: str, now_ms: int, claim_ms: int) -> Claim:
        """See `ProcessedIds.claim`."""
        with self._lock:
            self._claims += 1
            if self._claims % PURGE_EVERY == 0:
                self._database.execute("DELETE FROM processed WHERE until_ms <= ?", (now_ms,))
            if self._database.execute(_CLAIM, (key, now_ms + claim_ms, now_ms)).rowcount == 1:
                return Claim.GRANTED
            row = self._database.execute("SELECT done FROM processed WHERE id = ?", (key,)).fetchone()
            return Claim.DONE if row is not None and row[0] else Claim.RUNNING

    def finish(self, key: str, now_ms: int, window_ms: int) -> None:
        """See `ProcessedIds.finish`."""
        with self._lock:
            self._database.execute(_FINISH, (key, now_ms + window_ms))

    def release(self, key: str) -> None:
        """See `ProcessedIds.release`."""
        with self._lock:
            self._database.execute("DELETE FROM processed WHERE id = ? AND done = 0", (key,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


class RedisIds:
    """Ids in Redis, which the processes of many machines may share. Redis deletes expired ids.

    Redis itself has to persist its data (`appendonly yes`) and must not evict keys (`maxmemory-policy noeviction`): an
    id that it loses is processed again.

    Args:
        client: a URL, as in `redis://localhost:6379/0`, or a client of the redis package.
        prefix: prefix of each key.

    Raises:
        ConfigError: a URL was given and the redis package is not installed.
    """

    blocking = True

    def __init__(self, client: str | Any, *, prefix: str = "tianzhou:processed:") -> None:
        if isinstance(client, str):
            try:
                redis = import_module("redis")
            except ImportError as error:
                raise ConfigError(
                    "RedisIds needs the redis package, which is not installed: pip install tianzhou[redis]"
                ) from error
            # Before redis 8 the client waits for ever by default. Options in the URL override these timeouts.
            limit_s = REDIS_TIMEOUT_S
            client = redis.Redis.from_url(client, socket_timeout=limit_s, socket_connect_timeout=limit_s)
        self._client = client
        self._prefix = prefix

    def claim(self, key: str, now_ms: int, claim_ms: int) -> Claim:
        """See `ProcessedIds.claim`; Redis uses its own clock."""
        name = self._prefix + key
        for _ in range(2):  # an id that expires between the two requests can be claimed in the second round
            if self._client.set(name, _RUNNING, nx=True, px=claim_ms):
                return Claim.GRANTED
            known = self._client.get(name)
            if known is not None:
                return Claim.DONE if known in {_DONE, _DONE.decode()} else Claim.RUNNING
        return Claim.RUNNING

    def finish(self, key: str, now_ms: int, window_ms: int) -> None:
        """See `ProcessedIds.finish`."""
        self._client.set(self._prefix + key, _DONE, px=window_ms)

    def release(self, key: str) -> None:
        """See `ProcessedIds.release`."""
        self._client.delete(self._prefix + key)
