"""Clients coming and going (34, 35, 46), and who is there (38, 203, 204, 328) (broker.md §15)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from tianzhou.broker.admission import topic_sys_flag
from tianzhou.broker.clients import Client, ConsumerGroup, Departure
from tianzhou.broker.consumer_filters import TAG_TYPES
from tianzhou.broker.member_news import MemberNews
from tianzhou.broker.selection import compile_wish
from tianzhou.broker.stats import BrokerStats
from tianzhou.broker.tables import Tables
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError, FilterSyntaxError
from tianzhou.filter import parse_tags
from tianzhou.model import ConsumerData, ConsumeType, MessageModel, names
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.bodies import Connection as ConnectionBody
from tianzhou.wire.bodies import (
    ConsumerConnection,
    ProducerInfo,
    decode_client_config_check,
    decode_heartbeat,
    encode_consumer_connection,
    encode_consumer_ids,
    encode_producer_connection,
    encode_producer_table,
)
from tianzhou.wire.codes import LanguageCode, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

_log = logging.getLogger(__name__)
_ATTRIBUTE = "broker.clients"
NOTIFY_S = 15.0
"""When members are told of changes, unless they are told at once."""


class ClientHandler:
    """Keeps the client table and tells consumers when their group changes.

    Args:
        tables: the broker's state.
        stats: counts registrations.
        clock: wall-clock and monotonic time.
    """

    def __init__(self, tables: Tables, stats: BrokerStats, clock: Clock) -> None:
        self._tables = tables
        self._stats = stats
        self._untold: set[str] = set()
        self._news = MemberNews(self._listeners)
        self._clock = clock

    def routes(self) -> dict[int, Callable[[Connection, Command], Reply | Awaitable[Reply]]]:
        """Request codes and who serves them."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def heartbeat(self, connection: Connection, command: Command) -> Reply:
        """Note a client and its groups; new members make the group rebalance at once."""
        said = decode_heartbeat(command.body)
        now = self._clock.now_ms()
        client = Client(connection, said.client_id, command.language, command.version, now)
        if _ATTRIBUTE not in connection.attributes:
            connection.attributes[_ATTRIBUTE] = said.client_id
            connection.on_close(self._closed)
        for consumer in said.consumers:
            self._consumer(consumer, client, said.without_sub, now)
        for group in said.producer_groups:
            began = self._clock.monotonic()
            self._take_producer(group, client)
            self._registered("PRODUCER_REGISTER_TIME", began)
        # Every heartbeat is treated as a full one's turn: the client then always sends its subscriptions.
        fields = write_reply(command.code, is_support_heart_beat_v2=True, is_sub_change=True)
        return command.reply(ResponseCode.SUCCESS, None, fields)

    def _take_producer(self, group: str, client: Client) -> None:
        clients, settings = self._tables.clients, self._tables.settings
        # As RocketMQ has it: a broker without transactions has nothing to ask producers.
        if (
            settings.enable_register_producer
            or not settings.reject_transaction_message
            or client.connection in clients.producers.get(group, ())
        ):
            clients.add_producer(group, client)

    def _registered(self, name: str, began: float) -> None:
        self._stats.count(name, self._stats.cluster, int((self._clock.monotonic() - began) * 1000))

    def _consumer(self, said: ConsumerData, client: Client, without_sub: bool, now_ms: int) -> None:
        tables = self._tables
        group = tables.groups.find(said.group_name, now_ms)
        if group is None:
            return
        if tables.settings.reject_pull_consumer_enable and said.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return
        topics = (tables.topics.get(one.topic) for one in said.subscription_data_set)
        tables.topics.ensure(
            names.retry_topic(said.group_name),
            group.retry_queue_nums,
            now_ms,
            order=any(config is not None and config.order for config in topics),
            sys_flag=topic_sys_flag(said.unit_mode, is_retry=True),
        )
        began = self._clock.monotonic()
        changed = tables.clients.add_consumer(said, client, keep_subscriptions=without_sub)
        self._registered("CONSUMER_REGISTER_TIME", began)
        if changed:
            self._notify(group.group_name)
        if not without_sub:
            for problem in tables.filters.register(said.group_name, said.subscription_data_set, now_ms):
                _log.warning("%s", problem)
        online = tables.clients.consumers[said.group_name]
        if online.news:
            online.news = False
            _log.warning(
                "members of group %s subscribe different things, so messages will be missed: %s; let all subscribe"
                " the same topics with the same expressions",
                said.group_name,
                online.examples(),
            )

    def _notify(self, group: str) -> None:
        if self._tables.settings.real_time_notify_consumer_change:
            self._news.tell(group)
        else:
            if not self._untold:
                asyncio.get_running_loop().call_later(NOTIFY_S, self.notify_waiting)
            self._untold.add(group)

    def notify_waiting(self) -> None:
        """Tell the members of all groups that changed since last time (`realTimeNotifyConsumerChange` is off)."""
        untold, self._untold = self._untold, set()
        for group in untold:
            self._news.tell(group)

    def _listeners(self, name: str) -> list[Connection]:
        """Connections of the members of a group that want to hear of others."""
        tables = self._tables
        group, online = tables.groups.get(name), tables.clients.consumers.get(name)
        if group is None or online is None or online.message_model is MessageModel.BROADCASTING:
            return []
        if not (group.notify_consumer_ids_changed_enable and tables.settings.notify_consumer_ids_changed_enable):
            return []
        return [cast("Connection", connection) for connection in online.clients]

    def _left(self, departures: Iterable[Departure]) -> None:
        """Free the locks of who left, and tell who stays."""
        for departure in departures:
            if not self._tables.clients.is_member(departure.group, departure.client_id):
                self._tables.locks.release(departure.group, departure.client_id)
            if departure.group not in self._tables.clients.consumers:
                self._tables.filters.unregister(departure.group, self._clock.now_ms())
            self._notify(departure.group)

    def _closed(self, connection: Connection) -> None:
        self._left(self._tables.clients.remove_connection(connection))

    def sweep(self) -> None:
        """Close connections whose clients have been silent too long; closing does the rest."""
        limit = self._tables.settings.channel_expired_timeout
        for connection in self._tables.clients.silent(self._clock.now_ms(), limit):
            assert isinstance(connection, Connection)
            _log.warning("closing %s: no heartbeat for %d ms (channelExpiredTimeout)", connection, limit)
            connection.close()

    def unregister(self, connection: Connection, command: Command) -> Reply:
        """A client leaves a group; its locks are free and the others rebalance at once."""
        # Without any field the answer is success, too (docs/spec/traps.md, 23).
        producers, consumers = command.fields.get("producerGroup"), command.fields.get("consumerGroup")
        clients = self._tables.clients
        if producers:
            clients.remove_producer(producers, connection)
        if consumers:
            departure = clients.remove_consumer(consumers, connection)
            self._left([] if departure is None else [departure])
        return command.reply(ResponseCode.SUCCESS)

    def check_config(self, connection: Connection, command: Command) -> Reply:
        """Whether this broker can evaluate a subscription."""
        if command.body:
            data = decode_client_config_check(command.body).subscription_data
            if data.expression_type not in TAG_TYPES:
                compile_wish(self._tables.settings, data.expression_type, data.sub_string)
                return command.reply(ResponseCode.SUCCESS)
            try:
                parse_tags(data.sub_string)
            except FilterSyntaxError as error:
                raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return command.reply(ResponseCode.SUCCESS)

    def consumer_ids(self, connection: Connection, command: Command) -> Reply:
        """Ids of a group's members, from which each computes its share of the queues."""
        name = read_header(command).consumer_group
        group = self._tables.clients.consumers.get(name)
        if group is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        if group.ids_body is None:
            group.ids_body = encode_consumer_ids(group.client_ids())
        return command.reply(ResponseCode.SUCCESS, body=group.ids_body)

    def consumer_connections(self, connection: Connection, command: Command) -> Reply:
        """A group's members and what it subscribes."""
        name = read_header(command).consumer_group
        group = self._tables.clients.consumers.get(name)
        if group is None:
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = encode_consumer_connection(
            ConsumerConnection(
                [_shown(client) for client in group.clients.values()],
                {topic: subscription.data for topic, subscription in group.subscriptions.items()},
                group.consume_type,
                group.message_model,
                group.consume_from_where,
                group.conflicts or None,
                _expressions(group) or None,
            )
        )
        return command.reply(ResponseCode.SUCCESS, body=body)

    def producer_connections(self, connection: Connection, command: Command) -> Reply:
        """A producer group's members."""
        name = read_header(command).producer_group
        clients = self._tables.clients.producers.get(name)
        if clients is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = encode_producer_connection([_shown(client) for client in clients.values()])
        return command.reply(ResponseCode.SUCCESS, body=body)

    def all_producers(self, connection: Connection, command: Command) -> Reply:
        """All producer groups and their members."""
        table = {
            group: [_producer(client) for client in clients.values()]
            for group, clients in self._tables.clients.producers.items()
        }
        return command.reply(ResponseCode.SUCCESS, body=encode_producer_table(table))


def _expressions(group: ConsumerGroup) -> dict[str, dict[str, str]]:
    return {
        client: {topic: expression for topic, (expression, _) in wishes.items()}
        for client, wishes in group.disagreement().items()
    }


def _language(code: int) -> str:
    try:
        return LanguageCode(code).name
    except ValueError:
        return LanguageCode.OTHER.name


def _shown(client: Client) -> ConnectionBody:
    return ConnectionBody(
        client.client_id, _connection(client).remote_address, _language(client.language), client.version
    )


def _producer(client: Client) -> ProducerInfo:
    return ProducerInfo(
        client.client_id,
        f"/{_connection(client).remote_address}",
        _language(client.language),
        client.version,
        client.seen_ms,
    )


def _connection(client: Client) -> Connection:
    assert isinstance(client.connection, Connection)
    return client.connection
