"""kill -9 of a consumer with `@once` at a random step, with three databases: each amount is booked exactly once.

Each life of the consumer draws its kind of connection, lists or single messages, in order or not.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from killed_broker import KilledBroker
from once_child import STEPS, connect_to
from once_kinds import run_statement
from processes import Tianzhou

from tianzhou import Message, Producer
from tianzhou.admin import Admin
from waiting import WITHIN_S, until_async

TOPIC, GROUP = "Amounts", "bank"
QUEUES = 2
SPARES = 2
"""Messages of a round beyond the one at which the process dies."""
CHILD = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import once_child; once_child.main()"
WAYS = ("driver", "Engine", "AsyncEngine")
"""The connections of a consumer. SQLAlchemy takes longer to import than the rest of a round."""
TABLES = (
    "CREATE TABLE ledger (message VARCHAR(40), amount INTEGER)",
    "CREATE TABLE balance (total BIGINT)",
    "INSERT INTO balance VALUES (0)",
)


class Bank(KilledBroker):
    """A broker that stays up, and consumers that are killed.

    Args:
        folder: folder of all files.
        seed: seed of every choice.
        database: database of the booked amounts, see `once_child.connect_to`.
    """

    def __init__(self, folder: Path, seed: int, database: dict[str, Any]) -> None:
        super().__init__(folder, seed)
        self._database = database
        self._connect = connect_to(database)
        self.sent: dict[str, int] = {}
        self.deaths: Counter[str] = Counter()
        self._steps: list[str] = []
        for statement in TABLES:
            self.query(statement)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return run_statement(self._connect(), sql)

    async def run(self, rounds: int) -> None:
        async with self.killed(0, QUEUES, TOPIC):
            with self.start():
                async with Producer("P", self.namesrv) as producer:
                    for number in range(rounds):
                        await self.one_round(producer, number)
                await self.finish()

    async def one_round(self, producer: Producer, number: int) -> None:
        """Send some messages, and have a consumer die at one of them."""
        after = self.rng.randrange(4)
        for index in range(after + 1 + SPARES):
            amount = self.rng.randint(1, 1_000)
            key = f"{number}.{index}"
            await producer.send(Message(TOPIC, b"%d" % amount, keys=[key]))
            self.sent[key] = amount
        if not self._steps:  # four rounds in a row have each step
            self._steps = self.rng.sample(STEPS, len(STEPS))
        step = self._steps.pop()
        with self.child(step, after) as child:
            await until_async(lambda: child.process.poll() is not None, f"round {number}: death {step}, {child.err}")
            assert child.process.poll() == -signal.SIGKILL, child.err
        self.deaths[step] += 1

    def child(self, step: str = "", after: int = 0) -> Tianzhou:
        """Start a consumer."""
        spec = {
            "namesrv": self.namesrv,
            "topic": TOPIC,
            "group": GROUP,
            "database": self._database,
            "step": step,
            "after": after,
            "way": self.rng.choices(WAYS, [0.7, 0.15, 0.15])[0],
            "orderly": self.rng.random() < 0.3,
            "batch": self.rng.choice([1, 1, 4]),
            "persist_ms": self.rng.choice([20, 5_000]),
        }
        return Tianzhou(self.folder, json.dumps(spec), program=CHILD)

    async def finish(self) -> None:
        """Have a consumer that lives acknowledge all messages."""
        with self.child() as child:
            async with Admin(self.namesrv) as admin:

                async def consumed() -> bool:
                    assert child.process.poll() is None, child.err
                    return (await admin.groups.lag(GROUP, TOPIC)).total == 0

                await until_async(consumed, "the rest is consumed", within_s=2 * WITHIN_S)


def rounds_of(folder: Path, database: dict[str, Any], rounds: int, seed: int) -> None:
    bank = Bank(folder, seed, database)
    began_s = time.monotonic()
    asyncio.run(bank.run(rounds))
    booked = bank.query("SELECT message, amount FROM ledger")
    [[total]] = bank.query("SELECT total FROM balance")
    [[ids]] = bank.query("SELECT count(*) FROM processed_messages")
    print(
        f"{database['kind']}, seed {seed}: {rounds} kills {dict(bank.deaths)}, {len(bank.sent)} messages sent, "
        f"{len(booked)} booked, sum {sum(bank.sent.values())} sent, {total} booked, {time.monotonic() - began_s:.0f} s"
    )
    assert [message for message, count in Counter(message for message, _ in booked).items() if count > 1] == []
    assert dict(booked) == bank.sent
    assert total == sum(bank.sent.values())
    assert ids == len(bank.sent)


def drawn_seed() -> int:
    return int(os.environ.get("TIANZHOU_SEED") or random.SystemRandom().randrange(1 << 30))


def test_each_message_is_booked_once_whatever_kill_9_does(tmp_path: Path) -> None:
    rounds_of(tmp_path, {"kind": "sqlite", "path": str(tmp_path / "bank.db")}, 4, 1)


@contextmanager
def server(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Start a database; skip the test where it is not installed."""
    if kind == "sqlite":
        yield {"kind": kind, "path": str(folder / "bank.db")}
        return
    made: Any
    if kind == "postgresql":
        postgres_server = pytest.importorskip("postgres_server")
        if postgres_server.PROGRAMS is None:
            pytest.skip("no PostgreSQL: apt-get install postgresql")
        made = postgres_server.PostgreSQL()
    else:
        mariadb_server = pytest.importorskip("mariadb_server")
        if not mariadb_server.SERVER:
            pytest.skip("no MariaDB: apt-get install mariadb-server")
        (folder / "mariadb").mkdir()
        made = mariadb_server.MariaDB(folder / "mariadb")
    try:
        yield {"kind": kind, "port": made.port}
    finally:
        made.stop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_each_message_is_booked_once_in_200_rounds(kind: str, tmp_path: Path) -> None:
    rounds = int(os.environ.get("TIANZHOU_ROUNDS", "200"))
    with server(kind, tmp_path) as database:
        rounds_of(tmp_path, database, rounds, drawn_seed())
