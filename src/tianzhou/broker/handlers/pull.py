"""Pulls: codes 11 and 361, and long polls (broker.md §9, §10)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.large_bodies import read_expression
from tianzhou.broker.messages.dictated_offsets import DictatedOffsets
from tianzhou.broker.messages.held_pulls import HeldPulls
from tianzhou.broker.messages.pull_answers import WORK_S, PullAnswers
from tianzhou.broker.messages.pull_codes import PullForbidden
from tianzhou.broker.messages.pull_request import PullRequest, reading_of
from tianzhou.broker.messages.pull_runs import PullRuns
from tianzhou.broker.messages.pull_selections import NotYet, PullSelections
from tianzhou.broker.services import Services
from tianzhou.broker.tables.broadcast_offsets import BY_PROXY, SUFFIX
from tianzhou.errors import BrokerError
from tianzhou.filter import SQL92
from tianzhou.model import ConsumeType
from tianzhou.remoting.connection import Connection, FastPath, Reply
from tianzhou.store.reader import ColdRead
from tianzhou.store.results import GetResult, GetStatus, ReadRequest
from tianzhou.wire.codes import COMMIT_OFFSET, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

_FORBIDDEN_BROKER, _FORBIDDEN_GROUP, _FORBIDDEN_TOPIC = range(1, 4)


class PullHandler(Handler):
    """Handler of pulls; `runs` serves further pulls under the plans that this handler has made."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._dictated = DictatedOffsets(self._tables, self._replication)
        self._selections = PullSelections(services)
        self._answers = PullAnswers(services)
        self._held = HeldPulls(services, self._selections, self._answers, self._dictated)
        self.runs = PullRuns(services, self._held)

    def fast_paths(self) -> Mapping[int, FastPath]:
        """Return the function that serves pulls under the plans that this handler has made."""
        return {RequestCode.PULL_MESSAGE: self.runs.serve}

    @serves(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Return messages or the reason why there are none, or wait for messages if the pull asks to."""
        header = command.header
        if header is None:
            header = read_header(command)
        try:
            request = self._check(connection, command, header)
        except NotYet:
            return self._pull_in_turn(connection, command, header)
        except PullForbidden as refusal:
            fields = write_reply(RequestCode.PULL_MESSAGE, forbidden_type=refusal.kind)
            return command.reply(refusal.code, refusal.remark, fields)
        offsets = self._tables.offsets
        if (dictated := self._dictated.take(connection, header)) is not None:
            return self._answers.dictated(request, dictated)
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
            self._selections.turns.spend(accept.work * WORK_S)
        if not isinstance(found, GetResult):
            return self._when_read(connection, request, found)
        if found.status is GetStatus.FOUND:
            self.runs.learn(request)
        else:
            found = self._answers.bounded(request, found)
            if self._answers.may_wait(header, found):
                self.runs.learn(request)
                return self._held.hold(connection, request, found)
        return self._answers.answer(request, found)

    async def _pull_in_turn(self, connection: Connection, command: Command, header: Any) -> Reply:
        """Run `pull` after earlier pulls that also select by expressions."""
        if header.expression_type == SQL92:
            await read_expression(header.subscription or "")
        selections = self._selections
        await selections.turns.turn()
        selections.in_turn = True
        try:
            reply = self.pull(connection, command)
        finally:
            selections.in_turn = False
        while isinstance(reply, Awaitable):
            reply = await reply
        return reply

    def _note_broadcast(self, request: PullRequest, client_id: str) -> Reply | Awaitable[Reply]:
        """Note the offset of a broadcast consumer; return an answer when it needs its start offset."""
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
        return self._answers.dictated(request, offset)

    async def _begin_broadcast(self, request: PullRequest, client_id: str) -> Reply:
        header = request.header
        reading = self._store.read(ReadRequest(header.topic, header.queue_id, 0, 1))
        first = reading if isinstance(reading, GetResult) else await reading
        # Begin like a new group: at the first message while it is in memory, else at the end.
        end = max(self._store.max_offset(header.topic, header.queue_id), 0)
        offset = end if first.suggest_slave else 0
        place = header.consumer_group, header.topic, header.queue_id
        proxied = header.request_source == BY_PROXY
        self._tables.broadcasts.pulled(*place, client_id, offset, int(self._clock.monotonic() * 1000), proxied=proxied)
        return self._answers.dictated(request, offset)

    async def _when_read(self, connection: Connection, request: PullRequest, reading: ColdRead) -> Reply:
        began = self._clock.monotonic()
        found = self._answers.bounded(request, await reading)
        accept = request.selection.accept
        if accept is not None:
            self._selections.turns.spend(accept.work * WORK_S)
        cold_ms = int((self._clock.monotonic() - began) * 1000)
        self._stats.longest_get_ms = max(self._stats.longest_get_ms, cold_ms)
        await connection.drain(len(found.records))
        if self._answers.may_wait(request.header, found):
            return self._held.hold(connection, request, found)
        return self._answers.answer(request, found, cold_ms=cold_ms)

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
        selection = self._selections.find(header)
        if settings.reject_pull_consumer_enable:
            self._check_pushed(connection, group_name)
        return PullRequest(command, header, group, topic, selection, reading_of(header, selection))

    def _check_pushed(self, connection: Connection, group: str) -> None:
        """Refuse pulls of clients that are no members of a push group, because `rejectPullConsumerEnable` is on."""
        online = self._tables.clients.consumers.get(group)
        pulls = online is None or online.consume_type is ConsumeType.CONSUME_ACTIVELY
        if pulls and (online is None or connection not in online.clients):
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist, group: {group} (rejectPullConsumerEnable is on)",
            )

    @property
    def waiting(self) -> int:
        """Number of pulls that wait for messages."""
        return self._held.waiting
