"""Addressees of administration requests: the brokers of a cluster or of a topic, and all name servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.remedies import check
from tianzhou.client.instance import ClientInstance
from tianzhou.errors import BrokerError, ClientError, ConnectFailed, RemotingError, TianzhouError, UnknownTopic
from tianzhou.model import BrokerData, ClusterInfo, TopicRoute
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


class Codec(Protocol[T_co]):
    """A body codec of `tianzhou.wire.bodies`."""

    def loads(self, data: bytes | memoryview) -> T_co:
        """Decode a body."""


class Reach:
    """Administration requests to brokers and name servers.

    Args:
        instance: connections and routes.
        timeout_ms: limit of each request, in ms.
    """

    def __init__(self, instance: ClientInstance, timeout_ms: int) -> None:
        self.instance = instance
        self.timeout_ms = timeout_ms
        self._versions: dict[str, int] = {}

    @property
    def remoting(self) -> RemotingClient:
        """The client that sends the requests."""
        return self.instance.remoting

    async def call(self, address: str, code: int, *, body: bytes = b"", **header: Any) -> Command:
        """Send a request to one server, and return its successful reply.

        Raises:
            BrokerError: the reply's code is not 0.
            RemotingError: the server did not answer.
        """
        return await rpc.call(self.remoting, address, code, body=body, timeout_ms=self.timeout_ms, **header)

    async def load(self, address: str, code: int, codec: Codec[T], **header: Any) -> T:
        """Send a request to one server, and return the decoded body of its reply. Raise the errors of `call`."""
        return codec.loads((await self.call(address, code, **header)).body)

    async def load_each(self, addresses: Iterable[str], code: int, codec: Codec[T], **header: Any) -> dict[str, T]:
        """Send a request to several servers as `each` does, and return the decoded bodies by address."""
        return await self.each(addresses, lambda address: self.load(address, code, codec, **header))

    async def ask_name_server(self, code: int, **header: Any) -> Command:
        """Send a request to a name server, and return its successful reply."""
        return check(await self.instance.ask_name_server(code, timeout_ms=self.timeout_ms, **header))

    async def each_name_server(self, code: int, *, body: bytes = b"", **header: Any) -> dict[str, Command]:
        """Send a request to all name servers at the same time, and return their successful replies by address.

        Raises:
            TianzhouError: a name server refuses or does not answer. The text names the servers that carried out the
                request.
        """

        async def ask(address: str) -> Command | TianzhouError:
            try:
                return await self.call(address, code, body=body, **header)
            except TianzhouError as error:
                return error

        servers = list(dict.fromkeys(self.instance.name_servers))
        answers = dict(zip(servers, await asyncio.gather(*map(ask, servers)), strict=True))
        replies = {address: one for address, one in answers.items() if isinstance(one, Command)}
        failures = {address: one for address, one in answers.items() if isinstance(one, TianzhouError)}
        if replies and failures and all(isinstance(one, RemotingError) for one in failures.values()):
            raise ConnectFailed(
                f"name server {' and '.join(failures)} has not answered ({'; '.join(map(str, failures.values()))}); "
                f"{' and '.join(replies)} has carried the request out: repeat the command when all of them answer"
            )
        for failure in failures.values():
            raise failure
        return replies

    async def each(self, addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Query several servers at the same time. Raise the first failure after all have answered."""
        keys = list(dict.fromkeys(addresses))
        results = await asyncio.gather(*(ask(address) for address in keys), return_exceptions=True)
        found: dict[str, T] = {}
        for key, result in zip(keys, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            found[key] = result
        return found

    async def each_broker(
        self, masters: Mapping[str, str], ask: Callable[[str, str], Awaitable[T]], failures: dict[str, str] | None
    ) -> dict[str, T]:
        """Query several brokers at the same time.

        Args:
            masters: masters' addresses by broker name.
            ask: queries one broker; its arguments are the broker's name and address.
            failures: receives the reason of each broker that does not answer, by name, and the answers of the other
                brokers are returned. None raises the first failure instead.

        Raises:
            TianzhouError: a broker refuses, or a broker does not answer and `failures` is None.
        """
        answers = await asyncio.gather(*(ask(*one) for one in masters.items()), return_exceptions=True)
        found: dict[str, T] = {}
        for name, answer in zip(masters, answers, strict=True):
            if isinstance(answer, RemotingError) and failures is not None:
                failures[name] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[name] = answer
        return found

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers that the name server knows."""
        reply = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return CLUSTER_INFO.loads(reply.body)

    async def brokers(self, cluster: str | None = None) -> list[BrokerData]:
        """Return the brokers of a cluster, or of all clusters.

        Raises:
            ClientError: the cluster does not exist, or no broker is registered.
        """
        info = await self.cluster_info()
        if cluster is None:
            names = sorted(info.broker_addr_table)
        elif cluster in info.cluster_addr_table:
            names = sorted(info.cluster_addr_table[cluster])
        else:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ClientError(f"the name server knows no cluster {cluster}; it knows {known}")
        found = [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]
        if not found:
            raise ClientError("no broker is registered at the name server; start one, or check its namesrvAddr")
        return found

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the masters' addresses by broker name, for one cluster or all.

        Raises:
            ClientError: the cluster does not exist, or no broker has a master.
        """
        found = await self.brokers(cluster)
        masters = masters_among(found)
        if not masters:
            names = ", ".join(broker.broker_name for broker in found)
            raise ClientError(f"none of the brokers {names} has a master now; is it running?")
        return masters

    async def route(self, topic: str) -> TopicRoute | None:
        """Return a topic's present route from the name server; None when the topic does not exist."""
        return await self.instance.refresh_route(topic)

    async def existing_route(self, topic: str) -> TopicRoute:
        """Return a topic's present route from the name server.

        Raises:
            ClientError: the topic does not exist.
        """
        route = await self.route(topic)
        if route is None:
            raise UnknownTopic(f"topic {topic} does not exist; create it or check its name")
        return route

    async def masters_of(self, topic: str) -> dict[str, str]:
        """Return the masters' addresses of a topic, by broker name.

        Raises:
            ClientError: the topic does not exist, or none of its brokers has a master.
        """
        masters = masters_among((await self.existing_route(topic)).broker_datas)
        if not masters:
            raise ClientError(f"none of the brokers of topic {topic} has a master now; is it running?")
        return masters

    async def delete_topic(self, topic: str, addresses: Iterable[str], cluster: str | None = None) -> None:
        """Delete a topic from brokers and name servers. A broker without the topic is no error.

        Args:
            topic: name of the topic.
            addresses: addresses of the brokers.
            cluster: the cluster from which name servers delete it; None for all clusters.
        """

        async def one(address: str) -> None:
            await unless_absent(self.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic), None)

        await self.each(addresses, one)
        await self.each_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic, cluster_name=cluster)
        self.instance.routes.forget(topic)

    async def version(self, address: str) -> int:
        """Return the ordinal of a server's version, which its replies carry (wire.md §1.6)."""
        if address not in self._versions:
            reply = await self.remoting.invoke(
                address, rpc.request(RequestCode.GET_BROKER_RUNTIME_INFO), self.timeout_ms
            )
            self._versions[address] = reply.version
        return self._versions[address]


def masters_among(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Return the masters' addresses by broker name, for the brokers that have a master."""
    return {broker.broker_name: broker.master for broker in brokers if broker.master is not None}


async def unless_absent(work: Awaitable[T], default: U, *codes: int) -> T | U:
    """Return the result of a request, or the default when the server replies that the requested object does not exist.

    Args:
        work: the request.
        default: result when the object does not exist.
        codes: response codes that mean a missing object; by default those for topics and groups.
    """
    try:
        return await work
    except BrokerError as error:
        if error.code not in (codes or (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)):
            raise
        return default
