"""Copying of the master's topics, groups, offsets and delivery positions to a slave (broker.md §17.3).

A round merges: it takes entries that are new or changed. It deletes an entry only when the same master, in the same
start and term, listed the entry before (`table_answers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from tianzhou.broker.rebuilt_note import remove_note
from tianzhou.broker.replication.table_answers import (
    ASKED,
    COMPLETE,
    REBUILT,
    START,
    TERM,
    AnswerSource,
    SourceAnswers,
    refusal,
)
from tianzhou.broker.send_limits.table import decode_limits
from tianzhou.broker.state import Tables
from tianzhou.broker.tables.consumer_offsets import SEPARATOR, split_key
from tianzhou.clock import Clock
from tianzhou.errors import (
    BrokerError,
    ConnectionLost,
    ProtocolError,
    RemotingError,
    StateLost,
    StoreError,
    TianzhouError,
)
from tianzhou.model import DataVersion, TopicConfig
from tianzhou.records.checksum import Octets
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.store.files.config_file import JsonFile
from tianzhou.store.store import MessageStore
from tianzhou.troubles import Troubles
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP_TABLE
from tianzhou.wire.bodies.topics import TOPIC_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from tianzhou.wire.json_dialect import loads

WORK: Final = "tables of the master"
LISTED: Final = "tablesOfMaster.json"
"""File with the entries that the master has listed."""
APACHE_COMPLETE_S: Final = 30.0
"""Seconds of leadership after which the tables of an Apache leader count as complete."""
PERIOD_S: Final = 1.0
"""Seconds between two rounds. RocketMQ waits a minute (4.9: ten seconds) and loses these commits in a fail-over."""
_REST: Final = 20
"""Minimum pause after a round, as a multiple of the round's duration."""
_TIMEOUT_MS: Final = 5000

_log = logging.getLogger(__name__)


class TablesInLog(Protocol):
    """The tables in a group's log.

    Attributes:
        complete: whether the tables of this member are known to be complete.
    """

    complete: bool


class MetadataSync:
    """Periodic copying of the master's tables.

    Args:
        tables: the slave's tables, which are made equal to the master's.
        client: client for requests to the master.
        clock: stamps changes.
        master: returns the master's address; empty while there is none.
        store: the message store, which deletes the queues of deleted topics.
        period_s: seconds between two rounds.
        stored_queues: returns the ids of a topic's queues in the store. These queues stay readable even when the
            master's table has fewer, as an Apache member's table may. None to use the table alone.
        term: returns the term of this member's group; -1 outside of a group.
        log: the tables in the group's log, which a Tianzhou leader writes; None outside of a group.
        users: users and policies of this broker; None when it has none.
        folder: folder in which a slave notes the entries that its master has listed, so that it can apply deletions
            made while it was away; None outside of a pair.
        copying: returns the connection over which the master's log is copied; None without one, and outside of a pair.
        heard: callback with the header fields of each accepted answer.

    Attributes:
        leader_is_apache: whether the last answer came from an Apache broker or an older Tianzhou version.
    """

    def __init__(
        self,
        tables: Tables,
        client: RemotingClient,
        clock: Clock,
        master: Callable[[], str],
        store: MessageStore,
        period_s: float = PERIOD_S,
        stored_queues: Callable[[str], Iterable[int]] | None = None,
        term: Callable[[], int] = lambda: -1,
        log: TablesInLog | None = None,
        users: UserStore | None = None,
        folder: Path | None = None,
        copying: Callable[[], object | None] = lambda: None,
        heard: Callable[[Mapping[str, str]], None] = lambda fields: None,
    ) -> None:
        self._heard = heard
        self._users = users
        self._log = log
        self.leader_is_apache = False
        self._leader_is_complete = self._source_is_rebuilt = False
        self._source_since_s = 0.0
        self._term = term
        self._stored_queues = stored_queues
        self._period_s = period_s
        self._tables = tables
        self._store = store
        self._asked_at = 0
        self._gone: set[str] = set()
        self._client = client
        self._clock = clock
        self._master = master
        self._answers = SourceAnswers()
        self._offsets_before: dict[str, dict[int, int]] = {}
        self._listed = None if folder is None else JsonFile(folder / LISTED)
        if self._listed is not None:
            self._load_listed(self._listed)
        self._copying = copying
        self._of_log: set[str] = set()
        self._of_log_over: object | None = None
        self._of_log_before: frozenset[str] = frozenset()
        self._refusal = ""
        self._users_refused = False
        self._failing = False

    def _load_listed(self, file: JsonFile) -> None:
        try:
            file.load(self._answers.load, put_aside=True)
        except StateLost as error:
            # Without the file, entries that the master deleted while this slave was away cannot be recognized and stay.
            _log.error("%s; entries that the master deleted while this slave was away stay", error)
            file.put_both_aside()

    async def run(self, troubles: Troubles) -> None:
        """Copy the master's tables until cancelled.

        Args:
            troubles: collects failures of copying.
        """
        while True:
            began_s, rest_s, master = self._clock.monotonic(), 0.0, self._master()
            if master:
                try:
                    await self.round()
                except TianzhouError as error:
                    # A master may be away for minutes, so log the failure once and not at each attempt.
                    troubles.failed(WORK, error, self._clock.now_ms(), self._clock.monotonic())
                    if not self._failing:
                        _log.warning("%s cannot be had; they are asked for every %g s: %s", WORK, PERIOD_S, error)
                    self._failing = True
                else:
                    # Copying large tables takes long, so pause in proportion: other requests need most of the time.
                    rest_s = _REST * (self._clock.monotonic() - began_s)
                    troubles.over(WORK)
                    if self._failing:
                        _log.info("%s are taken over again", WORK)
                    self._failing = False
            elif self._failing:
                # There is no master to ask: this broker may have become the master.
                troubles.over(WORK)
                self._failing = False
            await asyncio.sleep(max(self._period_s, rest_s))

    async def round(self) -> None:
        """Copy each table once; a failure of one table does not stop the others.

        Answers of a former master, and answers that arrive after this broker became the master, are ignored.

        Raises:
            TianzhouError: a table cannot be copied. The first request without an answer ends the round.
        """
        failure: TianzhouError | None = None
        master = self._master()
        steps: tuple[tuple[RequestCode, Callable[[Octets], Awaitable[None] | None]], ...] = (
            (RequestCode.GET_ALL_TOPIC_CONFIG, self._topics),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._groups),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, self._offsets),
            (RequestCode.GET_ALL_DELAY_OFFSET, self._delays),
            (RequestCode.READ_USERS, self._take_users),
            (RequestCode.READ_SEND_LIMITS, self._take_send_limits),
        )
        for code, take in steps:
            if self._is_in_log(code) or not self._asks_for(code):
                continue
            self._asked_at = self._store.end_offset
            self._of_log_before = frozenset(self._of_log)
            try:
                term = self._term()
                reply = await self._client.invoke(master, Command(code, fields={ASKED: "1"}), _TIMEOUT_MS)
                if self._master() != master or self._term() != term:
                    # This broker may have become the leader; the former leader's tables are older than its own.
                    return
                if code is RequestCode.READ_USERS and reply.code != ResponseCode.SUCCESS:
                    self._note_refused_users(master, reply)
                    continue
                if code is RequestCode.READ_SEND_LIMITS and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    continue  # an earlier Tianzhou version
                if reply.code != ResponseCode.SUCCESS:
                    raise BrokerError(reply.code, reply.remark or "", address=master)
                if self._refused(master, reply.fields, term):
                    return
                self._heard(reply.fields)
                self._begin(AnswerSource(master, reply.fields.get(START, ""), term))
                self.leader_is_apache = TERM not in reply.fields
                self._leader_is_complete = reply.fields.get(COMPLETE) == "true"
                self._source_is_rebuilt = reply.fields.get(REBUILT) == "true"
                await self._take_one(code, take, reply.body)
            except RemotingError:
                raise
            except TianzhouError as error:
                failure = error
        await self._note_listed()
        if failure is not None:
            raise failure
        if self._log is not None and self._has_all_tables():
            self._log.complete = True
        if self._is_whole():
            remove_note(self._store.settings.root)

    def _is_whole(self) -> bool:
        """Whether this broker has all tables of the master, including tables that it had lost before its start."""
        if self._log is not None:
            return self._log.complete
        return self._answers.is_known_to_serve and not self._source_is_rebuilt

    @staticmethod
    async def _take_one(code: RequestCode, take: Callable[[Octets], Awaitable[None] | None], body: Octets) -> None:
        """Copy one table from an answer.

        Raises:
            StoreError: the answer cannot be read. The round continues with the next tables.
        """
        try:
            if (more := take(body)) is not None:
                await more
        except (ProtocolError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise StoreError(f"the answer to {code.name} cannot be read: {error!r}") from error

    def _has_all_tables(self) -> bool:
        """Whether the copied tables are the complete tables of the group.

        A Tianzhou leader reports completeness in its answers. An Apache leader that restarted with an empty folder
        leads for a few seconds at most, until the other members elect another leader.
        """
        if not self.leader_is_apache:
            return self._leader_is_complete
        return self._clock.monotonic() - self._source_since_s >= APACHE_COMPLETE_S

    def _is_in_log(self, code: RequestCode) -> bool:
        """Whether the group's log delivers a table. Offsets committed here are still sent to the leader."""
        if self._log is None or not self._log.complete or self.leader_is_apache or not self._answers.is_known_to_serve:
            return False
        return code is not RequestCode.GET_ALL_CONSUMER_OFFSET or not self._tables.offsets.own

    def _asks_for(self, code: RequestCode) -> bool:
        """Whether the master supports a request; Apache brokers do not support Tianzhou's own requests."""
        if code is RequestCode.READ_USERS:
            return self._users is not None and self._answers.is_known_to_serve
        return code is not RequestCode.READ_SEND_LIMITS or self._answers.is_known_to_serve

    def _note_refused_users(self, master: str, reply: Command) -> None:
        """Log once that a master refuses to return its users."""
        if reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED and not self._users_refused:
            _log.warning(
                "users of %s are not copied: %s; let innerClientAuthenticationCredentials name a super user",
                master, reply.remark,
            )  # fmt: skip
            self._users_refused = True

    async def _take_users(self, body: Octets) -> None:
        assert self._users is not None
        found = loads(body)["users"]
        gone = self._answers.deleted(RequestCode.READ_USERS, found)
        # Write the note first: a user that is here but not noted would survive a deletion made while this broker is
        # away.
        self._answers.note(RequestCode.READ_USERS, DataVersion(), found)
        await self._note_listed()
        await self._users.take_entries(found, gone)

    def _take_send_limits(self, body: Octets) -> None:
        code, present = RequestCode.READ_SEND_LIMITS, self._tables.send_limits
        found = decode_limits(loads(body))
        if self._source_is_rebuilt:
            present.put([limit for key, limit in found.items() if key not in present.all()], bounded=False)
            return
        present.put(found.values(), bounded=False)
        present.delete(self._answers.deleted(code, found))
        self._answers.note(code, DataVersion(), found)

    async def _note_listed(self) -> None:
        """Write the entries that the master has listed to the disk."""
        if self._listed is not None and self._answers.changed:
            self._answers.changed = False
            with suppress(OSError):  # the disk's state is known from the tables' own files
                await asyncio.to_thread(self._listed.persist, self._answers.to_json())

    def note_topic_of_log(self, topic: str) -> None:
        """Note a topic that this broker found only in the master's log.

        A master has a topic in its table before it has a record of the topic in its log. So a later answer without the
        topic proves that the topic was deleted, while the log is copied over the same connection.
        """
        connection = self._copying()
        if connection is not self._of_log_over:
            self._of_log_over = connection
            self._of_log.clear()
        self._of_log.add(topic)

    def _begin(self, source: AnswerSource) -> None:
        if self._answers.begin(source):
            self._offsets_before = {}
            self._source_since_s = self._clock.monotonic()

    def _refused(self, master: str, fields: Mapping[str, str], term: int) -> bool:
        """Whether the answer must be rejected; log the reason when it changed."""
        why = refusal(fields, term)
        if why and why != self._refusal:
            _log.warning(
                "tables of %s are not taken: %s; this broker keeps its own until the master answers", master, why
            )
        self._refusal = why
        return bool(why)

    def _topics(self, body: Octets) -> None:
        found, table = TOPIC_TABLE.loads(body), RequestCode.GET_ALL_TOPIC_CONFIG
        # A topic of the same name may have been created and received messages here before this request.
        self._gone -= found.topic_config_table.keys()
        self._gone = {name for name in self._gone if not self._store.delete_topic_before(name, self._asked_at)}
        if self._answers.is_known(table, found.data_version):
            return
        topics, now_ms = self._tables.topics, self._clock.now_ms()
        listed = found.topic_config_table
        if self._source_is_rebuilt or self._answers.is_older(table, found.data_version):
            topics.put_all([self._readable(one) for name, one in listed.items() if name not in topics], now_ms)
            return
        topics.put_all(map(self._readable, listed.values()), now_ms)
        deleted = self._answers.deleted(table, listed)
        if self._of_log_over is not None and self._copying() is self._of_log_over:
            deleted |= self._of_log_before.difference(listed)
        self._of_log -= self._of_log_before
        gone = [name for name in deleted if not topics.is_system(name)]
        topics.delete(gone, now_ms)
        for name in gone:
            self._tables.offsets.forget_topic(name)
        if self._stored_queues is None:
            self._gone |= {name for name in gone if not self._store.delete_topic_before(name, self._asked_at)}
        self._answers.note(table, found.data_version, listed)

    def _readable(self, config: TopicConfig) -> TopicConfig:
        if self._stored_queues is None:
            return config
        count = max(self._stored_queues(config.topic_name), default=-1) + 1
        return config if count <= config.read_queue_nums else replace(config, read_queue_nums=count)

    def _groups(self, body: Octets) -> None:
        found, table = SUBSCRIPTION_GROUP_TABLE.loads(body), RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        if self._answers.is_known(table, found.data_version):
            return
        groups, now_ms = self._tables.groups, self._clock.now_ms()
        listed = found.subscription_group_table
        if self._source_is_rebuilt or self._answers.is_older(table, found.data_version):
            groups.put_all([one for name, one in listed.items() if name not in groups], now_ms)
            return
        groups.put_all(listed.values(), now_ms)
        forbidden = {
            f"{group}{SEPARATOR}{topic}": bits
            for group, topics in found.forbidden_table.items()
            for topic, bits in topics.items()
        }
        gone = self._answers.deleted(table, [*listed, *forbidden])
        for name in gone:
            if SEPARATOR not in name:
                groups.delete(name, now_ms)
        groups.merge_forbidden(found.forbidden_table, [split_key(name) for name in gone if SEPARATOR in name], now_ms)
        self._answers.note(table, found.data_version, [*listed, *forbidden])

    async def _offsets(self, body: Octets) -> None:
        """Copy the offsets; first send the master the offsets that groups committed here while it was away."""
        offsets, master = self._tables.offsets, self._master()
        if not master:
            raise ConnectionLost("the master went away while its tables were taken over")
        found = loads(body)
        if offsets.own is None:
            self._take_offsets(found)
            return
        ahead = offsets.ahead_of(found)
        # Commits that arrive while offsets are sent to the master are sent in the next round.
        own, offsets.own = offsets.own, {}
        taken, complete = 0, False
        try:
            for group, topic, queue_id, offset in ahead:
                if await self._hand_over(master, group, topic, queue_id, offset):
                    table = found.setdefault("offsetTable", {})
                    table.setdefault(f"{topic}{SEPARATOR}{group}", {})[str(queue_id)] = offset
                    taken += 1
            complete = self._master() == master
        finally:
            if not complete and offsets.own is not None:
                for key, queues in own.items():
                    offsets.own.setdefault(key, set()).update(queues)
        if not complete:
            # The offsets go to the next master; the answer of the former one is older than the table here.
            return
        if ahead:
            _log.info("%d of %d offsets that were committed here are handed to the master", taken, len(ahead))
        self._take_offsets(found)

    def _take_offsets(self, found: dict[str, Any]) -> None:
        if self._is_in_log(RequestCode.GET_ALL_TOPIC_CONFIG):
            return
        self._offsets_before = self._tables.offsets.take_over(found, self._offsets_before)

    async def _hand_over(self, master: str, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit an offset at the master; return whether it accepts the offset.

        The master refuses the offset of a queue that has a waiting reset, or whose topic was deleted and created again.
        """
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        fields = write_header(code, consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
        reply = await self._client.invoke(master, Command(code, fields=fields), _TIMEOUT_MS)
        return reply.code == ResponseCode.SUCCESS and not reply.remark

    def _delays(self, body: Octets) -> None:
        self._tables.delays.merge(loads(body))
