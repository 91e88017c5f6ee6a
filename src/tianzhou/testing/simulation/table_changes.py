"""Changes of a group's tables in a simulated cluster, folders of tables that are lost, and what has to hold of both.

An operator changes topics and consumer groups one after the other, and notes the answers. A member that restarts may
find its folder of tables empty, or an older copy of it; its log stays. In the end every member has each change that
was answered OK, unless a later change of the same entry may have been made.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tianzhou.errors import TianzhouError
from tianzhou.model import SubscriptionGroupConfig
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing.simulation.checkers import Problem
from tianzhou.testing.simulation.history import Event, Fault, History
from tianzhou.testing.simulation.machines import Machine
from tianzhou.testing.simulation.servers import BrokerOn
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

ABSENT: Final = -1
"""Value of an entry that is not in its table."""
ENTRIES: Final = 4
"""Topics and groups that are changed, of each."""
PAUSE_S: Final = 1.0
LIMIT_MS: Final = 5_000
LOST: Final = 0.3
"""Share of restarts that find an empty folder of tables; as many find an older copy."""


@dataclass(frozen=True, slots=True)
class TableChanged(Event):
    """A change of a table was answered.

    Attributes:
        entry: the topic or group, `topic 1`.
        value: its new value; `ABSENT` for a deletion.
        ok: whether the answer was OK; otherwise the change may have been made or not.
    """

    entry: str
    value: int
    ok: bool


@dataclass(frozen=True, slots=True)
class TableRemains(Event):
    """What a member has of an entry in the end.

    Attributes:
        member: the member.
        entry: the topic or group.
        value: its value.
    """

    member: str
    entry: str
    value: int


class Operator:
    """A program that changes tables through the leader.

    Args:
        machine: where it runs.
        rng: its dice.
        history: gets the answers.
        leader: returns the address of the broker to ask.
    """

    def __init__(self, machine: Machine, rng: Random, history: History, leader: Callable[[], str]) -> None:
        self._machine = machine
        self._rng = rng
        self._history = history
        self._leader = leader
        self._stopped = False

    def start(self) -> None:
        """Start it."""
        self._machine.start(self._run)

    def stop(self) -> None:
        """Change nothing any more after the present change."""
        self._stopped = True

    async def _run(self) -> None:
        rng = self._rng
        async with RemotingClient(clock=self._machine.clock) as client:
            while not self._stopped:
                await asyncio.sleep(rng.random() * PAUSE_S)
                number, value = rng.randrange(ENTRIES), rng.randint(1, 9) if rng.random() < 0.8 else ABSENT
                entry, command = (_topic if rng.random() < 0.5 else _group)(number, value)
                try:
                    reply = await client.invoke(self._leader(), command, LIMIT_MS)
                    ok = reply.code == ResponseCode.SUCCESS
                except TianzhouError:
                    ok = False
                self._history.add(TableChanged, entry, value, ok)
        self._machine.stopped()


def _topic(number: int, value: int) -> tuple[str, Command]:
    name = f"Table_{number}"
    if value == ABSENT:
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        return f"topic {name}", Command(code, fields={"topic": name})
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    fields = write_header(
        code, topic=name, default_topic="TBW102", read_queue_nums=value, write_queue_nums=value, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    return f"topic {name}", Command(code, fields=fields)


def _group(number: int, value: int) -> tuple[str, Command]:
    name = f"Readers_{number}"
    if value == ABSENT:
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        return f"group {name}", Command(code, fields=write_header(code, group_name=name, clean_offset=True))
    body = SUBSCRIPTION_GROUP.dumps(SubscriptionGroupConfig(name, retry_max_times=value))
    return f"group {name}", Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def entries_of(topics: Mapping[str, object], groups: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Give the entries that an operator changes, and the values that a broker has of them.

    Args:
        topics: topics of the broker by name.
        groups: groups of the broker by name.
    """
    for number in range(ENTRIES):
        topic, group = topics.get(f"Table_{number}"), groups.get(f"Readers_{number}")
        yield f"topic Table_{number}", getattr(topic, "read_queue_nums", ABSENT)
        yield f"group Readers_{number}", getattr(group, "retry_max_times", ABSENT)


def note_tables(history: History, servers: Iterable[BrokerOn]) -> None:
    """Note what every member that runs has of the entries that the operator changes."""
    for server in servers:
        if server.broker is not None:
            tables = server.broker.tables
            for entry, value in entries_of(tables.topics.all(), tables.groups.all()):
                history.add(TableRemains, server.name, entry, value)


class TableFolders:
    """Lets members restart with an empty or an older folder of tables.

    Args:
        root: takes the copies.
        rng: its dice.
        history: gets what happens.
    """

    def __init__(self, root: Path, rng: Random, history: History) -> None:
        self._root = root
        self._rng = rng
        self._history = history

    def before_start(self, machine: Machine) -> None:
        """Maybe replace the folder of a member that does not run; keep a copy for a later start."""
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


def table_problems(history: History) -> list[Problem]:
    """Return the entries of members that lack a change that was answered OK."""
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
                found.append(Problem(event.step, "tables", text))
    return found
