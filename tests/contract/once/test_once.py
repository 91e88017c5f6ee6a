"""The checks of `@once` with each kind of connection to SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from once_kinds import Kind, insert, message
from once_suite import CHECKS
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

NAMES = ["sqlite3", "Engine", "AsyncEngine"]


def kind_of(name: str, path: Path, timeout_s: float) -> Kind:
    """Return a kind of connection to an SQLite file.

    Args:
        name: one of `NAMES`.
        path: the file.
        timeout_s: seconds for which the connections wait for a lock.
    """

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=timeout_s)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    timeout = {"timeout": timeout_s}
    kinds: dict[str, Callable[[], Kind]] = {
        "sqlite3": lambda: Kind(connect, lambda: lambda: sqlite3.connect(path, isolation_level=None)),
        "Engine": lambda: Kind(
            connect,
            lambda: create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT"),
            lambda: create_engine(f"sqlite:///{path}", connect_args=timeout),
        ),
        "AsyncEngine": lambda: Kind(
            connect,
            lambda: create_async_engine(f"sqlite+aiosqlite:///{path}", isolation_level="AUTOCOMMIT"),
            lambda: create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args=timeout),
            is_async=True,
        ),
    }
    return kinds[name]()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_once_with_sqlite(check: Callable[[Kind], None], name: str, tmp_path: Path) -> None:
    kind = kind_of(name, tmp_path / "shop.db", 30)
    check(kind)
    kind.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_commit_that_fails_rolls_both_back(name: str, tmp_path: Path) -> None:
    kind = kind_of(name, tmp_path / "shop.db", 0.05)
    handler = kind.handler(lambda one, do, _: insert(one, do))
    kind.call(handler, message("first"))
    reader = kind.connect()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM work").fetchall()  # a reader allows inserts and no COMMIT
    with pytest.raises(Exception, match="database is locked"):
        kind.call(handler, message("A"))
    reader.close()
    assert (kind.done(), kind.count_ids()) == (["first"], 1)
    kind.call(handler, message("A"))
    assert (kind.done(), kind.count_ids()) == (["A", "first"], 2)
    kind.close()
