"""Routes of topics that exist only in another environment: `clusterTest` and `productEnvName` (broker.md §2.1).

A name server of a test environment queries a name server of another environment, usually production. So a test needs to
create only the topics that it changes. As in Apache's server, the address is `NAMESRV_ADDR`, or comes from the list
that an address server has for `productEnvName`. Environment variables select the address server; Java uses system
properties.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random

from tianzhou.client.cluster.address_server import DEFAULT_SUBGROUP, FIRST_REFRESH_S, REFRESH_S
from tianzhou.client.cluster.name_servers import NameServers
from tianzhou.clock import Clock
from tianzhou.errors import TianzhouError
from tianzhou.model import TopicRoute
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.supervision import start_owned
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

ASKED_FOR_ANOTHER = "askedByClusterTest"
"""Field of forwarded route requests. A server that receives it does not forward the request again, which prevents a
loop."""
DOMAIN_ENV, SUBGROUP_ENV = "ROCKETMQ_NAMESRV_DOMAIN", "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"
"""Equivalents of Java's `rocketmq.namesrv.domain` and `rocketmq.namesrv.domain.subgroup`."""
DEFAULT_DOMAIN = "jmenv.tbsite.net"
"""Java's default, a domain that exists only at RocketMQ's original company."""
TIMEOUT_MS = 2000.0
"""Timeout of a forwarded request in ms, shorter than the timeout of clients."""

_log = logging.getLogger(__name__)


class OtherEnvironment:
    """A client of the name servers of another environment.

    Args:
        remoting: the client that sends the requests.
        clock: source of monotonic time.
        rng: chooses the server to query first.
    """

    def __init__(self, remoting: RemotingClient, clock: Clock, rng: random.Random) -> None:
        self._remoting = remoting
        self._clock = clock
        self._rng = rng
        self._servers: NameServers | None = None
        self._servers_of: tuple[str, str, str] | None = None
        self._next_lookup_s = 0.0
        self._requests: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._last_warning = ""

    async def route(self, topic: str, settings: NamesrvSettings) -> TopicRoute | None:
        """Return a topic's route in the other environment; None when it has none, or after a logged failure.

        Args:
            topic: name of the topic.
            settings: settings that select the environment.
        """
        task = self._requests.get(topic)
        if task is None:
            task = self._requests[topic] = start_owned(self._ask(topic, settings), "name server")
            task.add_done_callback(lambda _: self._requests.pop(topic, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the in-flight requests."""
        tasks = list(self._requests.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self, topic: str, settings: NamesrvSettings) -> TopicRoute | None:
        try:
            addresses = await self._addresses(settings)
        except TianzhouError as error:
            self._warn(f"clusterTest: routes of {settings.product_env_name} cannot be queried: {error}")
            return None
        for address in addresses:
            question = Command(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                fields={"topic": topic, "acceptStandardJsonOnly": "true", ASKED_FOR_ANOTHER: "true"},
            )
            try:
                reply = await self._remoting.invoke(address, question, TIMEOUT_MS)
                route = ROUTE.loads(reply.body) if reply.code == ResponseCode.SUCCESS else None
            except TianzhouError as error:
                self._warn(f"clusterTest: no route from {settings.product_env_name}: {error}")
                continue
            self._last_warning = ""
            return route
        return None

    async def _addresses(self, settings: NamesrvSettings) -> list[str]:
        wanted = (
            os.environ.get(DOMAIN_ENV) or DEFAULT_DOMAIN,
            os.environ.get(SUBGROUP_ENV) or DEFAULT_SUBGROUP,
            settings.product_env_name,
        )
        if self._servers is None or self._servers_of != wanted:
            self._servers = NameServers(None, *wanted, self._rng)
            self._servers_of = wanted
            self._next_lookup_s = 0.0
        servers, now = self._servers, self._clock.monotonic()
        if servers.looked_up and now >= self._next_lookup_s:
            self._next_lookup_s = now + FIRST_REFRESH_S
            try:
                await servers.look_up()
                self._next_lookup_s = now + REFRESH_S
            except TianzhouError as error:
                self._warn(f"clusterTest: name servers of {settings.product_env_name} cannot be looked up: {error}")
        return servers.addresses

    def _warn(self, text: str) -> None:
        if text != self._last_warning:
            self._last_warning = text
            _log.warning("%s", text)
