"""Brokers come, say that they live, and go (wire.md §8.1): registrations read, judged and put into the route table."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from tianzhou.clock import Clock
from tianzhou.errors import BodyTooLarge, BrokerError, LimitExceeded, ProtocolError
from tianzhou.escaping import shown
from tianzhou.limits import REGISTRATION_BYTES, REGISTRATIONS_BYTES, Bounds
from tianzhou.model import BrokerData
from tianzhou.model.name_rules import ADDRESS
from tianzhou.namesrv.room import Room
from tianzhou.namesrv.routes import LiveBroker, MinBrokerChange, Registration, RouteTable
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.namesrv.topic_order import TopicOrder
from tianzhou.remoting.admin_gate import KEY
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.locality import is_on_this_machine, origin
from tianzhou.remoting.side_thread import ASIDE
from tianzhou.repeats import Repeats
from tianzhou.slices import in_turns
from tianzhou.wire import bodies
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply
from tianzhou.wire.hashing import crc32
from tianzhou.wire.json_shape import check_objects

SUCCESS = int(ResponseCode.SUCCESS)
_PLACEHOLDER_REMARK = "not set any response code"
_BROKER = "broker of connection"
LARGE_BODY = 65_536
"""The JSON of registrations of so many bytes is read aside, then their topics a few at a time; the same ones are known
again."""
ASIDE_BODY = 1_048_576
"""Still larger ones are read aside altogether."""
LARGE_PACKED = 4_096
"""As LARGE_BODY for compressed ones, which may be a thousand times as long as they look."""
LARGEST_VERSION = 4_096
"""Bytes of a data version, which has a hundred."""
SHOWN = 10
"""So many topics are named in a line of the log."""
_log = logging.getLogger(__name__)


class Registrations:
    """Serves what brokers ask of a name server.

    Args:
        settings: gives the present settings.
        routes: the route table.
        order: the order of topics, which brokers are told.
        clock: time; whether brokers live is judged by the clock that nobody sets.
        bounds: how much may be read at a time and remembered.
        on_change: told when the smallest id of a broker group changes, and brokers want to know.
        on_register: told of every registration that was taken.
    """

    def __init__(
        self,
        settings: Callable[[], NamesrvSettings],
        routes: RouteTable,
        order: TopicOrder,
        clock: Clock,
        bounds: Bounds,
        on_change: Callable[[MinBrokerChange], None],
        on_register: Callable[[Registration], None] | None = None,
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._order = order
        self._clock = clock
        self._bounds = bounds
        self._on_change = on_change
        self._on_register = on_register
        self._room = Room()
        self._said = Repeats()
        # What brokers with many topics registered last, and the registrations that are being read.
        self._large: dict[tuple[str, str], tuple[bytes, bodies.RegisterBody]] = {}
        self._arriving: dict[tuple[str, str], object] = {}

    @property
    def remembered(self) -> int:
        """How many large registrations are known again when they come unchanged."""
        return len(self._large)

    def register(self, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        """Take a broker's registration (103): at once, or, when reading it takes long, when it is read."""
        header = read_header(request)
        if header.body_crc32 and header.body_crc32 != crc32(request.body):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        key = header.cluster_name, header.broker_addr
        self._arriving.pop(key, None)
        packed = bodies.is_packed(request.body, header.compressed)
        if len(request.body) < (LARGE_PACKED if packed else LARGE_BODY):
            self._large.pop(key, None)
            most = self._bounds.most(REGISTRATION_BYTES)
            try:
                body = bodies.decode_register_body(request.body, header.compressed, request.version, most)
            except BodyTooLarge:
                raise self._unpacks_too_large(header, most) from None
            return self._registered(connection, request, header, body)
        # Brokers say the same again every 30 s, and reading ten thousand topics takes as many as 30 ms.
        known = self._large.get(key)
        if known is not None and known[0] == bytes(request.body):
            return self._registered(connection, request, header, known[1])
        return self._register_large(connection, request, header)

    async def _register_large(self, connection: Connection, request: Command, header: Any) -> Command:
        """A registration of many topics, read a few at a time; one that is compressed or very large, aside."""
        key, mine = (header.cluster_name, header.broker_addr), object()
        self._arriving[key] = mine
        data, most = bytes(request.body), self._bounds.most(REGISTRATION_BYTES)
        packed = bodies.is_packed(data, header.compressed)
        # Several that are read at the same time take as much memory together as all the topics they list.
        size = most if packed else len(data)
        aside = packed or len(data) >= ASIDE_BODY
        async with self._room.taken(size, self._bounds.most(REGISTRATIONS_BYTES)):
            try:
                if not packed:
                    await ASIDE.run(check_objects, data)
                if aside:
                    body = await ASIDE.run(bodies.decode_register_body, data, header.compressed, request.version, most)
                else:
                    body = await _in_steps(bodies.decode_register_steps(data, header.compressed, request.version, most))
            except BodyTooLarge:
                raise self._unpacks_too_large(header, most) from None
        if self._arriving.pop(key, None) is not mine or connection.closed:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed: the broker said something else since")
        reply = self._registered(connection, request, header, body)
        remembered = sum(len(text) for text, _ in self._large.values()) + len(request.body)
        if self._bounds.allows(REGISTRATIONS_BYTES, remembered):
            self._large[key] = bytes(request.body), body
        return reply

    def _registered(self, connection: Connection, request: Command, header: Any, body: bodies.RegisterBody) -> Command:
        if not header.broker_name or not header.broker_addr:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed: brokerName or brokerAddr is blank")
        for address in body.filter_servers:
            ADDRESS.check(address)
        if body.unfit:
            _log.warning(
                "broker %s registers %d topics that are left out: %s",
                header.broker_name, len(body.unfit), body.unfit[0],
            )  # fmt: skip
        table = body.table
        said = Registration(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            address=header.broker_addr,
            broker_id=header.broker_id,
            ha_server_address=header.ha_server_addr,
            topics=table.topic_config_table,
            data_version=table.data_version,
            enable_acting_master=header.enable_acting_master,
            heartbeat_timeout_ms=header.heartbeat_timeout_millis,
            zone_name=header.zone_name,
            filter_servers=body.filter_servers,
            queue_mappings=table.topic_queue_mapping_info_map,
        )
        self._check_place(connection, said)
        registered = self._routes.register(said, self._now_ms(), connection)
        if said.left_out and self._said.due(said.broker_name, self._clock.monotonic()) is not None:
            _log.warning(
                "broker %s registers %d topics or mappings that limits leave out (maxQueuesPerTopic, maxTopics,"
                " maxRoutes, maxQueueMappings): %s",
                shown(said.broker_name), len(said.left_out), shown(", ".join(said.left_out[:SHOWN])),
            )  # fmt: skip
        if registered is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if _BROKER not in connection.attributes:
            connection.attributes[_BROKER] = header.broker_addr
            connection.on_close(self.disconnected)
        self._tell(registered.change)
        if self._on_register is not None:
            self._on_register(said)
        order = self._order.table() if self._settings().return_order_topic_config_to_broker else None
        return request.reply(
            SUCCESS,
            fields=write_reply(
                request.code, ha_server_addr=registered.ha_server_address, master_addr=registered.master_address
            ),
            body=b"" if order is None else bodies.encode_kv_table(order),
        )

    def _unpacks_too_large(self, header: Any, most: int) -> LimitExceeded:
        where = f"registration of broker {header.broker_name}"
        return self._bounds.refusals.refused(REGISTRATION_BYTES, most + 1, most, where)

    def _check_place(self, connection: Connection, said: Registration) -> None:
        """Refuse a registration from another host that would take the place of a broker that is there and alive."""
        for live in self._routes.holders(said, self._now_ms()):
            if not self._is_of_another_host(live, connection):
                continue
            who = (
                f"broker {shown(said.broker_name)} id {said.broker_id} of {shown(said.address)}, registered from "
                f"{connection.remote_address}"
            )
            if (
                self._settings().enable_remote_admin
                and said.data_version.state_version > live.data_version.state_version
            ):
                _log.warning("%s, takes over from %s, which is alive (%s=true)", who, shown(live.address), KEY)
                continue
            there = f"{shown(live.address)}, registered from {live.connection}, has its place and is alive"
            _log.warning("%s, is refused: %s", who, there)
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"{who}, is refused: {there}; stop that one first (after {live.timeout_ms // 1000} s of silence its "
                "place is free), or give this one another brokerName",
            )

    def _is_of_another_host(self, live: LiveBroker, connection: Connection) -> bool:
        """Whether a broker has registered over a connection that is open and comes from elsewhere."""
        other = live.connection
        if not isinstance(other, Connection) or other is connection or other.closed:
            return False
        return origin(other) != origin(connection)

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Forget a broker that says it stops."""
        fields = request.fields
        address = fields.get("brokerAddr", "")
        for live in self._routes.living_at(address, self._now_ms()):
            if self._is_of_another_host(live, connection) and not is_on_this_machine(connection):
                raise BrokerError(
                    ResponseCode.NO_PERMISSION,
                    f"broker {shown(address)} is alive and registered from {live.connection}; only it, or this "
                    "name server's own machine, may unregister it",
                )
        self._forget_large(fields.get("clusterName", ""), address)
        self._tell(self._routes.unregister(fields.get("clusterName", ""), fields.get("brokerName", ""), address))
        return request.reply(SUCCESS)

    def heartbeat(self, _connection: Connection, request: Command) -> Command:
        """Note a sign of life."""
        header = read_header(request)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._now_ms())
        return request.reply(SUCCESS)

    def query_data_version(self, _connection: Connection, request: Command) -> Command:
        """Say whether a broker has to register anew."""
        header = read_header(request)
        if len(request.body) > LARGEST_VERSION:
            raise ProtocolError(f"a data version of {len(request.body)} bytes; it has {LARGEST_VERSION} at most")
        version = bodies.decode_data_version(request.body)
        changed = self._routes.changed(header.cluster_name, header.broker_addr, version)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._now_ms())
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        return request.reply(
            SUCCESS,
            fields=write_reply(request.code, changed=changed),
            body=b"" if known is None else bodies.encode_data_version(known),
        )

    def members(self, _connection: Connection, request: Command) -> Command:
        """The addresses of all brokers of a name."""
        cluster, name = request.fields.get("clusterName", ""), request.fields.get("brokerName", "")
        return request.reply(
            SUCCESS,
            _PLACEHOLDER_REMARK,
            body=bodies.encode_member_group(BrokerData(name, cluster, self._routes.members(name))),
        )

    def disconnected(self, connection: Connection) -> None:
        """A connection is gone: the brokers that registered over it are, too."""
        for live in self._routes.living_on(connection):
            _log.info("broker %s of cluster %s: connection closed, unregistered", live.address, live.cluster)
            self._forget_large(live.cluster, live.address)
            self._tell(self._routes.remove(live))

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def expire(self) -> None:
        """Unregister the brokers that were silent for too long, and close their connections."""
        for live in self._routes.expired(self._now_ms()):
            _log.warning(
                "broker %s of cluster %s: no sign of life for %d ms, unregistered",
                live.address, live.cluster, live.timeout_ms,
            )  # fmt: skip
            self._forget_large(live.cluster, live.address)
            self._tell(self._routes.remove(live))
            if isinstance(live.connection, Connection):
                live.connection.close()

    def _forget_large(self, cluster: str, address: str) -> None:
        self._large.pop((cluster, address), None)
        self._arriving.pop((cluster, address), None)

    def _tell(self, change: MinBrokerChange | None) -> None:
        if change is not None and self._settings().notify_min_broker_id_changed:
            self._on_change(change)


async def _in_steps(steps: Generator[None, None, bodies.RegisterBody]) -> bodies.RegisterBody:
    """What the steps read: the first, which is all of the JSON and may be in a dialect that takes long, aside."""
    found = await ASIDE.run(_step, steps)
    return await in_turns(steps) if found is None else found


def _step(steps: Generator[None, None, bodies.RegisterBody]) -> bodies.RegisterBody | None:
    try:
        next(steps)
    except StopIteration as end:
        found: bodies.RegisterBody = end.value
        return found
    return None
