"""A node of a group of three, with peers simulated by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from group_of_one import group_store

from tianzhou.broker.server import free_port_pair
from tianzhou.clock import SystemClock
from tianzhou.replication.group_node import GroupNode
from tianzhou.store import MessageStore
from tianzhou.supervision import Supervisor

HOST = bytes([1, 2, 3, 4])


@asynccontextmanager
async def node(folder: Path, **changes: Any) -> AsyncIterator[tuple[GroupNode, str, Supervisor]]:
    """Yield a node whose two peers are down, its address, and its supervisor."""
    ports = [free_port_pair("127.0.0.1") for _ in range(3)]
    peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
    supervisor = Supervisor("group")
    store: MessageStore
    async with group_store(folder, d_leger_peers=peers, **changes) as store:
        one = GroupNode(store, SystemClock(), "127.0.0.1", "127.0.0.1:1")
        async with one:
            supervisor.own("group", one.run)
            try:
                yield one, f"127.0.0.1:{ports[0]}", supervisor
            finally:
                await supervisor.end()
