"""The two kinds of clusters under one command: brokers that share the load, and members of one group. Pure.

A kind says which processes there are, which ports each takes, and what makes one different from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tianzhou.broker.addresses import FAST_PORT_BELOW
from tianzhou.cli.brokers.plan import ports_of
from tianzhou.data_folder import FIRST_BROKER, broker_name, home_of, member_home, member_names
from tianzhou.errors import ConfigError

MOST_MEMBERS: Final = 9
LEAST_MEMBERS: Final = 3


class BrokersKind(Protocol):
    """What the processes of a command are to each other."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the processes."""

    @property
    def elects(self) -> bool:
        """Whether they are one broker, of whom one process has to be elected before anybody can send."""

    def home(self, data: Path, name: str) -> Path:
        """Where a process keeps its files."""

    def broker_name(self, name: str) -> str:
        """The broker's name that clients see."""

    def ports_of(self, port: int) -> tuple[int, ...]:
        """All ports that a process with this main port takes."""

    def values(self, name: str, ports: Mapping[str, int], host: str) -> dict[str, str]:
        """Settings of a process that make it what it is, under RocketMQ's keys.

        Args:
            name: of the process.
            ports: main ports of all.
            host: at which they reach each other.
        """


@dataclass(frozen=True)
class Several:
    """Brokers that share the load: `serve --brokers N`.

    Args:
        names: of the brokers.
    """

    names: Sequence[str]
    elects = False

    @classmethod
    def of(cls, count: int) -> Several:
        """So many brokers, named by letters."""
        return cls([broker_name(index) for index in range(count)])

    def home(self, data: Path, name: str) -> Path:
        """See `BrokersKind`."""
        return home_of(data, name)

    def broker_name(self, name: str) -> str:
        """See `BrokersKind`."""
        return name

    def ports_of(self, port: int) -> tuple[int, ...]:
        """See `BrokersKind`."""
        return ports_of(port)

    def values(self, name: str, ports: Mapping[str, int], host: str) -> dict[str, str]:
        """See `BrokersKind`."""
        return {}


@dataclass(frozen=True)
class Group:
    """Members of one DLedger group, each with all messages: `serve --replicas N` (broker.md §19).

    Args:
        names: of the members, `n0` and so on.
    """

    names: Sequence[str]
    elects = True

    @classmethod
    def of(cls, count: int) -> Group:
        """So many members."""
        return cls(member_names(count))

    def home(self, data: Path, name: str) -> Path:
        """See `BrokersKind`."""
        return member_home(data, name)

    def broker_name(self, name: str) -> str:
        """See `BrokersKind`: the members are one broker to clients."""
        return FIRST_BROKER

    def ports_of(self, port: int) -> tuple[int, ...]:
        """See `BrokersKind`; the last is where the members speak to each other."""
        return *ports_of(port), dledger_port(port)

    def values(self, name: str, ports: Mapping[str, int], host: str) -> dict[str, str]:
        """See `BrokersKind`."""
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": FIRST_BROKER,
            "dLegerPeers": ";".join(f"{one}-{host}:{dledger_port(ports[one])}" for one in self.names),
            "dLegerSelfId": name,
        }


def dledger_port(port: int) -> int:
    """Where a member with this main port listens for the others: between its main and its fast port."""
    return port - FAST_PORT_BELOW + 1


def member_count(option: int | None, present: int) -> int:
    """How many members a group is to have; 0 when there is to be none.

    Args:
        option: the value of `--replicas`; None without it.
        present: the members that the folder was made for.

    Raises:
        ConfigError: such a group has no majority when one member is away, or more members than anybody needs.
    """
    if option is None:
        return present
    if not LEAST_MEMBERS <= option <= MOST_MEMBERS:
        raise ConfigError(
            f"--replicas {option}: expected {LEAST_MEMBERS} to {MOST_MEMBERS}; a group of {LEAST_MEMBERS} goes on "
            "while one member is away"
        )
    return option
