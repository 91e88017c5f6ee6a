"""Topics, groups, offsets and delivery positions of the master, at its slave (broker.md §17.3).

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
"""Seconds after which the tables of a leader of Apache's that still leads are taken for all that the group has."""
PERIOD_S: Final = 1.0
"""Seconds between two rounds. RocketMQ lets a minute pass (4.9: ten seconds); a fail-over forgets its commits."""
_REST: Final = 20
"""How many times as long as a round takes the next one waits at least."""
_TIMEOUT_MS: Final = 5000

_log = logging.getLogger(__name__)


class TablesInLog(Protocol):
    """The tables in a group's log.

    Attributes:
        complete: whether the tables of this member are known to be whole.
    """

    complete: bool


class MetadataSync:
    """Asks the master for its tables, again and again.

    Args:
        tables: the slave's, made equal to the master's.
        client: reaches the master.
        clock: stamps changes.
        master: the master's address; empty while there is none.
        store: has the queues of topics that are deleted.
        period_s: seconds between two rounds.
        stored_queues: numbers of a topic's queues that the store has, which stay readable whatever the master's table
            says: that of a member of Apache's may know less than its log. None to have the table alone count.
        term: the term of this member's group; -1 outside of a group.
        log: the tables in the group's log, which hold the tables of a leader of ours; None outside of a group.
        users: users and policies of this broker; None when it has none.
        folder: where a slave notes which entries its master has listed, so that it follows deletions of the time in
            which it is away; None outside of a pair.
        copying: the connection over which the master's log is copied; None without one, and outside of a pair.
        heard: called with the header fields of each answer that is taken.

    Attributes:
        leader_is_apache: whether the last answer came from a broker of Apache's, or of an older version of ours.
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
            # No deletion is followed that this start has not seen: entries stay that the master has deleted meanwhile.
            _log.error("%s; entries that the master deleted while this slave was away stay", error)
            file.put_both_aside()

    async def run(self, troubles: Troubles) -> None:
        """Follow the master until cancelled.

        Args:
            troubles: learns what cannot be had.
        """
        while True:
            began_s, rest_s, master = self._clock.monotonic(), 0.0, self._master()
            if master:
                try:
                    await self.round()
                except TianzhouError as error:
                    # A master that is away stays so for minutes: it is said once, and not how often it was tried.
                    troubles.failed(WORK, error, self._clock.now_ms(), self._clock.monotonic())
                    if not self._failing:
                        _log.warning("%s cannot be had; they are asked for every %g s: %s", WORK, PERIOD_S, error)
                    self._failing = True
                else:
                    # Large tables take their time, of which others need the most.
                    rest_s = _REST * (self._clock.monotonic() - began_s)
                    troubles.over(WORK)
                    if self._failing:
                        _log.info("%s are taken over again", WORK)
                    self._failing = False
            elif self._failing:
                # Nobody is to be asked any more: this broker may be the master itself by now.
                troubles.over(WORK)
                self._failing = False
            await asyncio.sleep(max(self._period_s, rest_s))

    async def round(self) -> None:
        """Take over every table once; those that can be had are, whatever becomes of the others.

        What a broker answers when it is the master no more, or this one has become it, is passed over.

        Raises:
            TianzhouError: one of them cannot be had; the first that is not answered ends the round.
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
                    # This one may lead by now, and what the former leader knew is older than what is here.
                    return
                if code is RequestCode.READ_USERS and reply.code != ResponseCode.SUCCESS:
                    self._note_refused_users(master, reply)
                    continue
                if code is RequestCode.READ_SEND_LIMITS and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    continue  # an earlier version of ours
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
        """Whether this broker has all tables of the master by now, whatever it had lost before its start."""
        if self._log is not None:
            return self._log.complete
        return self._answers.is_known_to_serve and not self._source_is_rebuilt

    @staticmethod
    async def _take_one(code: RequestCode, take: Callable[[Octets], Awaitable[None] | None], body: Octets) -> None:
        """Take over one table.

        Raises:
            StoreError: the answer cannot be read; the tables behind it must not wait for this one.
        """
        try:
            if (more := take(body)) is not None:
                await more
        except (ProtocolError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise StoreError(f"the answer to {code.name} cannot be read: {error!r}") from error

    def _has_all_tables(self) -> bool:
        """Whether the tables that were taken are all that the group has.

        A leader of ours says so. A former leader of Apache's that has restarted with an empty folder is asked for a few
        seconds at most: until the others elect another one.
        """
        if not self.leader_is_apache:
            return self._leader_is_complete
        return self._clock.monotonic() - self._source_since_s >= APACHE_COMPLETE_S

    def _is_in_log(self, code: RequestCode) -> bool:
        """Whether the group's log brings a table. Offsets that were committed here are handed over all the same."""
        if self._log is None or not self._log.complete or self.leader_is_apache or not self._answers.is_known_to_serve:
            return False
        return code is not RequestCode.GET_ALL_CONSUMER_OFFSET or not self._tables.offsets.own

    def _asks_for(self, code: RequestCode) -> bool:
        """Whether the master knows a request; brokers of Apache's do not know those that are ours."""
        if code is RequestCode.READ_USERS:
            return self._users is not None and self._answers.is_known_to_serve
        return code is not RequestCode.READ_SEND_LIMITS or self._answers.is_known_to_serve

    def _note_refused_users(self, master: str, reply: Command) -> None:
        """Log once that a master does not give its users away."""
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
        # The note comes first: a user that is here and not noted would outlive its deletion while this broker is away.
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
        """Note on the disk which entries the master has listed."""
        if self._listed is not None and self._answers.changed:
            self._answers.changed = False
            with suppress(OSError):  # the disk's state is known from the tables' own files
                await asyncio.to_thread(self._listed.persist, self._answers.to_json())

    def note_topic_of_log(self, topic: str) -> None:
        """Note a topic that this broker knows from the master's log alone.

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
        """Whether the answer must not be taken; log the reason when it is another one than before."""
        why = refusal(fields, term)
        if why and why != self._refusal:
            _log.warning(
                "tables of %s are not taken: %s; this broker keeps its own until the master answers", master, why
            )
        self._refusal = why
        return bool(why)

    def _topics(self, body: Octets) -> None:
        found, table = TOPIC_TABLE.loads(body), RequestCode.GET_ALL_TOPIC_CONFIG
        # A topic of the same name may have been made, and have messages here, before anybody asked.
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
        """Take over offsets; but what groups committed here while the master was away is handed to it first."""
        offsets, master = self._tables.offsets, self._master()
        if not master:
            raise ConnectionLost("the master went away while its tables were taken over")
        found = loads(body)
        if offsets.own is None:
            self._take_offsets(found)
            return
        ahead = offsets.ahead_of(found)
        # Who commits while the master is told is heard the next time.
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
            # The next master gets them, and what this one knew is older than what is here.
            return
        if ahead:
            _log.info("%d of %d offsets that were committed here are handed to the master", taken, len(ahead))
        self._take_offsets(found)

    def _take_offsets(self, found: dict[str, Any]) -> None:
        if self._is_in_log(RequestCode.GET_ALL_TOPIC_CONFIG):
            return
        self._offsets_before = self._tables.offsets.take_over(found, self._offsets_before)

    async def _hand_over(self, master: str, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit at the master; whether it takes it: a reset that waits there counts more, and so does an end."""
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        fields = write_header(code, consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
        reply = await self._client.invoke(master, Command(code, fields=fields), _TIMEOUT_MS)
        return reply.code == ResponseCode.SUCCESS and not reply.remark

    def _delays(self, body: Octets) -> None:
        self._tables.delays.merge(loads(body))
