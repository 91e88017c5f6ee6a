"""A master's store and its slave's, joined by the HA port."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from small_store import small_store

from store_reads import read_now
from tianzhou.clock import SystemClock
from tianzhou.replication.ha_client import SlaveHaClient
from tianzhou.replication.ha_server import HaServer
from tianzhou.replication.port_protection import UNPROTECTED, PortProtection
from tianzhou.store import MessageStore, NewRecord
from tianzhou.supervision import Supervisor
from waiting import until_async

SEGMENT = 16 << 10


def store_of(folder: Path, role: str, **more: object) -> MessageStore:
    sizes = {"mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": 4000, "max_index_num": 4000}
    return small_store(folder, broker_role=role, **({"ha_send_heartbeat_interval": 200} | sizes | more))


@asynccontextmanager
async def master(
    folder: Path, protection: PortProtection = UNPROTECTED, **more: object
) -> AsyncIterator[tuple[MessageStore, HaServer]]:
    async with (
        store_of(folder, "ASYNC_MASTER", **more) as store,
        HaServer(store, SystemClock(), "127.0.0.1", 0, protection) as server,
    ):
        yield store, server


@asynccontextmanager
async def slave(
    folder: Path, server: HaServer, tls: ssl.SSLContext | None = None, port: int = 0, **more: object
) -> AsyncIterator[MessageStore]:
    """Run a slave of a master, through another port if one is given."""
    supervisor = Supervisor("slave")
    async with store_of(folder, "SLAVE", **more) as store:
        client = SlaveHaClient(store, SystemClock(), lambda: f"127.0.0.1:{port or server.port}", tls=tls)
        supervisor.own("copying", lambda: client.run(supervisor))
        try:
            yield store
        finally:
            await supervisor.end()


def put(store: MessageStore, count: int, first: int = 0) -> None:
    for i in range(first, first + count):
        store.append(NewRecord("T", i % 3, b"body %d" % i * (i % 50 + 1), b"KEYS\x01k%d\x02" % i, keys=f"k{i}"))


def bodies(store: MessageStore) -> list[list[bytes]]:
    found = []
    for queue in range(3):
        parts: list[bytes] = []
        while len(parts) < store.max_offset("T", queue):
            parts += map(bytes, read_now(store, "T", queue, len(parts), 100).parts)
        found.append(parts)
    return found


def log_of(folder: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "commitlog").iterdir()))[:end]


async def caught_up(store: MessageStore, behind: MessageStore) -> None:
    await until_async(lambda: behind.end_offset == store.end_offset and not behind.dispatch_behind_bytes, "copied")
    await until_async(lambda: behind.copy.whole == store.end_offset, "dispatched")


async def followed(folder: Path, server: HaServer, until: Callable[[MessageStore], bool], what: str) -> list[int]:
    """Run a slave, which is reopened whenever it requests that, until a condition is true; return the log's end at each
    opening.
    """
    ends: list[int] = []
    while not await followed_once(folder, server, until, what, ends):
        pass
    return ends


async def followed_once(
    folder: Path, server: HaServer, until: Callable[[MessageStore], bool], what: str, ends: list[int]
) -> bool:
    supervisor, again = Supervisor("slave"), asyncio.Event()
    async with store_of(folder, "SLAVE") as store:
        ends.append(store.end_offset)
        client = SlaveHaClient(store, SystemClock(), lambda: f"127.0.0.1:{server.port}", again.set)
        supervisor.own("copying", lambda: client.run(supervisor))
        try:
            await until_async(lambda: again.is_set() or until(store), what)
        finally:
            await supervisor.end()
        return not again.is_set()


@asynccontextmanager
async def halting_slave(
    folder: Path, server: HaServer, config_file: str = "", **more: object
) -> AsyncIterator[tuple[MessageStore, SlaveHaClient, asyncio.Event]]:
    """Run a slave with `durability=zero-loss`; yield its store, its client, and the event with which it requests to be
    reopened.
    """
    supervisor, again = Supervisor("slave"), asyncio.Event()
    async with store_of(folder, "SLAVE", **({"durability": "zero-loss"} | more)) as store:
        address = lambda: f"127.0.0.1:{server.port}"  # noqa: E731
        client = SlaveHaClient(store, SystemClock(), address, again.set, config_file=config_file)
        supervisor.own("copying", lambda: client.run(supervisor))
        try:
            yield store, client, again
        finally:
            await supervisor.end()
