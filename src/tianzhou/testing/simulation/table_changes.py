"""Changes of a group's tables in a simulated cluster, lost folders of tables, and the guarantees for both.

An operator changes topics, consumer groups, offsets and users one after the other, and records the answers. It changes
offsets with resets, which a majority has when they are answered; commits of consumers have no such guarantee. A member
that restarts may find its folder of tables empty, or an older copy of it; its log stays. In the end every member has
each change with the answer OK, unless a later change of the same entry may have been made.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tianzhou.broker.server import Broker
from tianzhou.errors import TianzhouError
from tianzhou.model import SubscriptionGroupConfig
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing.simulation.checkers import Violation
from tianzhou.testing.simulation.history import Fault, History, HistoryEvent
from tianzhou.testing.simulation.load import TOPIC
from tianzhou.testing.simulation.machines import Machine
from tianzhou.testing.simulation.servers import BrokerOn
from tianzhou.wire.bodies.access import USER_INFO, UserInfo
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

ABSENT: Final = -1
"""Value of an entry that is not in its table."""
ENTRIES: Final = 4
"""Number of topics, and number of groups, that are changed."""
USERS: Final = 2
"""Number of users that are changed."""
MARKS: Final = "Marks"
"""Consumer group whose offsets are reset; no consumer belongs to it."""
MARKED_QUEUES: Final = 2
"""Number of queues of the topic whose offsets are reset."""
PAUSE_S: Final = 1.0
LIMIT_MS: Final = 5_000
_SECRET: Final = "secret"
LOST: Final = 0.3
"""Share of restarts that find an empty folder of tables; as many find an older copy."""


@dataclass(frozen=True, slots=True)
class TableChanged(HistoryEvent):
    """A change of a table got an answer.

    Attributes:
        entry: the topic, group, offset or user, `topic Table_1`.
        value: its new value; `ABSENT` for a deletion.
        ok: whether the answer was OK; otherwise the change may have been made or not.
    """

    entry: str
    value: int
    ok: bool


@dataclass(frozen=True, slots=True)
class TableRemains(HistoryEvent):
    """The final value of an entry at a member.

    Attributes:
        member: the member.
        entry: the topic, group, offset or user.
        value: its value.
    """

    member: str
    entry: str
    value: int


class Operator:
    """A program that changes tables through the leader.

    Args:
        machine: where it runs.
        rng: source of random numbers.
        history: records the answers.
        leader: returns the address of the broker to ask.
    """

    def __init__(self, machine: Machine, rng: Random, history: History, leader: Callable[[], str]) -> None:
        self._machine = machine
        self._rng = rng
        self._history = history
        self._leader = leader
        self._stopped = False

    def start(self) -> None:
        """Start the program."""
        self._machine.start(self._run)

    def stop(self) -> None:
        """Stop after the present change."""
        self._stopped = True

    async def _run(self) -> None:
        rng = self._rng
        async with RemotingClient(clock=self._machine.clock) as client:
            marked = False
            while not self._stopped:
                await asyncio.sleep(rng.random() * PAUSE_S)
                if not marked:
                    marked = await self._is_done(client, group_change(MARKS, 1)[1])
                    continue
                entry, value, commands = self._drawn()
                ok = False
                for command in commands:
                    if ok := await self._is_done(client, command):
                        break
                self._history.add(TableChanged, entry, value, ok)
        self._machine.stopped()

    def _drawn(self) -> tuple[str, int, list[Command]]:
        """Draw an entry and its new value; return them with the commands, one of which sets the value."""
        rng = self._rng
        value = rng.randint(1, 9) if rng.random() < 0.8 else ABSENT
        kind = rng.choice(("topic", "topic", "group", "group", "offset", "user"))
        if kind == "topic":
            entry, command = topic_change(f"Table_{rng.randrange(ENTRIES)}", value)
            return entry, value, [command]
        if kind == "group":
            entry, command = group_change(f"Readers_{rng.randrange(ENTRIES)}", value)
            return entry, value, [command]
        if kind == "offset":
            # No request deletes an offset alone.
            value = max(value, 0)
            entry, command = _offset_change(rng.randrange(MARKED_QUEUES), value)
            return entry, value, [command]
        entry, commands = _user_change(f"user_{rng.randrange(USERS)}", value)
        return entry, value, commands

    async def _is_done(self, client: RemotingClient, command: Command) -> bool:
        try:
            reply = await client.invoke(self._leader(), command, LIMIT_MS)
        except TianzhouError:
            return False
        return reply.code == ResponseCode.SUCCESS


def topic_change(name: str, value: int) -> tuple[str, Command]:
    """Return the entry of a topic, and the request that gives the topic a number of queues, or deletes it."""
    if value == ABSENT:
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        return f"topic {name}", Command(code, fields={"topic": name})
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    fields = write_header(
        code, topic=name, default_topic="TBW102", read_queue_nums=value, write_queue_nums=value, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    return f"topic {name}", Command(code, fields=fields)


def group_change(name: str, value: int) -> tuple[str, Command]:
    """Return the entry of a group, and the request that gives the group a number of retries, or deletes it."""
    if value == ABSENT:
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        return f"group {name}", Command(code, fields=write_header(code, group_name=name, clean_offset=True))
    body = SUBSCRIPTION_GROUP.dumps(SubscriptionGroupConfig(name, retry_max_times=value))
    return f"group {name}", Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def _offset_change(queue: int, offset: int) -> tuple[str, Command]:
    """Return the entry of an offset, and the request that resets it."""
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    fields = write_header(code, group=MARKS, topic=TOPIC, timestamp=-1, is_force=True, queue_id=queue, offset=offset)
    return f"offset {queue}", Command(code, fields=fields)


def _user_change(name: str, value: int) -> tuple[str, list[Command]]:
    """Return the entry of a user, and the requests that create or update it with a password, or delete it."""
    if value == ABSENT:
        return f"user {name}", [Command(RequestCode.AUTH_DELETE_USER, fields={"username": name})]
    body = USER_INFO.dumps(UserInfo(name, f"{_SECRET}{value}"))
    fields = {"username": name}
    return f"user {name}", [
        Command(RequestCode.AUTH_CREATE_USER, fields=fields, body=body),
        Command(RequestCode.AUTH_UPDATE_USER, fields=fields, body=body),
    ]


def _values_of(broker: Broker) -> Iterator[tuple[str, int]]:
    """Yield the entries that an operator changes, with their values at a broker."""
    tables, users = broker.tables, broker.replication._users
    topics, groups = tables.topics.all(), tables.groups.all()
    for number in range(ENTRIES):
        topic, group = topics.get(f"Table_{number}"), groups.get(f"Readers_{number}")
        yield f"topic Table_{number}", getattr(topic, "read_queue_nums", ABSENT)
        yield f"group Readers_{number}", getattr(group, "retry_max_times", ABSENT)
    for queue in range(MARKED_QUEUES):
        offset = tables.offsets.committed(MARKS, TOPIC, queue)
        yield f"offset {queue}", ABSENT if offset is None else offset
    for number in range(USERS):
        user = None if users is None else users.table.users.get(f"user_{number}")
        yield f"user user_{number}", ABSENT if user is None else int(user.password.removeprefix(_SECRET))


def note_tables(history: History, servers: Iterable[BrokerOn]) -> None:
    """Record the values of the operator's entries at every running member."""
    for server in servers:
        if server.broker is not None:
            for entry, value in _values_of(server.broker):
                history.add(TableRemains, server.name, entry, value)


class TableFolders:
    """Restarts members with an empty or an older folder of tables.

    Args:
        root: folder for the copies.
        rng: source of random numbers.
        history: records the events.
    """

    def __init__(self, root: Path, rng: Random, history: History) -> None:
        self._root = root
        self._rng = rng
        self._history = history

    def before_start(self, machine: Machine) -> None:
        """Replace the folder of a stopped member at random; copy it for a later start."""
        folder, copy = machine.folder / "store" / "config", self._root / f"tables of {machine.name}"
        draw = self._rng.random()
        if draw < LOST and folder.exists():
            shutil.rmtree(folder)
            self._history.add(Fault, f"{machine.name} has lost its tables")
        elif draw < 2 * LOST and copy.exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(copy, folder)
            self._history.add(Fault, f"{machine.name} has older tables")
        if folder.exists() and self._rng.random() < 0.5:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)


def table_problems(history: History) -> list[Violation]:
    """Return the entries of members that lack a change with the answer OK."""
    allowed: dict[str, set[int]] = {}
    found = []
    for event in history.events:
        if isinstance(event, TableChanged):
            present = allowed.setdefault(event.entry, {ABSENT})
            if event.ok:
                present.clear()
            present.add(event.value)
        elif isinstance(event, TableRemains):
            values = allowed.get(event.entry, {ABSENT})
            if event.value not in values:
                text = f"{event.member} has {event.value} of {event.entry}, answered were {sorted(values)}"
                found.append(Violation(event.step, "tables", text))
    return found
