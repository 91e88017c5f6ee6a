"""Pulls: codes 11 and 361, and waiting for messages that are not there yet (broker.md §9, §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from tianzhou._hot import pull_reply
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.large_bodies import read_expression
from tianzhou.broker.messages.dictated_offsets import DictatedOffsets
from tianzhou.broker.messages.long_poll import LongPoll
from tianzhou.broker.messages.message_filter import (
    Selection,
    by_entry,
    by_expression,
    by_original_topic,
    check_served,
    compile_property_filter,
    expression_problem,
)  # fmt: skip
from tianzhou.broker.messages.pull_codes import (
    OUTSIDE,
    PullForbidden,
    back_to_committed,
    pull_code,
    status_name,
    without_correction,
)  # fmt: skip
from tianzhou.broker.messages.pull_request import PullRequest, reading_of, suggested_broker
from tianzhou.broker.messages.pull_runs import PullRuns
from tianzhou.broker.messages.timer_heap import TimerHeap
from tianzhou.broker.messages.woken_polls import WokenPolls
from tianzhou.broker.services import Services
from tianzhou.broker.tables.broadcast_offsets import BY_PROXY, SUFFIX
from tianzhou.broker.tables.clients import Subscription
from tianzhou.broker.tables.consumer_filters import TAG_TYPES
from tianzhou.errors import BrokerError, FilterSyntaxError
from tianzhou.filter import COMPILED, SQL92, parse_tags
from tianzhou.limits import CONNECTION_POLLS, FILTER_LENGTH, LONG_POLLS
from tianzhou.model import ConsumeType, MessageModel, names
from tianzhou.records.layout import AT, POSITION
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Turns
from tianzhou.store.reader import ColdRead
from tianzhou.store.results import GetResult, GetStatus, ReadRequest
from tianzhou.wire.codes import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

WORK_S = 3e-7
CHARACTER_S = 5e-7
"""About how long a comparison takes, and to read a character of an expression."""
LONG = 2048
"""Longer expressions of tags count as work that others may have to wait for."""

_FORBIDDEN_BROKER, _FORBIDDEN_GROUP, _FORBIDDEN_TOPIC, _FORBIDDEN_BROADCAST, _FORBIDDEN_SUBSCRIPTION = range(1, 6)


class PullHandler(Handler):
    """Gives consumers what their queues hold; `runs` serves pulls that are like those that were served before."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._held: dict[tuple[str, str, int], dict[LongPoll, None]] = {}
        self._waiting = 0
        self._deadlines = TimerHeap()
        self._woken = WokenPolls(services.store)
        self._turns = Turns()
        self._in_turn = False
        self._dictated = DictatedOffsets(self._tables, self._replication)
        self._tables.offsets.on_reset = self._wake
        self.runs = PullRuns(services, self._hold_run)

    @serves(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Answer with messages, or with why there are none; or wait for some, when that is wanted."""
        header = command.header
        if header is None:
            header = read_header(command)
        try:
            request = self._check(connection, command, header)
        except _NotYet:
            return self._pull_in_turn(connection, command, header)
        except PullForbidden as refusal:
            fields = write_reply(RequestCode.PULL_MESSAGE, forbidden_type=refusal.kind)
            return command.reply(refusal.code, refusal.remark, fields)
        offsets = self._tables.offsets
        if (dictated := self._dictated.take(connection, header)) is not None:
            return self._tell_offset(request, dictated)
        if self._tables.settings.enable_broadcast_offset_store:
            client_id = self._dictated.broadcaster(connection, header)
            if client_id is not None:
                reply = self._note_broadcast(request, client_id)
                if reply is not None:
                    return reply
        if header.sys_flag & COMMIT_OFFSET:
            now_ms = self._clock.now_ms()
            offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset, now_ms)
        found = self._store.read(request.reading)
        accept = request.selection.accept
        if accept is not None:
            self._turns.spend(accept.work * WORK_S)
        if not isinstance(found, GetResult):
            return self._when_read(connection, request, found)
        if found.status is GetStatus.FOUND:
            self.runs.learn(request)
        else:
            found = self._bounded(request, found)
            if self._may_wait(header, found):
                self.runs.learn(request)
                return self._hold(LongPoll(self, connection, request, found))
        return self._answer(request, found)

    async def _pull_in_turn(self, connection: Connection, command: Command, header: Any) -> Reply:
        """As `pull`, when those before are done who select by expressions, too."""
        if header.expression_type == SQL92:
            await read_expression(header.subscription or "")
        await self._turns.turn()
        self._in_turn = True
        try:
            reply = self.pull(connection, command)
        finally:
            self._in_turn = False
        while isinstance(reply, Awaitable):
            reply = await reply
        return reply

    def _begin(self, expression: str = "") -> None:
        """Before an expression is read: whether it is its turn, and who comes after has to wait for it."""
        unread = len(expression) > LONG and expression not in COMPILED
        if not self._in_turn and (unread or not self._turns.free()):
            raise _NotYet
        self._turns.spend(len(expression) * CHARACTER_S)

    def turn(self, pull: LongPoll) -> asyncio.Future[None] | None:
        """None when a held pull may look again now; else what is done when it is its turn."""
        if pull.request.selection.accept is None:
            return None
        place, pull.in_line = pull.in_line, None
        if self._turns.free(place):
            return None
        pull.in_line = self._turns.wait(place)
        return pull.in_line

    def _may_wait(self, header: Any, found: GetResult) -> bool:
        # Nearly all that wait have read all there is; the other statuses are slow keys.
        at_end = found.status is GetStatus.OFFSET_OVERFLOW_ONE
        code = ResponseCode.PULL_NOT_FOUND if at_end else self._code(found, header.queue_offset)
        suspends = code is ResponseCode.PULL_NOT_FOUND and header.sys_flag & SUSPEND != 0
        return suspends and not self._replication.near_master

    def _bounded(self, request: PullRequest, found: GetResult) -> GetResult:
        """Return what a read found, without a corrected offset where this broker may not correct one."""
        header, offset = request.header, request.reading.offset
        if not self._replication.corrects_offsets:
            return without_correction(found, offset)
        if found.status is not GetStatus.OFFSET_OVERFLOW_BADLY:
            return found
        committed = self._tables.offsets.committed(header.consumer_group, header.topic, header.queue_id)
        return back_to_committed(found, committed)

    def _code(self, found: GetResult, offset: int) -> ResponseCode:
        unknown = found.status in OUTSIDE and not self._replication.corrects_offsets
        return ResponseCode.PULL_NOT_FOUND if unknown else pull_code(found.status, offset)

    def _tell_offset(self, request: PullRequest, offset: int) -> Reply:
        """Have the consumer go on at another offset than it requested."""
        header = request.header
        found = GetResult(
            GetStatus.OFFSET_TOO_SMALL,
            offset,
            max(self._store.min_offset(header.topic, header.queue_id), 0),
            max(self._store.max_offset(header.topic, header.queue_id), 0),
        )
        return self._answer(request, found, "OFFSET_RESET")

    def _note_broadcast(self, request: PullRequest, client_id: str) -> Reply | Awaitable[Reply]:
        """Note how far a broadcast consumer is; an answer for one that has to learn where to begin."""
        header = request.header
        broadcasts, proxied = self._tables.broadcasts, header.request_source == BY_PROXY
        name, place = header.consumer_group, (header.consumer_group, header.topic, header.queue_id)
        if not broadcasts.needs_start(name, header.topic, client_id, header.queue_offset, proxied=proxied):
            broadcasts.pulled(
                *place, client_id, header.queue_offset, int(self._clock.monotonic() * 1000), proxied=proxied
            )
            return None
        offset = broadcasts.reached(*place, client_id)
        if offset is None:
            offset = self._tables.offsets.committed(name + SUFFIX, header.topic, header.queue_id)
        if offset is None:
            return self._begin_broadcast(request, client_id)
        broadcasts.pulled(*place, client_id, offset, int(self._clock.monotonic() * 1000), proxied=proxied)
        return self._tell_offset(request, offset)

    async def _begin_broadcast(self, request: PullRequest, client_id: str) -> Reply:
        header = request.header
        reading = self._store.read(ReadRequest(header.topic, header.queue_id, 0, 1))
        first = reading if isinstance(reading, GetResult) else await reading
        # As for a new group: what is still in memory is wanted, a log that has to be read from the disk is not.
        end = max(self._store.max_offset(header.topic, header.queue_id), 0)
        offset = end if first.suggest_slave else 0
        place = header.consumer_group, header.topic, header.queue_id
        proxied = header.request_source == BY_PROXY
        self._tables.broadcasts.pulled(*place, client_id, offset, int(self._clock.monotonic() * 1000), proxied=proxied)
        return self._tell_offset(request, offset)

    def _wake(self, group: str, topic: str, queue_id: int) -> None:
        """Let held pulls of a queue end now, because the group's offset was reset."""
        self._deadlines.expire_now(self._held.get((group, topic, queue_id), ()))

    async def _when_read(self, connection: Connection, request: PullRequest, reading: ColdRead) -> Reply:
        began = self._clock.monotonic()
        found = self._bounded(request, await reading)
        accept = request.selection.accept
        if accept is not None:
            self._turns.spend(accept.work * WORK_S)
        cold_ms = int((self._clock.monotonic() - began) * 1000)
        self._stats.longest_get_ms = max(self._stats.longest_get_ms, cold_ms)
        await connection.drain(len(found.records))
        if self._may_wait(request.header, found):
            return self._hold(LongPoll(self, connection, request, found))
        return self._answer(request, found, cold_ms=cold_ms)

    def _check(self, connection: Connection, command: Command, header: Any) -> PullRequest:
        tables = self._tables
        settings = tables.settings
        if self._replication.refuses_pulls:
            raise BrokerError(
                ResponseCode.SYSTEM_BUSY,
                f"the broker[{settings.broker_ip1}] is a slave and serves no pulls (slaveReadEnable=false, or it"
                " follows its group no further: `tianzhou status` prints the reason): pull from its master, or set"
                " slaveReadEnable=true at the slave",
            )
        if not settings.readable:
            raise PullForbidden(
                _FORBIDDEN_BROKER, f"the broker[{settings.broker_ip1}] pulling message is forbidden (brokerPermission)"
            )
        if command.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull_message_enable:
            raise PullForbidden(
                _FORBIDDEN_BROKER,
                f"the broker[{settings.broker_ip1}] for lite pull consumer is forbidden (litePullMessageEnable)",
            )
        group_name, name = header.consumer_group, header.topic
        group = tables.groups.get(group_name) or tables.groups.find(group_name, self._clock.now_ms())
        if group is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist"
                " (autoCreateSubscriptionGroup decides whether using one creates it)",
            )
        if not group.consume_enable:
            raise PullForbidden(_FORBIDDEN_GROUP, f"subscription group no permission, {group_name}")
        topic = tables.topics.get(name)
        if topic is None:
            self._dictated.topic_missing(header, self._store)
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        if not topic.readable:
            raise PullForbidden(_FORBIDDEN_TOPIC, f"the topic[{name}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{name}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        selection = self._selection(header)
        if settings.reject_pull_consumer_enable:
            self._check_pushed(connection, group_name)
        return PullRequest(command, header, group, topic, selection, reading_of(header, selection))

    def _check_pushed(self, connection: Connection, group: str) -> None:
        """Where pull consumers are rejected, only members of push groups may pull."""
        online = self._tables.clients.consumers.get(group)
        pulls = online is None or online.consume_type is ConsumeType.CONSUME_ACTIVELY
        if pulls and (online is None or connection not in online.clients):
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist, group: {group} (rejectPullConsumerEnable is on)",
            )

    def _selection(self, header: Any) -> Selection:
        """What the pull selects."""
        if header.sys_flag & SUBSCRIPTION:
            return self._own_selection(header)
        tables = self._tables
        name = header.consumer_group
        online = tables.clients.consumers.get(name)
        if online is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist, group: {name}"
            )
        group = tables.groups.get(name)
        if (
            online.message_model is MessageModel.BROADCASTING
            and group is not None
            and not group.consume_broadcast_enable
        ):
            raise PullForbidden(_FORBIDDEN_BROADCAST, f"the consumer group[{name}] can not consume by broadcast way")
        if tables.groups.forbidden and not tables.groups.may_read(name, header.topic):
            raise PullForbidden(
                _FORBIDDEN_SUBSCRIPTION, f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            )
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group: {name}, topic: {header.topic}",
            )
        if subscription.data.sub_version < header.sub_version:
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.data.expression_type in TAG_TYPES or subscription.data.class_filter_mode:
            return Selection(subscription.codes, subscription=subscription)
        return self._registered_selection(header, subscription)

    def _is_current(self, request: PullRequest) -> bool:
        """Whether a selection is still what the group asks for, or was brought by the pull itself."""
        header, subscription = request.header, request.selection.subscription
        if subscription is None:
            return True
        online = self._tables.clients.consumers.get(header.consumer_group)
        return online is not None and online.subscriptions.get(header.topic) is subscription

    def _select_again(self, request: PullRequest) -> None:
        """What was passed over for the former subscription may be wanted for the present one."""
        request.selection = self._selection(request.header)
        request.reading = reading_of(request.header, request.selection)

    def _own_selection(self, header: Any) -> Selection:
        """What a pull selects that brings its subscription along."""
        kind, expression = header.expression_type, header.subscription
        if expression is not None and len(expression) > LONG:
            tables = self._tables
            most = tables.settings.max_filter_expression_length
            tables.refusals.check(FILTER_LENGTH, len(expression), most)
            if kind in TAG_TYPES:
                self._begin(expression)
        note, now_ms = self._tables.clients.note_pull, self._clock.now_ms()
        if kind in TAG_TYPES:
            try:
                codes = parse_tags(expression).codes
            except FilterSyntaxError as error:
                raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
            note(header.consumer_group, header.topic, expression or "*", "TAG", now_ms)
            return Selection(codes)
        settings = self._tables.settings
        self._begin(expression or "")
        compiled = compile_property_filter(settings, self._tables.refusals, kind, expression)
        note(header.consumer_group, header.topic, expression, kind, now_ms)
        if settings.filter_support_retry and header.topic.startswith(names.RETRY_PREFIX):
            return by_original_topic(self._tables.filters, header.topic)
        return by_expression(compiled)

    def _registered_selection(self, header: Any, subscription: Subscription) -> Selection:
        """What a group selects by an expression that its heartbeats have announced."""
        group, topic = header.consumer_group, header.topic
        settings, filters = self._tables.settings, self._tables.filters
        data, entry = subscription.data, filters.find(topic, group)
        if entry is None:
            raise BrokerError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"the broker has no filter of group {group} for topic {topic}: its expression may be wrong"
                f"{expression_problem(data)}",
            )
        if entry.version < header.sub_version:
            raise BrokerError(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        check_served(settings, data.expression_type)
        self._begin()
        if settings.filter_support_retry and topic.startswith(names.RETRY_PREFIX):
            return by_original_topic(filters, topic)._replace(subscription=subscription)
        return by_entry(entry, filters)._replace(subscription=subscription)

    def _hold(self, pull: LongPoll) -> LongPoll:
        header, settings = pull.request.header, self._tables.settings
        if self._waiting >= settings.max_long_polls:
            self._tables.bounds.check(LONG_POLLS, self._waiting + 1)
        if (waiting := pull.connection.deferred_replies) >= settings.max_long_polls_per_connection:
            self._tables.bounds.check(CONNECTION_POLLS, waiting + 1, f"connection {pull.connection}")
        self._waiting += 1
        suspend_ms = (
            header.suspend_timeout_millis if settings.long_polling_enable else settings.short_polling_time_mills
        )
        self._held.setdefault(pull.place, {})[pull] = None
        self._deadlines.add(pull, max(suspend_ms, 0) / 1000)
        pull.follow(self._store.arrived(header.topic, header.queue_id))
        return pull

    def _hold_run(self, connection: Connection, request: PullRequest, found: GetResult) -> bool:
        """Hold a pull of a run, unless there is more to be said about it."""
        settings = self._tables.settings
        if self._waiting >= settings.max_long_polls or self._replication.near_master:
            return False
        if connection.deferred_replies >= settings.max_long_polls_per_connection:
            return False
        connection.defer(request.command, self._hold(LongPoll(self, connection, request, found)))
        return True

    def woken(self, pull: LongPoll) -> None:
        """A held pull's queue has grown."""
        self._woken.put(pull)

    @property
    def waiting(self) -> int:
        """Number of pulls that wait for messages."""
        return self._waiting

    def look_again(self, pull: LongPoll) -> Reply:
        """Answer a held pull whose queue has grown; None when there is nothing for it in what came."""
        request = pull.request
        if self._is_current(request):
            request.reading.offset = pull.found.next_offset
        else:
            self._select_again(request)
        pull.found = found = self._read_now(request)
        if found.status is GetStatus.NO_MATCHED_MESSAGE and found.next_offset > request.reading.offset:
            return None
        return self._answer(request, found)

    def look_last(self, pull: LongPoll) -> Reply:
        """Answer a held pull whose time is up, or whose group was given another offset."""
        request, found = pull.request, pull.found
        if (offset := self._dictated.take(pull.connection, request.header)) is not None:
            return self._tell_offset(request, offset)
        current = self._is_current(request)
        if not current:
            self._select_again(request)
        # This broker may have become the master meanwhile, whose bounds count.
        if not current or found.status in OUTSIDE:
            found = self._read_now(request)
        return self._answer(request, found)

    def _read_now(self, request: PullRequest) -> GetResult:
        accept = request.selection.accept
        if accept is not None:
            accept.begin()
        found = self._store.read(request.reading, blocks=True)
        if accept is not None:
            self._turns.spend(accept.work * WORK_S)
        return self._bounded(request, found)

    def let_go(self, pull: LongPoll) -> None:
        """A held pull has ended, whichever way."""
        self._deadlines.remove(pull)
        self._waiting -= 1
        held = self._held[pull.place]
        del held[pull]
        if not held:
            del self._held[pull.place]

    def _answer(
        self, request: PullRequest, found: GetResult, remark: str | None = None, cold_ms: int | None = None
    ) -> Reply:
        header, group = request.header, request.group
        name = header.topic
        self._tables.offsets.pulled(header.consumer_group, name, header.queue_id, found.next_offset)
        status, next_offset = found.status, found.next_offset
        # Enum members are slow keys, so ordinary ones are not looked up.
        if status is GetStatus.FOUND:
            code, status_text = ResponseCode.SUCCESS, "FOUND"
            self._stats.found += 1
            traffic = self._stats.got(name, header.consumer_group)
            traffic.add(header.queue_id, found.count, len(found.records))
            if cold_ms is not None:
                traffic.add_cold(header.queue_id, found.count, len(found.records), cold_ms)
            settings = self._tables.settings
            if settings.disable_consume_if_consumer_read_slowly and self._store.settings.disk_fall_recorded:
                last = found.parts[-1]
                behind = self._store.end_offset - POSITION.unpack_from(last, AT["physical_offset"])[0] - len(last)
                self._stats.behind[name, header.consumer_group, header.queue_id] = behind
        else:
            code, status_text = self._code(found, header.queue_offset), status_name(status)
            self._stats.missed += 1
            if code is ResponseCode.PULL_NOT_FOUND:
                # A consumer whose offset this copy does not have yet keeps its offset.
                next_offset = max(next_offset, header.queue_offset)
            if self._replication.near_master:
                # Who has read all that a slave has goes back to the master (broker.md §9.5).
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        suggested = suggested_broker(self._tables.settings, group, found)
        return pull_reply(
            request.command.opaque,
            code,
            remark or status_text,
            next_offset,
            found.min_offset,
            found.max_offset,
            suggested,
            group.group_sys_flag,
            request.topic.topic_sys_flag,
            found.records,
        )


class _NotYet(Exception):
    """Others that take long come first."""
