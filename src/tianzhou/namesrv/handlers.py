"""What a name server answers to each request (wire.md §3.5, §8).

Thin: read the header, ask the tables, write the body. Where Apache's server answers a request without its fields
with success (traps.md 23), so does this one: those handlers read the bare fields instead of the typed header.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tianzhou.clock import Clock
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model import BrokerData, TopicRoute
from tianzhou.model.names import ORDER_TOPIC_CONFIG
from tianzhou.namesrv.files import replace_text
from tianzhou.namesrv.kv import KvConfig
from tianzhou.namesrv.other_environment import ASKED_FOR_ANOTHER, OtherEnvironment
from tianzhou.namesrv.routes import MinBrokerChange, Registration, RouteTable, keep_zone
from tianzhou.namesrv.settings import IDLE, NamesrvSettings
from tianzhou.remoting.answers import unsupported
from tianzhou.remoting.connection import Connection
from tianzhou.settings import apply, differing, dump, format_properties, idle_lines, parse_properties, unknown_keys
from tianzhou.wire import bodies
from tianzhou.wire.codes import STANDARD_JSON_SINCE, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply
from tianzhou.wire.hashing import crc32

SUCCESS = int(ResponseCode.SUCCESS)
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
_PLACEHOLDER_REMARK = "not set any response code"
_BROKER = "broker of connection"
LARGE_BODY = 65_536
"""Registrations of so many bytes are read a few topics at a time, and are known again when they are the same."""
_log = logging.getLogger(__name__)

Handler = Callable[[Connection, Command], "Command | Awaitable[Command]"]


class Handlers:
    """Serves the requests of brokers, clients and tools from the tables.

    Args:
        settings: as read at the start; requests change it (`settings` is always the present one).
        routes: the route table.
        kv: the KV configuration.
        clock: time.
        on_change: told when the smallest id of a broker group changes, and brokers want to know.
        on_register: told of every registration that was taken.
        elsewhere: who is asked for routes that are not known here, with `clusterTest`.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        routes: RouteTable,
        kv: KvConfig,
        clock: Clock,
        on_change: Callable[[MinBrokerChange], None],
        on_register: Callable[[Registration], None] | None = None,
        elsewhere: OtherEnvironment | None = None,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.kv = kv
        self._clock = clock
        self._on_change = on_change
        self._elsewhere = elsewhere
        self._on_register = on_register
        # What brokers with many topics registered last, and the registrations that are being read.
        self._large: dict[tuple[str, str], tuple[bytes, bodies.RegisterBody]] = {}
        self._arriving: dict[tuple[str, str], object] = {}
        self._ready_at = clock.monotonic() + settings.wait_seconds_for_service
        self._table: dict[int, Handler] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._members,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_subscription_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_subscription_only_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    @property
    def codes(self) -> frozenset[int]:
        """Codes that are served."""
        return frozenset(map(int, self._table))

    def handler(self, code: int) -> Handler:
        """Who serves a code; a KeyError when nobody does."""
        return self._table[code]

    def serve(self, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        """Answer one request, at once or later; what goes wrong is raised (see `tianzhou.remoting.answers`)."""
        handler = self._table.get(request.code)
        return unsupported(request) if handler is None else handler(connection, request)

    # Brokers

    def _register(self, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        header = read_header(request)
        if header.body_crc32 and header.body_crc32 != crc32(request.body):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        key = header.cluster_name, header.broker_addr
        self._arriving.pop(key, None)
        if len(request.body) < LARGE_BODY:
            self._large.pop(key, None)
            body = bodies.decode_register_body(request.body, header.compressed, request.version)
            return self._registered(connection, request, header, body)
        # Brokers say the same again every 30 s, and reading ten thousand topics takes as many as 30 ms.
        known = self._large.get(key)
        if known is not None and known[0] == bytes(request.body):
            return self._registered(connection, request, header, known[1])
        return self._register_large(connection, request, header)

    async def _register_large(self, connection: Connection, request: Command, header: Any) -> Command:
        """A registration of many topics, read a few at a time."""
        key, mine = (header.cluster_name, header.broker_addr), object()
        self._arriving[key] = mine
        steps = bodies.decode_register_steps(request.body, header.compressed, request.version)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                body: bodies.RegisterBody = end.value
                break
            await asyncio.sleep(0)
        if self._arriving.pop(key, None) is not mine or connection.closed:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed: the broker said something else since")
        reply = self._registered(connection, request, header, body)
        self._large[key] = bytes(request.body), body
        return reply

    def _registered(self, connection: Connection, request: Command, header: Any, body: bodies.RegisterBody) -> Command:
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
        registered = self.routes.register(said, self._clock.now_ms(), connection)
        if registered is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if _BROKER not in connection.attributes:
            connection.attributes[_BROKER] = header.broker_addr
            connection.on_close(self.disconnected)
        self._tell(registered.change)
        if self._on_register is not None:
            self._on_register(said)
        order = self.kv.namespace(ORDER_TOPIC_CONFIG) if self.settings.return_order_topic_config_to_broker else None
        return request.reply(
            SUCCESS,
            fields=write_reply(
                request.code, ha_server_addr=registered.ha_server_address, master_addr=registered.master_address
            ),
            body=b"" if order is None else bodies.encode_kv_table(order),
        )

    def _unregister(self, _connection: Connection, request: Command) -> Command:
        fields = request.fields
        self._forget_large(fields.get("clusterName", ""), fields.get("brokerAddr", ""))
        self._tell(
            self.routes.unregister(
                fields.get("clusterName", ""), fields.get("brokerName", ""), fields.get("brokerAddr", "")
            )
        )
        return request.reply(SUCCESS)

    def _heartbeat(self, _connection: Connection, request: Command) -> Command:
        header = read_header(request)
        self.routes.refresh(header.cluster_name, header.broker_addr, self._clock.now_ms())
        return request.reply(SUCCESS)

    def _query_data_version(self, _connection: Connection, request: Command) -> Command:
        header = read_header(request)
        changed = self.routes.changed(header.cluster_name, header.broker_addr, bodies.decode_data_version(request.body))
        self.routes.refresh(header.cluster_name, header.broker_addr, self._clock.now_ms())
        known = self.routes.data_version(header.cluster_name, header.broker_addr)
        return request.reply(
            SUCCESS,
            fields=write_reply(request.code, changed=changed),
            body=b"" if known is None else bodies.encode_data_version(known),
        )

    def _members(self, _connection: Connection, request: Command) -> Command:
        cluster, name = request.fields.get("clusterName", ""), request.fields.get("brokerName", "")
        return request.reply(
            SUCCESS,
            _PLACEHOLDER_REMARK,
            body=bodies.encode_member_group(BrokerData(name, cluster, self.routes.members(name))),
        )

    def disconnected(self, connection: Connection) -> None:
        """A connection is gone: the brokers that registered over it are, too."""
        for live in self.routes.living_on(connection):
            _log.info("broker %s of cluster %s: connection closed, unregistered", live.address, live.cluster)
            self._forget_large(live.cluster, live.address)
            self._tell(self.routes.remove(live))

    def expire(self) -> None:
        """Unregister the brokers that were silent for too long, and close their connections."""
        for live in self.routes.expired(self._clock.now_ms()):
            _log.warning(
                "broker %s of cluster %s: no sign of life for %d ms, unregistered",
                live.address, live.cluster, live.timeout_ms,
            )  # fmt: skip
            self._forget_large(live.cluster, live.address)
            self._tell(self.routes.remove(live))
            if isinstance(live.connection, Connection):
                live.connection.close()

    def _forget_large(self, cluster: str, address: str) -> None:
        self._large.pop((cluster, address), None)
        self._arriving.pop((cluster, address), None)

    def _tell(self, change: MinBrokerChange | None) -> None:
        if change is not None and self.settings.notify_min_broker_id_changed:
            self._on_change(change)

    # Routes and topics

    def _route(self, _connection: Connection, request: Command) -> Command | Awaitable[Command]:
        if self.settings.need_wait_for_service and self._clock.monotonic() < self._ready_at:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "name server not ready")
        fields = request.fields
        topic = fields.get("topic")
        route = None if topic is None else self.routes.route(topic)
        if route is None:
            if topic and self._elsewhere and self.settings.cluster_test and ASKED_FOR_ANOTHER not in fields:
                return self._route_elsewhere(request, topic, self._elsewhere)
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format("null" if topic is None else topic))
        if self.settings.order_message_enable or self.settings.cluster_test:
            route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, str(topic))
        return self._route_reply(request, route)

    async def _route_elsewhere(self, request: Command, topic: str, elsewhere: OtherEnvironment) -> Command:
        route = await elsewhere.route(topic, self.settings)
        if route is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(topic))
        return self._route_reply(request, route)

    def _route_reply(self, request: Command, route: TopicRoute) -> Command:
        fields = request.fields
        standard = request.version >= STANDARD_JSON_SINCE or fields.get("acceptStandardJsonOnly", "").lower() == "true"
        zone = fields.get("__ZONE_NAME", "").strip()
        if zone and fields.get("__ZONE_MODE", "").lower() == "true":
            # Apache writes a filtered route anew in the old dialect, whatever the caller asked for.
            route, standard = keep_zone(route, zone), False
        return request.reply(SUCCESS, body=bodies.encode_route(route, standard=standard))

    def _cluster_info(self, _connection: Connection, request: Command) -> Command:
        return request.reply(SUCCESS, body=bodies.encode_cluster_info(self.routes.cluster_info()))

    def _wipe_write_permission(self, _connection: Connection, request: Command) -> Command:
        count = self.routes.set_write_permission(request.fields.get("brokerName", ""), allowed=False)
        return request.reply(SUCCESS, fields=write_reply(request.code, wipe_topic_count=count))

    def _add_write_permission(self, _connection: Connection, request: Command) -> Command:
        count = self.routes.set_write_permission(request.fields.get("brokerName", ""), allowed=True)
        return request.reply(SUCCESS, fields=write_reply(request.code, add_topic_count=count))

    def _delete_topic(self, _connection: Connection, request: Command) -> Command:
        self.routes.delete_topic(request.fields.get("topic", ""), request.fields.get("clusterName"))
        return request.reply(SUCCESS)

    def _register_topic(self, _connection: Connection, request: Command) -> Command:
        topic = request.fields.get("topic")
        if topic and request.body:
            queues = bodies.decode_route(request.body).queue_datas
            if not self.routes.add_queues(topic, queues):
                _log.warning("topic %s: registered for a broker that is not; ignored", topic)
        return request.reply(SUCCESS)

    def _all_topics(self, _connection: Connection, request: Command) -> Command:
        if not self.settings.enable_all_topic_list:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "disable")
        return request.reply(SUCCESS, body=bodies.encode_topic_list(self.routes.topics()))

    def _topics_of_cluster(self, _connection: Connection, request: Command) -> Command:
        topics = self.routes.topics_of_cluster(request.fields.get("cluster", ""))
        return request.reply(SUCCESS, body=bodies.encode_topic_list(topics))

    def _system_topics(self, _connection: Connection, request: Command) -> Command:
        topics, address = self.routes.system_topics()
        return request.reply(SUCCESS, body=bodies.encode_topic_list(topics, broker_addr=address))

    def _unit_topics(self, _connection: Connection, request: Command) -> Command:
        return self._topic_list(request, self.routes.unit_topics())

    def _unit_subscription_topics(self, _connection: Connection, request: Command) -> Command:
        return self._topic_list(request, self.routes.unit_subscription_topics())

    def _unit_subscription_only_topics(self, _connection: Connection, request: Command) -> Command:
        return self._topic_list(request, self.routes.unit_subscription_only_topics())

    def _topic_list(self, request: Command, topics: list[str]) -> Command:
        if not self.settings.enable_topic_list:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "disable")
        return request.reply(SUCCESS, body=bodies.encode_topic_list(topics))

    # KV configuration

    def _put_kv(self, _connection: Connection, request: Command) -> Command:
        fields = request.fields
        if "namespace" not in fields or "key" not in fields:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self.kv.put(fields["namespace"], fields["key"], fields.get("value", ""))
        return request.reply(SUCCESS)

    def _get_kv(self, _connection: Connection, request: Command) -> Command:
        namespace, key = request.fields.get("namespace"), request.fields.get("key")
        value = None if namespace is None or key is None else self.kv.get(namespace, key)
        if value is None:
            text = f"No config item, Namespace: {namespace or 'null'} Key: {key or 'null'}"
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, text)
        return request.reply(SUCCESS, fields=write_reply(request.code, value=value))

    def _delete_kv(self, _connection: Connection, request: Command) -> Command:
        self.kv.delete(request.fields.get("namespace", ""), request.fields.get("key", ""))
        return request.reply(SUCCESS)

    def _list_kv(self, _connection: Connection, request: Command) -> Command:
        namespace = request.fields.get("namespace")
        values = None if namespace is None else self.kv.namespace(namespace)
        if values is None:
            text = f"No config item, Namespace: {namespace or 'null'}"
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, text)
        return request.reply(SUCCESS, body=bodies.encode_kv_table(values))

    # Configuration

    def _get_config(self, _connection: Connection, request: Command) -> Command:
        return request.reply(SUCCESS, body=format_properties(dump(self.settings)).encode())

    def _update_config(self, _connection: Connection, request: Command) -> Command:
        if not request.body:
            return request.reply(SUCCESS)
        try:
            values = parse_properties(bytes(request.body).decode(), source="the request")
        except UnicodeDecodeError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"UnsupportedEncodingException {error}") from None
        if not self.settings.black_list.isdisjoint(values):
            raise BrokerError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        for key, near in unknown_keys(values, NamesrvSettings).items():
            _log.warning("configuration update: unknown key %s ignored%s", key, f"; meant {near}?" if near else "")
        changed = apply(self.settings, values, source="the request")
        before = dump(self.settings)
        news = [key for key in differing(changed) if dump(changed)[key] != before[key]]
        for line in idle_lines(news, IDLE):
            _log.warning("configuration update: %s", line)
        try:
            replace_text(changed.config_file, format_properties(dump(changed)))
        except ConfigError as error:
            # As at Apache's, the new values count; only a restart would lose them.
            _log.error("configuration update is not kept over a restart: %s", error)
        self.settings = changed
        self.routes.support_acting_master = changed.support_acting_master
        self.routes.delete_topics_on_register = changed.delete_topic_with_broker_registration
        return request.reply(SUCCESS)
