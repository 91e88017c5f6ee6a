"""Registrations of brokers (wire.md §8.1): registration, heartbeats, unregistration, expiry."""

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
from tianzhou.model.names import MASTER_ID
from tianzhou.namesrv.routes import LiveBroker, MinBrokerChange, NamesrvRouteTable, Registration
from tianzhou.namesrv.second_brokers import Place, SecondBrokers, may_replace
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.namesrv.topic_order import TopicOrder
from tianzhou.records.checksum import crc32
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.admin_gate import KEY
from tianzhou.remoting.gates.locality import is_on_this_machine, origin
from tianzhou.remoting.side_thread import ASIDE, WeightedSemaphore
from tianzhou.repeats import Repeats
from tianzhou.slices import in_turns
from tianzhou.wire.bodies.register import RegisterBody, RegisterCodec
from tianzhou.wire.bodies.route import MEMBER_GROUP
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply
from tianzhou.wire.json_shape import check_objects
from tianzhou.wire.mastership import OTHER_MASTER, mastership_of

SUCCESS = int(ResponseCode.SUCCESS)
_PLACEHOLDER_REMARK = "not set any response code"
_BROKER = "broker of connection"
LARGE_BODY = 65_536
"""Size in bytes from which a registration's JSON is decoded in the side thread, its topics in turns, and the result
cached."""
ASIDE_BODY = 1_048_576
"""Size in bytes from which a registration is decoded completely in the side thread."""
LARGE_PACKED = 4_096
"""As `LARGE_BODY`, for compressed registrations, which may expand to a thousand times their size."""
LARGEST_VERSION = 4_096
"""Maximum size of a data version in bytes; typical versions have a hundred."""
LINES = 100
"""Maximum number of log lines of one kind per minute. Further lines are only counted."""
SHOWN = 10
"""Maximum number of topics in a log line."""
_log = logging.getLogger(__name__)


class Registrations:
    """Handlers of brokers' requests.

    Args:
        settings: returns the present settings.
        routes: the route table.
        order: the order of topics, sent in replies to brokers.
        clock: source of time; liveness is measured in monotonic time.
        bounds: limits of decoding and caching.
        on_change: called when the smallest id of a broker group changes, if `notifyMinBrokerIdChanged` is set.
        on_register: called with every accepted registration.
    """

    def __init__(
        self,
        settings: Callable[[], NamesrvSettings],
        routes: NamesrvRouteTable,
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
        self._decoding = WeightedSemaphore()
        self._log_throttle = Repeats()
        self._kinds = Repeats(LINES)
        self._second = SecondBrokers()
        # Latest registrations of brokers with many topics, and the registrations that are being decoded.
        self._large: dict[tuple[str, str], tuple[bytes, RegisterBody]] = {}
        self._arriving: dict[tuple[str, str], object] = {}

    @property
    def remembered(self) -> int:
        """Number of cached large registrations."""
        return len(self._large)

    def register(self, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        """Register a broker (103): at once, or after decoding if the body is large."""
        header = read_header(request)
        if header.body_crc32 and header.body_crc32 != crc32(request.body):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        key = header.cluster_name, header.broker_addr
        self._arriving.pop(key, None)
        codec = RegisterCodec(request.version, header.compressed)
        packed = codec.is_packed(request.body)
        if len(request.body) < (LARGE_PACKED if packed else LARGE_BODY):
            self._large.pop(key, None)
            most = self._bounds.most(REGISTRATION_BYTES)
            try:
                body = codec.loads(request.body, most)
            except BodyTooLarge:
                raise self._unpacks_too_large(header, most) from None
            return self._registered(connection, request, header, body)
        # Brokers repeat their registration every 30 s, and decoding ten thousand topics takes up to 30 ms.
        known = self._large.get(key)
        if known is not None and known[0] == bytes(request.body):
            return self._registered(connection, request, header, known[1])
        return self._register_large(connection, request, header)

    async def _register_large(self, connection: Connection, request: Command, header: Any) -> Command:
        """Register a broker with many topics.

        Decode in turns, or in the side thread a compressed or very large body.
        """
        key, mine = (header.cluster_name, header.broker_addr), object()
        self._arriving[key] = mine
        data, most = bytes(request.body), self._bounds.most(REGISTRATION_BYTES)
        codec = RegisterCodec(request.version, header.compressed)
        packed = codec.is_packed(data)
        # Bodies that are decoded at the same time need as much memory as all the topics they list.
        size = most if packed else len(data)
        aside = packed or len(data) >= ASIDE_BODY
        async with self._decoding.acquired(size, self._bounds.most(REGISTRATIONS_BYTES)):
            try:
                if not packed:
                    await ASIDE.run(check_objects, data)
                if aside:
                    body = await ASIDE.run(codec.loads, data, most)
                else:
                    body = await _decode_in_turns(codec.load_in_steps(data, most))
            except BodyTooLarge:
                raise self._unpacks_too_large(header, most) from None
        if self._arriving.pop(key, None) is not mine or connection.closed:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, "register broker failed: the broker has sent another request since"
            )
        reply = self._registered(connection, request, header, body)
        remembered = sum(len(text) for text, _ in self._large.values()) + len(request.body)
        if self._bounds.allows(REGISTRATIONS_BYTES, remembered):
            self._large[key] = bytes(request.body), body
        return reply

    def _registered(self, connection: Connection, request: Command, header: Any, body: RegisterBody) -> Command:
        if not header.broker_name or not header.broker_addr:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed: brokerName or brokerAddr is blank")
        for address in body.filter_servers:
            ADDRESS.check(address)
        if body.unfit:
            self._note(
                logging.WARNING, "unfit", "broker %s registers %d topics that are left out: %s",
                header.broker_name, len(body.unfit), body.unfit[0],
            )  # fmt: skip
        table = body.table
        registration = Registration(
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
            mastership=mastership_of(request.fields),
        )
        if (first := self._first_broker(connection, registration)) is not None:
            return self._second_broker(request, registration, first)
        self._check_not_taken(connection, registration)
        registered = self._routes.register(registration, self._now_ms(), connection)
        left_out, name = registration.left_out, registration.broker_name
        if left_out and self._log_throttle.due(name, self._clock.monotonic()) is not None:
            self._note(
                logging.WARNING, "left out",
                "broker %s registers %d topics or mappings that limits leave out (maxQueuesPerTopic, maxTopics,"
                " maxRoutes, maxQueueMappings): %s",
                shown(name), len(left_out), shown(", ".join(left_out[:SHOWN])),
            )  # fmt: skip
        if registered is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if _BROKER not in connection.attributes:
            connection.attributes[_BROKER] = header.broker_addr
            connection.on_close(self.disconnected)
        self._publish(registered.change)
        if self._on_register is not None:
            self._on_register(registration)
        # An empty field shows a broker of Tianzhou that it need not search the route for another broker with its name
        # and id.
        is_ours = registration.mastership is not None
        names_other = {OTHER_MASTER: self._second.other(_place(registration), self._now_ms())} if is_ours else {}
        order = self._order.table() if self._settings().return_order_topic_config_to_broker else None
        return request.reply(
            SUCCESS,
            fields=write_reply(
                request.code, ha_server_addr=registered.ha_server_address, master_addr=registered.master_address
            )
            | names_other,
            body=b"" if order is None else KV_TABLE.dumps(dict(order)),
        )

    def _unpacks_too_large(self, header: Any, most: int) -> LimitExceeded:
        where = f"registration of broker {header.broker_name}"
        return self._bounds.refusals.refused(REGISTRATION_BYTES, most + 1, most, where)

    def _first_broker(self, connection: Connection, registration: Registration) -> LiveBroker | None:
        """Return the living broker at another address that this broker may not replace; None without one.

        A broker of Apache beside another broker of Apache, or beside a DLedger group of Tianzhou, is accepted and
        logged.
        """
        for live in self._routes.holders(registration, self._now_ms()):
            other = live.connection
            if live.address == registration.address or other is connection:
                continue
            if not isinstance(other, Connection) or other.closed:
                continue
            if not may_replace(live.mastership, registration.mastership):
                return live
            if registration.mastership is None and not self._is_from_another_host(live, connection):
                text = "two brokers %s with brokerId=%d: %s has registered and takes the place of %s, which is alive"
                name, broker_id = registration.broker_name, registration.broker_id
                self._note(
                    logging.WARNING, "second broker", text,
                    shown(name), broker_id, shown(registration.address), shown(live.address),
                )  # fmt: skip
        return None

    def _second_broker(self, request: Command, registration: Registration, first: LiveBroker) -> Command:
        """Refuse a second broker, and record it for the reply to the first broker's next registration."""
        name, address, broker_id = registration.broker_name, registration.address, registration.broker_id
        is_master = broker_id == MASTER_ID
        if self._second.refused(_place(registration), address, self._now_ms()):
            pair = (
                f"masters of broker {shown(name)}" if is_master else f"brokers {shown(name)} with brokerId={broker_id}"
            )
            text = "two %s: %s has its place and is alive, %s is refused"
            self._note(logging.WARNING, "second broker", text, pair, shown(first.address), shown(address))
        role = f"the master of {shown(name)}" if is_master else f"{shown(name)} with brokerId={broker_id}"
        remedy = "brokerName" if is_master else "brokerId"
        return request.reply(
            ResponseCode.NO_PERMISSION,
            f"{shown(first.address)} is {role} and alive, {shown(address)} does not take its "
            f"place; stop one of the two, or give it another {remedy}",
            fields={OTHER_MASTER: first.address},
        )

    def _check_not_taken(self, connection: Connection, registration: Registration) -> None:
        """Reject a registration from another host that would replace a living broker.

        Raises:
            BrokerError: NO_PERMISSION.
        """
        for live in self._routes.holders(registration, self._now_ms()):
            if not self._is_from_another_host(live, connection):
                continue
            who = (
                f"broker {shown(registration.broker_name)} id {registration.broker_id} of "
                f"{shown(registration.address)}, registered from {connection.remote_address}"
            )
            if (
                self._settings().enable_remote_admin
                and registration.data_version.state_version > live.data_version.state_version
            ):
                text = "%s, takes over from %s, which is alive (%s=true)"
                self._note(logging.WARNING, "takes over", text, who, shown(live.address), KEY)
                continue
            there = f"{shown(live.address)}, registered from {live.connection}, has its place and is alive"
            self._note(logging.WARNING, "refused", "%s, is refused: %s", who, there)
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"{who}, is refused: {there}; stop that one first (after {live.timeout_ms // 1000} s of silence its "
                "place is free), or give this one another brokerName",
            )

    def _is_from_another_host(self, live: LiveBroker, connection: Connection) -> bool:
        """Whether a broker has registered over an open connection from another host than this connection's."""
        other = live.connection
        if not isinstance(other, Connection) or other is connection or other.closed:
            return False
        return origin(other) != origin(connection)

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Unregister a broker that stops (104)."""
        fields = request.fields
        address = fields.get("brokerAddr", "")
        for live in self._routes.living_at(address, self._now_ms()):
            if self._is_from_another_host(live, connection) and not is_on_this_machine(connection):
                raise BrokerError(
                    ResponseCode.NO_PERMISSION,
                    f"broker {shown(address)} is alive and registered from {live.connection}; only it, or this "
                    "name server's own machine, may unregister it",
                )
        self._forget_large(fields.get("clusterName", ""), address)
        self._publish(self._routes.unregister(fields.get("clusterName", ""), fields.get("brokerName", ""), address))
        return request.reply(SUCCESS)

    def heartbeat(self, _connection: Connection, request: Command) -> Command:
        """Record a heartbeat of a broker."""
        header = read_header(request)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._now_ms())
        return request.reply(SUCCESS)

    def query_data_version(self, _connection: Connection, request: Command) -> Command:
        """Reply whether a broker has to register again."""
        header = read_header(request)
        if len(request.body) > LARGEST_VERSION:
            raise ProtocolError(f"a data version of {len(request.body)} bytes; it has {LARGEST_VERSION} at most")
        version = DATA_VERSION.loads(request.body)
        changed = self._routes.changed(header.cluster_name, header.broker_addr, version)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._now_ms())
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        return request.reply(
            SUCCESS,
            fields=write_reply(request.code, changed=changed),
            body=b"" if known is None else DATA_VERSION.dumps(known),
        )

    def members(self, _connection: Connection, request: Command) -> Command:
        """Return the addresses of all brokers with a name."""
        cluster, name = request.fields.get("clusterName", ""), request.fields.get("brokerName", "")
        return request.reply(
            SUCCESS,
            _PLACEHOLDER_REMARK,
            body=MEMBER_GROUP.dumps(BrokerData(name, cluster, self._routes.members(name))),
        )

    def disconnected(self, connection: Connection) -> None:
        """Unregister the brokers of a lost connection."""
        for live in self._routes.living_on(connection):
            text = "broker %s of cluster %s: connection closed, unregistered"
            self._note(logging.INFO, "closed", text, live.address, live.cluster)
            self._remove(live)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def expire(self) -> None:
        """Unregister brokers whose timeout has passed without a heartbeat, and close their connections."""
        for live in self._routes.expired(self._now_ms()):
            self._note(
                logging.WARNING, "silent", "broker %s of cluster %s: no sign of life for %d ms, unregistered",
                live.address, live.cluster, live.timeout_ms,
            )  # fmt: skip
            self._remove(live)
            if isinstance(live.connection, Connection):
                live.connection.close()

    def _note(self, level: int, kind: str, text: str, *values: object) -> None:
        """Log an event, at most `LINES` lines of a kind per minute, because any peer may register many brokers."""
        held = self._kinds.due(kind, self._clock.monotonic())
        if held is not None:
            _log.log(level, text + "%s", *values, f" ({held} more such lines were left out)" if held else "")

    def _remove(self, live: LiveBroker) -> None:
        self._forget_large(live.cluster, live.address)
        self._publish(self._routes.remove(live))

    def _forget_large(self, cluster: str, address: str) -> None:
        self._large.pop((cluster, address), None)
        self._arriving.pop((cluster, address), None)

    def _publish(self, change: MinBrokerChange | None) -> None:
        if change is not None and self._settings().notify_min_broker_id_changed:
            self._on_change(change)


def _place(registration: Registration) -> Place:
    return registration.cluster, registration.broker_name, registration.broker_id


async def _decode_in_turns(steps: Generator[None, None, RegisterBody]) -> RegisterBody:
    """Decode a body: all of the JSON in the side thread, then one step per turn of the event loop."""
    found = await ASIDE.run(_step, steps)
    return await in_turns(steps) if found is None else found


def _step(steps: Generator[None, None, RegisterBody]) -> RegisterBody | None:
    try:
        next(steps)
    except StopIteration as end:
        found: RegisterBody = end.value
        return found
    return None
