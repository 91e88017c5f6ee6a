"""Handlers of a name server's requests (wire.md §3.5, §8).

A handler reads the header, queries the tables, and writes the body. Apache's server accepts some requests with missing
fields (traps.md 23). The handlers of these requests do so, too: they read the plain fields instead of the typed header.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Final

from tianzhou.access.needs import LOOKUPS
from tianzhou.access.staging_choices import is_choice
from tianzhou.chained_coroutines import ChainedCoroutine
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError
from tianzhou.limits import Bounds
from tianzhou.log_levels import KEY as LOG_LEVELS
from tianzhou.logs import CHANGED_LEVELS
from tianzhou.model import TopicRoute
from tianzhou.model.name_rules import TOPIC
from tianzhou.namesrv.changeable_settings import RULES
from tianzhou.namesrv.kv import KvConfig
from tianzhou.namesrv.other_environment import ASKED_FOR_ANOTHER, OtherEnvironment
from tianzhou.namesrv.registrations import Registrations
from tianzhou.namesrv.routes import UNIT, UNIT_SUBSCRIPTION, MinBrokerChange, NamesrvRouteTable, Registration, keep_zone
from tianzhou.namesrv.settings import IGNORED, NamesrvSettings
from tianzhou.namesrv.topic_order import TopicOrder
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.access_control import AccessControl
from tianzhou.remoting.gates.admin_gate import AdminGate
from tianzhou.remoting.settings_request import SettingsRequests, log_update
from tianzhou.remoting.side_thread import ASIDE
from tianzhou.remoting.turns import Slices, Turns
from tianzhou.remoting.unserved import Unserved
from tianzhou.remoting.users.user_requests import UserRequests
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.setting_updates import Update
from tianzhou.settings import differing, dump, format_properties
from tianzhou.wire.bodies.route import CLUSTER_INFO, ROUTE, STANDARD_ROUTE
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import TOPIC_LIST, TopicList
from tianzhou.wire.codes import STANDARD_JSON_SINCE, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_reply
from tianzhou.wire.json_shape import check_objects
from tianzhou.wire.named_fields import behind_names

SUCCESS = int(ResponseCode.SUCCESS)
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
LARGE_ROUTE = 16_384
"""Size in bytes from which a route is decoded in the side thread."""
SMALL_BODY = 4_096
"""Maximum size in bytes of a body that is served at once. Requests with larger bodies take turns."""
MANY_BROKERS = 1_024
"""Number of a topic's brokers from which its route is encoded in slices."""
FLAGS: Final[Mapping[int, tuple[int, int]]] = {
    RequestCode.GET_UNIT_TOPIC_LIST: (UNIT, UNIT),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (UNIT_SUBSCRIPTION, UNIT_SUBSCRIPTION),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (UNIT_SUBSCRIPTION, UNIT | UNIT_SUBSCRIPTION),
}
"""Requests for topics by system flags: flags and mask of `NamesrvRouteTable.topics_flagged`."""
_log = logging.getLogger(__name__)

Handler = Callable[[Connection, Command], "Command | Awaitable[Command] | Slices[Command]"]


class NamesrvHandlers:
    """NamesrvHandlers of the requests of brokers, clients and tools.

    Args:
        settings: the settings at the start; `self.settings` has later changes.
        routes: the route table.
        kv: the KV configuration.
        clock: source of time.
        on_change: see `Registrations`.
        on_register: see `Registrations`.
        elsewhere: name servers of another environment, queried for unknown routes with `clusterTest`.
        bounds: the limits in force.
        access: the access gate; None serves every peer.
        users: users to manage while no check uses them; None manages the users of `access`.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        routes: NamesrvRouteTable,
        kv: KvConfig,
        clock: Clock,
        on_change: Callable[[MinBrokerChange], None],
        on_register: Callable[[Registration], None] | None = None,
        elsewhere: OtherEnvironment | None = None,
        bounds: Bounds | None = None,
        access: AccessControl | None = None,
        users: UserStore | None = None,
    ) -> None:
        self.settings = settings
        self._bounds = bounds = bounds or Bounds(settings)
        self.routes = routes
        self.kv = kv
        self._settings_requests = SettingsRequests(
            RULES, self._bounds.refusals, lambda: (self.settings,), self._take_settings
        )
        self._clock = clock
        self._elsewhere = elsewhere
        self._turns = Turns(monotonic=clock.monotonic)
        self._unserved = Unserved("name server")
        self._order = TopicOrder(kv, clock)
        self.registrations = Registrations(
            lambda: self.settings, routes, self._order, clock, bounds, on_change, on_register
        )
        self._ready_at = clock.monotonic() + settings.wait_seconds_for_service
        # With access control, accounts decide about administration instead of the peer's machine.
        gate = AdminGate("name server", lambda: access is not None or self.settings.enable_remote_admin)
        table = self._routes()
        users = access.users if users is None and access is not None else users
        if users is not None:
            table.update(UserRequests(users).routes())
        self._table: dict[int, Handler] = gate.guarded(table)
        self._behind_names = {int(code): behind_names(int(code), handler) for code, handler in self._table.items()}
        self._unknown: Handler = self._answer_unknown
        if access is not None:
            door = access.gate.door
            self._unknown = access.gate.signed(self._answer_unknown)
            opened = frozenset() if settings.require_signed_lookups else LOOKUPS
            self._behind_names = {
                code: handler if code in opened else door(code, handler) for code, handler in self._behind_names.items()
            }

    def _routes(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            RequestCode.REGISTER_BROKER: self.registrations.register,
            RequestCode.UNREGISTER_BROKER: self.registrations.unregister,
            RequestCode.BROKER_HEARTBEAT: self.registrations.heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.registrations.query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.registrations.members,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._flagged_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._flagged_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._flagged_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    @property
    def codes(self) -> frozenset[int]:
        """Request codes with a handler."""
        return frozenset(map(int, self._table))

    def handler(self, code: int) -> Handler:
        """Return the handler of a request code. Raise KeyError when there is none."""
        return self._table[code]

    def serve(self, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        """Serve a request, at once or in its turn. Errors are raised (see `tianzhou.remoting.error_codes`)."""
        handler = self._behind_names.get(request.code, self._unknown)
        if len(request.body) <= SMALL_BODY:
            reply = handler(connection, request)
            return self._sliced(reply) if isinstance(reply, Generator) else reply
        serve = self._measured if self._turns.free() else self._in_turn
        return serve(handler, connection, request)

    def _answer_unknown(self, connection: Connection, request: Command) -> Command:
        return self._unserved.answer(connection, request, " or ".join(self.routes.some_masters()))

    def _sliced(self, work: Slices[Command]) -> Command | Awaitable[Command]:
        """Return the reply of a handler that works in slices. Large requests wait for each other."""
        if not self._turns.free():
            return self._turns.in_slices(work)
        began = self._clock.monotonic()
        try:
            return self._turns.sliced(work)
        finally:
            self._turns.spend(self._clock.monotonic() - began)

    def _measured(self, handler: Handler, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        began = self._clock.monotonic()
        try:
            reply = handler(connection, request)
            return self._turns.sliced(reply) if isinstance(reply, Generator) else reply
        finally:
            self._turns.spend(self._clock.monotonic() - began)

    async def _in_turn(self, handler: Handler, connection: Connection, request: Command) -> Command:
        """Serve a slow request in its turn, so that small requests need not wait."""
        await self._turns.turn()
        reply = self._measured(handler, connection, request)
        return await reply if isinstance(reply, Awaitable) else reply

    # Routes and topics

    def _route(self, _connection: Connection, request: Command) -> Command | Awaitable[Command] | Slices[Command]:
        if self.settings.need_wait_for_service and self._clock.monotonic() < self._ready_at:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "name server not ready")
        fields = request.fields
        topic = fields.get("topic")
        if topic is not None:
            if (problem := TOPIC.problem(topic)) is not None:
                raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, problem)
            if self.routes.brokers_of(topic) > MANY_BROKERS:
                return self._large_route(request, topic)
        route = None if topic is None else self._known_route(topic)
        if route is None:
            if topic and self._elsewhere and self.settings.cluster_test and ASKED_FOR_ANOTHER not in fields:
                return self._route_elsewhere(request, topic, self._elsewhere)
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format("null" if topic is None else topic))
        return self._route_reply(request, route)

    def _known_route(self, topic: str) -> TopicRoute | None:
        route = self.routes.route(topic)
        if route is not None and (self.settings.order_message_enable or self.settings.cluster_test):
            route.order_topic_conf = self._order.of(topic)
        return route

    def _large_route(self, request: Command, topic: str) -> Slices[Command]:
        route = self._known_route(topic)
        if route is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(topic))
        yield
        route, standard = _fitted_to(request, route)
        body = yield from (STANDARD_ROUTE if standard else ROUTE).slices(route)
        return request.reply(SUCCESS, body=body)

    async def _route_elsewhere(self, request: Command, topic: str, elsewhere: OtherEnvironment) -> Command:
        route = await elsewhere.route(topic, self.settings)
        if route is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(topic))
        return self._route_reply(request, route)

    def _route_reply(self, request: Command, route: TopicRoute) -> Command:
        route, standard = _fitted_to(request, route)
        return request.reply(SUCCESS, body=(STANDARD_ROUTE if standard else ROUTE).dumps(route))

    def _cluster_info(self, _connection: Connection, request: Command) -> Slices[Command]:
        body = yield from CLUSTER_INFO.slices(self.routes.cluster_info())
        return request.reply(SUCCESS, body=body)

    def _wipe_write_permission(self, _connection: Connection, request: Command) -> Command:
        count = self.routes.set_write_permission(request.fields.get("brokerName", ""), allowed=False)
        return request.reply(SUCCESS, fields=write_reply(request.code, wipe_topic_count=count))

    def _add_write_permission(self, _connection: Connection, request: Command) -> Command:
        count = self.routes.set_write_permission(request.fields.get("brokerName", ""), allowed=True)
        return request.reply(SUCCESS, fields=write_reply(request.code, add_topic_count=count))

    def _delete_topic(self, _connection: Connection, request: Command) -> Command:
        self.routes.delete_topic(request.fields.get("topic", ""), request.fields.get("clusterName"))
        return request.reply(SUCCESS)

    def _register_topic(self, _connection: Connection, request: Command) -> Command | Awaitable[Command]:
        if len(request.body) >= LARGE_ROUTE or b"$ref" in bytes(request.body):
            return self._register_topic_aside(request)
        if request.fields.get("topic") and request.body:
            self._add_queues(request, ROUTE.loads(request.body))
        return request.reply(SUCCESS)

    async def _register_topic_aside(self, request: Command) -> Command:
        check_objects(bytes(request.body))
        self._add_queues(request, await ASIDE.run(ROUTE.loads, bytes(request.body)))
        return request.reply(SUCCESS)

    def _add_queues(self, request: Command, route: TopicRoute) -> None:
        topic = request.fields.get("topic", "")
        if topic and not self.routes.add_queues(topic, route.queue_datas):
            _log.warning("topic %s: registered for a broker that is not; ignored", topic)

    def _all_topics(self, _connection: Connection, request: Command) -> Slices[Command]:
        if not self.settings.enable_all_topic_list:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "disable")
        return request.reply(SUCCESS, body=(yield from TOPIC_LIST.slices(TopicList(self.routes.topics()))))

    def _topics_of_cluster(self, _connection: Connection, request: Command) -> Slices[Command]:
        topics = self.routes.topics_of_cluster(request.fields.get("cluster", ""))
        return request.reply(SUCCESS, body=(yield from TOPIC_LIST.slices(TopicList(topics))))

    def _system_topics(self, _connection: Connection, request: Command) -> Command:
        topics, address = self.routes.system_topics()
        return request.reply(SUCCESS, body=TOPIC_LIST.dumps(TopicList(topics, address)))

    def _flagged_topics(self, _connection: Connection, request: Command) -> Slices[Command]:
        if not self.settings.enable_topic_list:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "disable")
        topics = self.routes.topics_flagged(*FLAGS[request.code])
        return request.reply(SUCCESS, body=(yield from TOPIC_LIST.slices(TopicList(topics))))

    # KV configuration

    def _put_kv(self, _connection: Connection, request: Command) -> Awaitable[Command]:
        fields = request.fields
        if "namespace" not in fields or "key" not in fields:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        namespace, key, value = fields["namespace"], fields["key"], fields.get("value", "")
        if is_choice(request.code, namespace, key) and (decides := self.kv.get(namespace, key)) not in (None, value):
            # Two brokers that decide for one writer would both publish its batches.
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"{namespace} {key} is {decides} and is not replaced; delete it first, when no writer writes",
            )
        return self._answered_when(self.kv.put(namespace, key, value), request)

    @staticmethod
    def _answered_when(saved: Awaitable[None], request: Command) -> Awaitable[Command]:
        async def answer() -> Command:
            await saved
            return request.reply(SUCCESS)

        return ChainedCoroutine(answer(), saved)

    def _get_kv(self, _connection: Connection, request: Command) -> Command:
        namespace, key = request.fields.get("namespace"), request.fields.get("key")
        value = None if namespace is None or key is None else self.kv.get(namespace, key)
        if value is None:
            text = f"No config item, Namespace: {namespace or 'null'} Key: {key or 'null'}"
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, text)
        return request.reply(SUCCESS, fields=write_reply(request.code, value=value))

    def _delete_kv(self, _connection: Connection, request: Command) -> Awaitable[Command]:
        fields = request.fields
        saved = self.kv.delete(fields.get("namespace", ""), fields.get("key", ""))
        return self._answered_when(saved, request)

    def _list_kv(self, _connection: Connection, request: Command) -> Slices[Command]:
        namespace = request.fields.get("namespace")
        values = None if namespace is None else self.kv.namespace(namespace)
        if values is None:
            text = f"No config item, Namespace: {namespace or 'null'}"
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, text)
        return request.reply(SUCCESS, body=(yield from KV_TABLE.slices(dict(values))))

    # Configuration

    def _get_config(self, _connection: Connection, request: Command) -> Command:
        return request.reply(SUCCESS, body=format_properties(dump(self.settings, hide_secrets=True)).encode())

    def _update_config(self, connection: Connection, request: Command) -> Awaitable[Command]:
        return self._update_settings(connection, request, bytes(request.body))

    async def _update_settings(self, connection: Connection, request: Command, body: bytes) -> Command:
        update = await self._settings_requests.change(
            body,
            self.settings.config_file,
            black_list=self.settings.black_list,
            refusal=lambda key: "Can not update config in black list.",
        )
        log_update(_log, connection, update, differing(self.settings), IGNORED)
        return request.reply(SUCCESS)

    def _take_settings(self, update: Update) -> None:
        (self.settings,) = update.settings
        if LOG_LEVELS in update.changed:
            CHANGED_LEVELS.change(self.settings.log_levels)
        self._bounds.settings = self.settings
        self.routes.support_acting_master = self.settings.support_acting_master
        self.routes.delete_topics_on_register = self.settings.delete_topic_with_broker_registration


def _fitted_to(request: Command, route: TopicRoute) -> tuple[TopicRoute, bool]:
    """Return the part of a route that the reply contains, and whether the reply is in standard JSON."""
    fields = request.fields
    standard = request.version >= STANDARD_JSON_SINCE or fields.get("acceptStandardJsonOnly", "").lower() == "true"
    zone = fields.get("__ZONE_NAME", "").strip()
    if zone and fields.get("__ZONE_MODE", "").lower() == "true":
        # Apache encodes a filtered route in the old dialect, whatever the caller requested.
        return keep_zone(route, zone), False
    return route, standard
