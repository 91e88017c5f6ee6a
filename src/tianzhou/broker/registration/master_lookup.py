"""The master of a broker's name, as name servers have it."""

from __future__ import annotations

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
"""Maximum ms that a server may take to answer."""


async def registered_master(client: RemotingClient, server: str, broker_name: str) -> str:
    """Return the address of the master that a name server has for a broker's name; empty when it has none.

    It asks for the route of the topic that every broker has under its own name, so that one broker is answered for.

    Args:
        client: reaches the name server.
        server: address of the name server.
        broker_name: name of the broker.

    Raises:
        TianzhouError: the name server does not answer.
    """
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    reply = await client.invoke(server, Command(code, fields=write_header(code, topic=broker_name)), LIMIT_MS)
    if reply.code != ResponseCode.SUCCESS:
        return ""
    found = (one for one in ROUTE.loads(reply.body).broker_datas if one.broker_name == broker_name)
    return next((one.broker_addrs.get(MASTER_ID, "") for one in found), "")


async def answers(client: RemotingClient, address: str) -> bool:
    """Return whether a broker answers a request, be it with an error."""
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
        client: reaches name servers and the other master.
        servers: addresses of the name servers.
        broker_name: name of the broker.
        own_address: address of this broker.

    Returns:
        None when no name server answers.
    """
    heard = False
    for server in servers:
        try:
            other = await registered_master(client, server, broker_name)
        except TianzhouError:
            continue
        heard = True
        if other not in {"", own_address} and await answers(client, other):
            return other, server
    return ("", "") if heard else None
