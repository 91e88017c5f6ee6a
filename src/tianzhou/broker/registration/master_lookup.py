"""Look-up of the brokers of a name at name servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from tianzhou.errors import TianzhouError
from tianzhou.model.names import MASTER_ID
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

LIMIT_MS: Final = 1_000
"""Timeout of a request, ms."""


async def registered_broker(client: RemotingClient, server: str, broker_name: str, broker_id: int = MASTER_ID) -> str:
    """Return the address that a name server has for a broker's name and id; empty when it has none.

    It requests the route of the topic with the broker's name, which every broker has, so the answer has one broker.

    Args:
        client: client for requests to the name server.
        server: address of the name server.
        broker_name: name of the broker.
        broker_id: id of the broker, by default that of the master.

    Raises:
        TianzhouError: the name server does not answer.
    """
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    reply = await client.invoke(server, Command(code, fields=write_header(code, topic=broker_name)), LIMIT_MS)
    if reply.code != ResponseCode.SUCCESS:
        return ""
    found = (one for one in ROUTE.loads(reply.body).broker_datas if one.broker_name == broker_name)
    return next((one.broker_addrs.get(broker_id, "") for one in found), "")


async def answers(client: RemotingClient, address: str) -> bool:
    """Return whether a broker answers a request, even with an error."""
    try:
        await client.invoke(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), LIMIT_MS)
    except TianzhouError:
        return False
    return True


async def living_master(
    client: RemotingClient, servers: Iterable[str], broker_name: str, own_address: str
) -> tuple[str, str] | None:
    """Return another living master of a broker's name, and the name server that has it; ("", "") without one.

    Args:
        client: client for requests to name servers and the other master.
        servers: addresses of the name servers.
        broker_name: name of the broker.
        own_address: address of this broker.

    Returns:
        None when no name server answers.
    """
    asked = list(servers)
    lookups = (registered_broker(client, server, broker_name) for server in asked)
    # Run in parallel: a slow name server must not delay the answer of another one.
    found = await asyncio.gather(*lookups, return_exceptions=True)
    heard = False
    for server, other in zip(asked, found, strict=True):
        if isinstance(other, TianzhouError):
            continue
        if isinstance(other, BaseException):
            raise other
        heard = True
        if other not in {"", own_address} and await answers(client, other):
            return other, server
    return ("", "") if heard else None
