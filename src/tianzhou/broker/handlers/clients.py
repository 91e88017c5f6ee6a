"""Heartbeats, exits and checks of clients (34, 35, 46), lists of members (38, 203, 204, 328) (broker.md §15)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable, Iterator
from typing import cast

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.large_bodies import SHORT, Decoded, decoded, read_expression
from tianzhou.broker.messages.admission import topic_sys_flag
from tianzhou.broker.messages.message_filter import compile_property_filter
from tianzhou.broker.rebalance_notifier import RebalanceNotifier
from tianzhou.broker.services import Services
from tianzhou.broker.tables.clients import Departure, MemberSubscriptions, RegisteredClient
from tianzhou.broker.tables.consumer_filters import TAG_TYPES
from tianzhou.errors import BrokerError, FilterSyntaxError, IllegalName, LimitExceeded, TianzhouError
from tianzhou.filter import parse_tags
from tianzhou.limits import FILTER_LENGTH, GROUP_SUBSCRIPTIONS, HEARTBEAT_GROUPS
from tianzhou.model import ConsumerData, ConsumeType, HeartbeatData, MessageModel, SubscriptionData, names
from tianzhou.model.name_rules import CLIENT_ID, GROUP, TOPIC
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Pace, Slices
from tianzhou.repeats import Repeats
from tianzhou.wire.bodies.clients import (
    CONSUMER_CONNECTION,
    CONSUMER_IDS,
    PRODUCER_CONNECTION,
    PRODUCER_TABLE,
    ConsumerConnection,
    ProducerInfo,
)
from tianzhou.wire.bodies.clients import Connection as ConnectionBody
from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, HEARTBEAT
from tianzhou.wire.codes import LanguageCode, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

_log = logging.getLogger(__name__)
_ATTRIBUTE = "broker.clients"
COMPLAINTS_LOGGED = 100
"""Maximum log lines a minute about faulty heartbeats that are served."""
NOTIFY_S = 15.0
"""Seconds from a change to the notification of members when `realTimeNotifyConsumerChange` is off."""


class ClientHandler(Handler):
    """Handler that maintains the client table and notifies consumers when their group changes."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._access = services.access
        self._waiting_groups: set[str] = set()
        self._complaints = Repeats(COMPLAINTS_LOGGED)
        self._notifier = RebalanceNotifier(self._listeners)

    @serves(RequestCode.HEART_BEAT)
    def heartbeat(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Add or refresh a client and its groups; new members make the group rebalance at once."""
        data = decoded(command, HEARTBEAT.loads)
        CLIENT_ID.check(data.client_id)
        self._check_size(data)
        steps = self._heartbeat_steps(connection, command, data)
        if type(command.body) is Decoded:
            return self._in_turns(command, steps)
        for _ in steps:
            pass
        return self._heartbeat_reply(command)

    async def _in_turns(self, command: Command, steps: Iterator[str]) -> Reply:
        """Serve a large heartbeat in slices."""
        async with Pace(self._turns, behind=False) as pace:
            for expression in steps:
                if expression:
                    await read_expression(expression)
                await pace.rest()
        return self._heartbeat_reply(command)

    def _check_size(self, data: HeartbeatData) -> None:
        """Check a heartbeat against the limits before any of its groups is added.

        Raises:
            LimitExceeded: the heartbeat exceeds a limit.
        """
        settings, check = self._tables.settings, self._tables.refusals.check
        groups = len(data.consumers) + len(data.producer_groups)
        check(HEARTBEAT_GROUPS, groups, settings.max_groups_per_heartbeat)
        for consumer in data.consumers:
            subscriptions = consumer.subscription_data_set
            if len(subscriptions) > settings.max_subscriptions_per_group:
                where = f"subscriptions of group {consumer.group_name}"
                check(GROUP_SUBSCRIPTIONS, len(subscriptions), settings.max_subscriptions_per_group, where)
            longest = max((len(one.sub_string) for one in subscriptions), default=0)
            check(FILTER_LENGTH, longest, settings.max_filter_expression_length)

    def _heartbeat_steps(self, connection: Connection, command: Command, data: HeartbeatData) -> Iterator[str]:
        """Add or refresh a client's groups; between them yield expressions to compile, or empty texts.

        Raises:
            TianzhouError: a group was refused; this is the first refusal, and all other groups were added.
        """
        now = self._clock.now_ms()
        account = self._access.account_of(connection) if self._access is not None else ""
        client = RegisteredClient(
            connection, data.client_id, command.language, command.version, now, self._clock.monotonic(), account
        )
        if _ATTRIBUTE not in connection.attributes:
            connection.attributes[_ATTRIBUTE] = data.client_id
            connection.on_close(self._closed)
        # Keep only the first refusal: each exception holds its frames, and there may be thousands.
        refusal: TianzhouError | None = None
        full = False
        for consumer in data.consumers:
            if (problem := _name_problem(consumer)) is not None:
                refusal = refusal or IllegalName(problem)
                continue
            yield from _read_expressions(consumer.subscription_data_set)
            try:
                self._consumer(consumer, client, data.without_sub, now)
            except LimitExceeded as error:
                refusal = refusal or error  # the client stays a member of its other groups
            yield ""
        for group in data.producer_groups:
            if (problem := GROUP.problem(group)) is not None:
                refusal = refusal or IllegalName(problem)
                continue
            if full and connection not in self._tables.clients.producers.get(group, ()):
                continue
            began = self._clock.monotonic()
            try:
                self._take_producer(group, client)
            except LimitExceeded as error:
                refusal, full = refusal or error, True
            except BrokerError as error:
                refusal = refusal or error
            self._registered("PRODUCER_REGISTER_TIME", began)
            yield ""
        if refusal is not None:
            # Raise after all groups, so that the other groups of the client are added.
            raise refusal

    @staticmethod
    def _heartbeat_reply(command: Command) -> Reply:
        # Request a full heartbeat each time, so that the client always sends its subscriptions.
        fields = write_reply(command.code, is_support_heart_beat_v2=True, is_sub_change=True)
        return command.reply(ResponseCode.SUCCESS, None, fields)

    def _take_producer(self, group: str, client: RegisteredClient) -> None:
        clients, settings = self._tables.clients, self._tables.settings
        # As in RocketMQ: a broker without transactions sends no requests to producers.
        if (
            settings.enable_register_producer
            or not settings.reject_transaction_message
            or client.connection in clients.producers.get(group, ())
        ):
            clients.add_producer(group, client)

    def _registered(self, name: str, began: float) -> None:
        self._stats.count(name, self._stats.cluster, int((self._clock.monotonic() - began) * 1000))

    def _consumer(self, consumer: ConsumerData, client: RegisteredClient, without_sub: bool, now_ms: int) -> None:
        tables = self._tables
        group = tables.groups.find(consumer.group_name, now_ms)
        if group is None:
            return
        if tables.settings.reject_pull_consumer_enable and consumer.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return
        topics = (tables.topics.get(one.topic) for one in consumer.subscription_data_set)
        tables.topics.ensure(
            names.retry_topic(consumer.group_name),
            group.retry_queue_nums,
            now_ms,
            order=any(config is not None and config.order for config in topics),
            sys_flag=topic_sys_flag(consumer.unit_mode, is_retry=True),
        )
        began = self._clock.monotonic()
        changed = tables.clients.add_consumer(consumer, client, keep_subscriptions=without_sub)
        self._registered("CONSUMER_REGISTER_TIME", began)
        if changed:
            self._notify(group.group_name)
        if not without_sub:
            for problem in tables.filters.register(consumer.group_name, consumer.subscription_data_set, now_ms):
                self._complain("%s", problem)
        online = tables.clients.consumers[consumer.group_name]
        if online.new_conflict:
            online.new_conflict = False
            self._complain(
                "members of group %s subscribe different things, so messages will be missed: %s; let all subscribe"
                " the same topics with the same expressions",
                consumer.group_name,
                online.examples(),
            )

    def _complain(self, text: str, *values: object) -> None:
        """Log a fault of a heartbeat, rate-limited so that many groups cannot fill the log."""
        if (held := self._complaints.due("", self._clock.monotonic())) is not None:
            more = f" ({held} more lines about heartbeats were left out since)" if held else ""
            _log.warning(text + more, *values)

    def _notify(self, group: str) -> None:
        if self._tables.settings.real_time_notify_consumer_change:
            self._notifier.notify(group)
        else:
            if not self._waiting_groups:
                asyncio.get_running_loop().call_later(NOTIFY_S, self.notify_waiting)
            self._waiting_groups.add(group)

    def notify_waiting(self) -> None:
        """Notify the members of all groups that changed since the last call (`realTimeNotifyConsumerChange` is off)."""
        groups, self._waiting_groups = self._waiting_groups, set()
        for group in groups:
            self._notifier.notify(group)

    def _listeners(self, name: str) -> list[Connection]:
        """Return the connections to notify of a group's change.

        A and group and a group with notifications off have none.
        """
        tables = self._tables
        group, online = tables.groups.get(name), tables.clients.consumers.get(name)
        if group is None or online is None or online.message_model is MessageModel.BROADCASTING:
            return []
        if not (group.notify_consumer_ids_changed_enable and tables.settings.notify_consumer_ids_changed_enable):
            return []
        return [cast("Connection", connection) for connection in online.clients]

    def _departed(self, departures: Iterable[Departure]) -> None:
        """Release the locks of departed members, and notify the remaining members."""
        for departure in departures:
            if not self._tables.clients.is_member(departure.group, departure.client_id):
                self._tables.locks.release(departure.group, departure.client_id)
            if departure.group not in self._tables.clients.consumers:
                self._tables.filters.unregister(departure.group, self._clock.now_ms())
            self._notify(departure.group)

    def _closed(self, connection: Connection) -> None:
        self._departed(self._tables.clients.remove_connection(connection))

    def sweep(self) -> None:
        """Close connections whose clients were silent for too long; the close removes the clients."""
        limit = self._tables.settings.channel_expired_timeout
        for connection in self._tables.clients.silent(self._clock.monotonic(), limit / 1000):
            assert isinstance(connection, Connection)
            _log.warning("closing %s: no heartbeat for %d ms (channelExpiredTimeout)", connection, limit)
            connection.close()

    @serves(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, connection: Connection, command: Command) -> Reply:
        """Remove a client from a group; its locks are released and the others rebalance at once."""
        # Without any field the answer is success, too (docs/spec/traps.md, 23).
        producers, consumers = command.fields.get("producerGroup"), command.fields.get("consumerGroup")
        clients = self._tables.clients
        if producers:
            clients.remove_producer(producers, connection)
        if consumers:
            departure = clients.remove_consumer(consumers, connection)
            self._departed([] if departure is None else [departure])
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.CHECK_CLIENT_CONFIG)
    def check_config(self, connection: Connection, command: Command) -> Reply:
        """Check that this broker can evaluate a subscription."""
        if command.body:
            data = decoded(command, CLIENT_CONFIG_CHECK.loads).subscription_data
            if data.expression_type not in TAG_TYPES:
                compile_property_filter(
                    self._tables.settings, self._tables.refusals, data.expression_type, data.sub_string
                )
                return command.reply(ResponseCode.SUCCESS)
            try:
                parse_tags(data.sub_string)
            except FilterSyntaxError as error:
                raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def consumer_ids(self, connection: Connection, command: Command) -> Reply:
        """Return the ids of a group's members, from which each member computes its share of the queues."""
        name = read_header(command).consumer_group
        group = self._tables.clients.consumers.get(name)
        if group is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        if group.ids_body is None:
            group.ids_body = CONSUMER_IDS.dumps(group.client_ids())
        return command.reply(ResponseCode.SUCCESS, body=group.ids_body)

    @serves(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumer_connections(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return a group's members and subscriptions."""
        name = read_header(command).consumer_group
        group = self._tables.clients.consumers.get(name)
        if group is None:
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        different = group.differing()
        shared = ConsumerConnection(
            [],
            {topic: subscription.data for topic, subscription in group.subscriptions.items()},
            group.consume_type,
            group.message_model,
            group.consume_from_where,
            group.conflicts or None,
            {} if different else None,
        )
        members = map(_shown, list(group.clients.values()))
        body = yield from CONSUMER_CONNECTION.slices_of(shared, members, map(_expressions, different))
        return command.reply(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producer_connections(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return a producer group's members."""
        name = read_header(command).producer_group
        clients = self._tables.clients.producers.get(name)
        if clients is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = yield from PRODUCER_CONNECTION.slices(map(_shown, list(clients.values())))
        return command.reply(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return all producer groups and their members."""
        groups = list(self._tables.clients.producers.items())
        table = ((group, map(_producer, list(clients.values()))) for group, clients in groups)
        body = yield from PRODUCER_TABLE.slices(table)
        return command.reply(ResponseCode.SUCCESS, body=body)


def _name_problem(consumer: ConsumerData) -> str | None:
    problems = (TOPIC.problem(one.topic) for one in consumer.subscription_data_set)
    return GROUP.problem(consumer.group_name) or next(filter(None, problems), None)


def _read_expressions(subscriptions: Iterable[SubscriptionData]) -> Iterator[str]:
    """Parse long tag expressions into the cache; yield SQL92 expressions to compile, or empty texts."""
    for data in subscriptions:
        if len(data.sub_string) <= SHORT:
            continue
        if data.expression_type in TAG_TYPES:
            with contextlib.suppress(FilterSyntaxError):
                parse_tags(data.sub_string)
            yield ""
        else:
            yield data.sub_string


def _expressions(member: tuple[RegisteredClient, MemberSubscriptions]) -> tuple[str, dict[str, str]]:
    client, subscribed = member
    return client.client_id, {topic: expression for topic, (expression, _) in subscribed.items()}


def _language(code: int) -> str:
    try:
        return LanguageCode(code).name
    except ValueError:
        return LanguageCode.OTHER.name


def _shown(client: RegisteredClient) -> ConnectionBody:
    return ConnectionBody(
        client.client_id, _connection(client).remote_address, _language(client.language), client.version
    )


def _producer(client: RegisteredClient) -> ProducerInfo:
    return ProducerInfo(
        client.client_id,
        f"/{_connection(client).remote_address}",
        _language(client.language),
        client.version,
        client.seen_ms,
    )


def _connection(client: RegisteredClient) -> Connection:
    assert isinstance(client.connection, Connection)
    return client.connection
