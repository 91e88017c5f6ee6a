"""The two kinds of clusters of one command: brokers that share the load, and members of one group. Pure.

A kind defines the processes, their ports, and the settings in which they differ.
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
    """The relation between the processes of a command."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the processes."""

    @property
    def elects(self) -> bool:
        """Whether the processes are one broker that must elect a leader before clients can send messages."""

    def home(self, data: Path, name: str) -> Path:
        """Return the folder of a process's files."""

    def broker_name(self, name: str) -> str:
        """Return the broker's name for clients."""

    def ports_of(self, port: int) -> tuple[int, ...]:
        """Return all ports of a process with this main port."""

    def values(self, name: str, ports: Mapping[str, int], host: str) -> dict[str, str]:
        """Return the settings that distinguish a process, under RocketMQ's keys.

        Args:
            name: name of the process.
            ports: main ports of all processes.
            host: host at which they reach each other.
        """


@dataclass(frozen=True)
class Several:
    """Brokers that share the load: `serve --brokers N`.

    Args:
        names: names of the brokers.
    """

    names: Sequence[str]
    elects = False

    @classmethod
    def of(cls, count: int) -> Several:
        """Return a number of brokers, named by letters."""
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
    """Members of one DLedger group. Each has all messages: `serve --replicas N` (broker.md §19).

    Args:
        names: names of the members, `n0` and so on.
    """

    names: Sequence[str]
    elects = True

    @classmethod
    def of(cls, count: int) -> Group:
        """Return a group with a number of members."""
        return cls(member_names(count))

    def home(self, data: Path, name: str) -> Path:
        """See `BrokersKind`."""
        return member_home(data, name)

    def broker_name(self, name: str) -> str:
        """See `BrokersKind`. Clients see the members as one broker."""
        return FIRST_BROKER

    def ports_of(self, port: int) -> tuple[int, ...]:
        """See `BrokersKind`. The last port is for the protocol between members."""
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
    """Return the port of the group's protocol for a member with this main port: between its main and fast port."""
    return port - FAST_PORT_BELOW + 1


def member_count(option: int | None, present: int) -> int:
    """Return the number of members of a group; 0 for no group.

    Args:
        option: the value of `--replicas`; None without it.
        present: number of members for which the folder was created.

    Raises:
        ConfigError: the number is out of range: too few for a majority when one member is away, or too many.
    """
    if option is None:
        return present
    if not LEAST_MEMBERS <= option <= MOST_MEMBERS:
        raise ConfigError(
            f"--replicas {option}: expected {LEAST_MEMBERS} to {MOST_MEMBERS}; a group of {LEAST_MEMBERS} goes on "
            "while one member is away"
        )
    return option
