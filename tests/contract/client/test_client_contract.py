"""Our client against our own server, both in this process and in one event loop."""

import asyncio

import pytest
from client_suite import CHECKS
from consumer_suite import CHECKS as CONSUMER_CHECKS
from own_server import own_server


@pytest.mark.parametrize("check", [*CHECKS, *CONSUMER_CHECKS], ids=lambda check: check.__name__)
async def test_client_with_our_server(check, tmp_path):
    async with asyncio.timeout(120), own_server(tmp_path) as namesrv:
        await check(namesrv, tmp_path / "client")


@pytest.mark.parametrize("check", [*CHECKS, *CONSUMER_CHECKS], ids=lambda check: check.__name__)
async def test_client_with_our_server_and_its_slave(check, tmp_path):
    async with asyncio.timeout(120), own_server(tmp_path, slave=True) as namesrv:
        await check(namesrv, tmp_path / "client")
