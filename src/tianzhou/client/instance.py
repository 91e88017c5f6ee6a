"""The client instance, which producers and consumers share: connections, routes, heartbeats (client.md §3).

By default every producer and consumer owns an instance, as in RocketMQ 5. Two consumers of one group in one process are
then two members. Pass one instance to several clients, and they share its connections and heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

from tianzhou.client.cluster.heartbeats import Heartbeats
from tianzhou.client.cluster.identity import endpoint_namespace, instance_name, local_ip, make_client_id, vip_address
from tianzhou.client.cluster.member import GroupMember, StateCheck
from tianzhou.client.cluster.missing_topics import MissingTopics
from tianzhou.client.cluster.name_servers import NameServers
from tianzhou.client.cluster.remedies import check
from tianzhou.client.cluster.requests import PendingReplies
from tianzhou.client.cluster.routes import RouteTable, borrowed, check_route, subscribe_queues
from tianzhou.client.cluster.tasks import Tasks
from tianzhou.client.cluster.tls import context_of
from tianzhou.client.namespaces.namespaces import unwrap
from tianzhou.client.option_keywords import ClientKeywords
from tianzhou.client.options import ClientOptions, check_option_names
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ClientError, LimitExceeded, NoWritableQueue, ProtocolError, TianzhouError
from tianzhou.model import HeartbeatData, MessageQueue, TopicRoute
from tianzhou.remoting.client import Exchange, RemotingClient, RpcHook
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.signing import signing
from tianzhou.remoting.tls import TlsSettings, client_context
from tianzhou.unpacked_bodies import UnpackedBodies
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.ids import UniqueIdGenerator, address_bytes

_log = logging.getLogger(__name__)

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
ACCESS_KEY_VARIABLE = "TIANZHOU_ACCESS_KEY"
SECRET_KEY_VARIABLE = "TIANZHOU_SECRET_KEY"
"""Environment variables of the keys that sign requests when no option has them. They are for commands above all,
because all users of the machine can see a command's arguments."""
MISSING_ROUTE_INTERVAL_S = 2.0
"""Pause between requests for the routes of subscribed topics that do not exist yet."""


class ClientInstance:
    """Connections, routes and heartbeats of one client id; an async context manager.

    Args:
        namesrv_addr: name servers, `host:port` joined by `;` or a list.
        keywords: see `tianzhou.client.options.ClientOptions`.

    Raises:
        ConfigError: an option is unknown, or its value is not allowed.
    """

    def __init__(self, namesrv_addr: str | Sequence[str] | None = None, **keywords: Unpack[ClientKeywords]) -> None:
        check_option_names(keywords, type(self))
        self.options = options = ClientOptions(namesrv_addr=namesrv_addr, **keywords)
        self.clock: Clock = options.clock or SystemClock()
        self.rng = options.rng or random.Random()
        self._name_servers = NameServers(
            namesrv_addr, options.namesrv_domain, options.namesrv_domain_subgroup, options.unit_name, self.rng
        )
        self.namespace = options.namespace or endpoint_namespace(namesrv_addr)
        self.unit_mode = options.unit_mode
        ip = local_ip(self.name_servers[0] if self.name_servers else "")
        self.client_id = options.client_id or make_client_id(ip, instance_name(), options.unit_name)
        self.ids = UniqueIdGenerator(address_bytes(ip), os.getpid(), self.rng.getrandbits(32))
        self.routes = RouteTable()
        self.max_unpacked_body_bytes = options.max_unpacked_body_bytes
        self.unpacked_bodies = UnpackedBodies(options.max_unpacked_bytes)
        self.api_timeout_ms = options.mq_client_api_timeout_ms
        self.remoting = RemotingClient(
            self._answer,
            connect_timeout_ms=options.connect_timeout_ms,
            hooks=_request_hooks(options),
            border=_border(self.namespace),
            clock=self.clock,
            tls=context_of(options.tls),
            socks=options.socks_proxy_config,
        )
        self.replies = PendingReplies()
        self._route_interval_s = options.poll_name_server_interval_ms / 1000
        self._producers: dict[str, StateCheck | None] = {}
        self._consumers: dict[str, GroupMember] = {}
        self._borrowed: set[str] = set()
        self._missing = MissingTopics()
        self._route_requests: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._tasks = Tasks(f"client {self.client_id}", (TianzhouError,))
        self.spawn, self.keep = self._tasks.spawn, self._tasks.keep
        self.heartbeats = Heartbeats(
            self.client_id,
            self.remoting,
            self.routes,
            self._heartbeat_data,
            self.spawn,
            self._wake_consumers,
            interval_s=options.heartbeat_broker_interval_ms / 1000,
            timeout_ms=options.mq_client_api_timeout_ms,
        )
        """Sender of heartbeats to the brokers."""
        self._started = False
        self._closed = False

    # --- start and stop --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the timers; do nothing when they are running.

        Raises:
            ClientError: the instance has been closed, or runs in another event loop.
            ConnectFailed: the address server that lists the name servers does not answer.
        """
        if self._closed:
            raise ClientError(f"client instance {self.client_id} is closed; make a new one")
        if self._started:
            self.remoting.check_loop()
            return
        self.remoting.bind()
        await self._name_servers.look_up()
        self._started = True
        self.remoting.group.on_connect = self.heartbeats.connected
        if self._name_servers.looked_up:
            self.keep("looking up name servers", self._name_servers.keep_looking_up)
        self.keep("refreshing routes", self._refresh_routes)
        self.keep("heartbeats", self.heartbeats.run)

    async def close(self) -> None:
        """Stop every timer and close every connection. Producers and consumers unregister before, in their own `stop`.

        Raises:
            ClientError: it runs in another event loop.
        """
        self.remoting.check_loop()
        self._closed = True
        self.replies.close()
        self.heartbeats.end()
        await self._tasks.end()
        await self.remoting.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed. A closed instance cannot be started again."""
        return self._closed

    # --- groups ----------------------------------------------------------------------------------------------

    def add_producer(self, group: str, check: StateCheck | None = None) -> None:
        """Add a producer group to the heartbeats.

        Args:
            group: the group, by the servers' name.
            check: handler of the brokers' checks of the group's transactions.

        Raises:
            ClientError: the instance has a producer of that group already.
        """
        if group in self._producers:
            raise ClientError(
                f"client instance {self.client_id} has a producer of group {group} already; share that producer, "
                "or let each own its instance"
            )
        self._producers[group] = check

    def add_consumer(self, member: GroupMember) -> None:
        """Add a consumer to the heartbeats.

        Raises:
            ClientError: the instance has a consumer of that group already.
        """
        if member.group in self._consumers:
            raise ClientError(
                f"client instance {self.client_id} has a consumer of group {member.group} already; members of one "
                "group need an instance each"
            )
        self._consumers[member.group] = member

    def state_check(self, group: str) -> StateCheck | None:
        """Return the handler of transaction checks for a producer group; None without one."""
        return self._producers.get(group)

    def consumer(self, group: str) -> GroupMember | None:
        """Return the consumer of a group; None when this instance has none."""
        return self._consumers.get(unwrap(self.namespace, group))

    async def remove_producer(self, group: str) -> None:
        """Remove a producer group from the heartbeats, and unregister it at the brokers."""
        self._producers.pop(group, None)
        await self.heartbeats.unregister(producer_group=group)

    async def remove_consumer(self, group: str) -> None:
        """Remove a consumer group from the heartbeats, and unregister it at the brokers, which notify other members."""
        if self._consumers.pop(group, None) is not None:
            await self.heartbeats.unregister(consumer_group=group)

    # --- name servers and routes -----------------------------------------------------------------------------

    def stranger(self, *, tls: bool, connect_timeout_ms: float) -> RemotingClient:
        """Return a client with the same proxies that signs nothing, has no certificate and trusts every server.

        Args:
            tls: whether it uses TLS.
            connect_timeout_ms: timeout of connecting.
        """
        return RemotingClient(
            connect_timeout_ms=connect_timeout_ms,
            clock=self.clock,
            tls=client_context(TlsSettings()) if tls else None,
            socks=self.options.socks_proxy_config,
        )

    @property
    def name_servers(self) -> list[str]:
        """Addresses of the name servers; empty while they have to be looked up."""
        return self._name_servers.addresses

    async def ask_name_server(
        self, code: int, *, body: bytes = b"", timeout_ms: float | None = None, **header: Any
    ) -> Command:
        """Send a read request to the name server in use, and to the next one when it fails or is slow.

        Raises:
            ConnectFailed: no name server answers.
        """
        return await self._name_servers.ask(self.remoting, code, body, timeout_ms or self.api_timeout_ms, header)

    async def route(self, topic: str, *, default_topic: str | None = None, queue_nums: int = 4) -> TopicRoute | None:
        """Return the topic's cached route, or the name server's; None when the topic does not exist.

        Args:
            topic: the topic.
            default_topic: topic whose route a producer uses while the topic does not exist (client.md §3.5).
            queue_nums: maximum queues per broker in that route.
        """
        cached = self.routes.get(topic)
        if cached is not None:
            return cached
        found = await self.refresh_route(topic)
        if found is None and default_topic is not None:
            pattern = await self._fetch_route(default_topic)
            if pattern is not None:
                found = borrowed(pattern, queue_nums)
                self._borrowed.add(topic)
                self.routes.put(topic, found)
                self._greet_new()
        return found

    async def refresh_route(self, topic: str) -> TopicRoute | None:
        """Request a topic's route from the name server; concurrent callers share one request.

        Returns:
            The route; None when the topic does not exist. The default topic's route then stays in use.
        """
        task = self._route_requests.get(topic)
        if task is None:
            task = self.spawn(self._ask_route(topic))
            self._route_requests[topic] = task
            task.add_done_callback(lambda _: self._route_requests.pop(topic, None))
        return await asyncio.shield(task)

    def _answer(self, connection: Connection, command: Command) -> Command | Awaitable[Command | None] | None:
        # Most commands of a terminal end before a broker sends a request, so they never import this.
        from tianzhou.client.cluster.broker_requests import answer

        return answer(self, connection, command)

    async def _ask_route(self, topic: str) -> TopicRoute | None:
        route = await self._fetch_route(topic)
        if route is None:
            groups = (group for group, member in self._consumers.items() if topic in member.topics())
            self._missing.missing(topic, groups, self.name_servers)
            return None
        self._missing.found(topic)
        self._borrowed.discard(topic)
        if self.routes.put(topic, route):
            self._greet_new()
            for member in self._consumers.values():
                if topic in member.topics():
                    member.wake_rebalance()
        return route

    async def _fetch_route(self, topic: str) -> TopicRoute | None:
        reply = await self.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, accept_standard_json_only=True
        )
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        server = self._name_servers.in_use
        route = ROUTE.loads(check(reply, server).body)
        return check_route(route, f"the route of topic {topic} from name server {server}")

    async def queues_to_read(self, topic: str, *, refresh: bool = False) -> list[MessageQueue]:
        """Return a topic's readable queues, sorted; an empty list when it does not exist."""
        route = await (self.refresh_route(topic) if refresh else self.route(topic))
        return subscribe_queues(topic, route) if route is not None else []

    async def master(self, broker_name: str, topic: str) -> str:
        """Return the address of a broker's master; refresh the topic's route when it is unknown.

        Raises:
            NoWritableQueue: the broker has no master now.
        """
        address = await self._known(topic, lambda: self.routes.master(broker_name))
        if address is None:
            raise NoWritableQueue(f"broker {broker_name} of topic {topic} has no master now; is it running?")
        return self.send_address(address)

    def send_address(self, address: str) -> str:
        """Return the address for sends and small requests to a broker: its own, or its fast port (client.md §21)."""
        return vip_address(address) if self.options.vip_channel_enabled else address

    async def reader(self, queue: MessageQueue, broker_id: int = 0) -> str:
        """Return the address to read a queue from: that of the wanted replica, otherwise of any (client.md §3.5).

        Raises:
            ClientError: no replica is known.
        """
        address = await self._known(queue.topic, lambda: self.routes.readable(queue.broker_name, broker_id))
        if address is None:
            raise ClientError(f"no address is known of broker {queue.broker_name}, which has {queue}; is it running?")
        return address

    async def _known(self, topic: str, find: Callable[[], str | None]) -> str | None:
        """Return the result of `find`. When it is None, refresh the topic's route and try again."""
        address = find()
        if address is None:
            await self.refresh_route(topic)
            address = find()
        return address

    async def any_broker_of(self, topic: str) -> str | None:
        """Return the address of a random broker of a topic, if possible of its master; None without a broker."""
        if await self.route(topic) is None:
            return None
        brokers = [b for b in self.routes.brokers_of(topic) if b.broker_addrs]
        if not brokers:
            return None
        chosen = brokers[self.rng.randrange(len(brokers))]
        return chosen.master or chosen.broker_addrs[min(chosen.broker_addrs)]

    async def _refresh_routes(self) -> None:
        due = self.clock.monotonic() + self._route_interval_s
        while True:
            await asyncio.sleep(min(MISSING_ROUTE_INTERVAL_S, self._route_interval_s))
            wanted = {topic for member in self._consumers.values() for topic in member.topics()}
            ask = {topic for topic in wanted if topic not in self.routes} | self._borrowed
            if self.clock.monotonic() >= due:
                due = self.clock.monotonic() + self._route_interval_s
                ask |= wanted | set(self.routes.topics)
            changed = False
            for topic in sorted(ask):
                before = self.routes.version
                try:
                    await self.refresh_route(topic)
                except TianzhouError as error:
                    level = logging.WARNING if isinstance(error, ProtocolError | LimitExceeded) else logging.INFO
                    _log.log(level, "no route of topic %s now: %s", topic, error)
                except Exception:  # noqa: BLE001 - a failure for one topic must not prevent requests for the others
                    _log.exception("no route of topic %s now", topic)
                changed = changed or self.routes.version != before
            self.routes.prune()
            if changed and self._consumers:
                await self.heartbeats.all()

    # --- heartbeats ------------------------------------------------------------------------------------------

    def _heartbeat_data(self) -> HeartbeatData | None:
        consumers = [data for m in self._consumers.values() if (data := m.consumer_data()) is not None]
        if not self._producers and not consumers:
            return None
        if self.unit_mode:
            consumers = [replace(data, unit_mode=True) for data in consumers]
        groups = sorted({*self._producers, INNER_PRODUCER_GROUP})
        return HeartbeatData(self.client_id, producer_groups=groups, consumers=consumers)

    def _greet_new(self) -> None:
        if self._started:
            self.heartbeats.greet_new()

    def _wake_consumers(self) -> None:
        for member in self._consumers.values():
            member.wake_rebalance()

    # --- requests from brokers -------------------------------------------------------------------------------

    def wake_consumers(self, group: str) -> None:
        """Rebalance a group whose members have changed, as a broker reports (request 40)."""
        member = self.consumer(group)
        if member is not None:
            member.wake_rebalance()


def _border(namespace: str | None) -> RpcHook | None:
    """Return the hook that translates names in requests and replies; None without a namespace."""
    if not namespace:
        return None
    from tianzhou.client.namespaces.request_names import border  # only clients with a namespace import it

    return border(namespace)


def _request_hooks(options: ClientOptions) -> list[RpcHook]:
    """Return the hooks of each request, in their order."""
    hooks = list(options.rpc_hooks)
    if options.namespace_v2:
        hooks.insert(0, _namespace_hook(options.namespace_v2))
    access_key, secret_key = options.access_key, options.secret_key
    if not (access_key or secret_key):
        access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE), os.environ.get(SECRET_KEY_VARIABLE)
    sign = signing(access_key, secret_key, options.security_token)
    if sign is not None:
        hooks.append(sign)  # the last one, because it signs the fields that the others have added
    return hooks


def _namespace_hook(namespace: str) -> RpcHook:
    """Return the hook that adds the namespace to each request (wire.md §12)."""

    def add(exchange: Exchange) -> None:
        request = exchange.request
        request.fields = {**request.fields, "ns": namespace, "nsd": "true"}

    return add
