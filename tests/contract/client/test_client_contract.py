"""Our client against our own servers, both in this process and on one event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from client_suite import CHECKS, Check
from consumer_suite import CHECKS as CONSUMER_CHECKS
from own_server import OwnServer
from positions_suite import CHECKS as POSITION_CHECKS

from shared_loop import SharedLoop


@pytest.fixture(scope="module")
def server(shared_loop: SharedLoop, tmp_path_factory: pytest.TempPathFactory) -> OwnServer:
    """Start a name server and a broker."""
    return shared_loop.open(OwnServer(tmp_path_factory.mktemp("server")))


@pytest.fixture(scope="module")
def server_with_slave(shared_loop: SharedLoop, tmp_path_factory: pytest.TempPathFactory) -> OwnServer:
    """Start a name server, a SYNC_MASTER and its slave."""
    return shared_loop.open(OwnServer(tmp_path_factory.mktemp("server"), slave=True))


@pytest.mark.parametrize("check", [*CHECKS, *CONSUMER_CHECKS, *POSITION_CHECKS], ids=lambda check: check.__name__)
async def test_client_with_our_server(check: Check, server: OwnServer, tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        await check(server.address, tmp_path / "client")


@pytest.mark.parametrize("check", [*CHECKS, *CONSUMER_CHECKS, *POSITION_CHECKS], ids=lambda check: check.__name__)
async def test_client_with_our_server_and_its_slave(check: Check, server_with_slave: OwnServer, tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        await check(server_with_slave.address, tmp_path / "client")
        await server_with_slave.check_slave()
