"""DLedger groups of Apache's brokers and ours, in any mixture, as processes under our control."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from apache import HOST, ApacheBroker
from frames import Reply, call
from own import OwnBroker, name_server

from server_ports import server_ports
from waiting import until

OURS = "tianzhou"
NAME = "broker-a"
QUICK_ELECTIONS: dict[str, object] = {"dLegerHeartBeatTimeIntervalMs": 500, "dLegerMaxHeartBeatLeak": 8}
"""Settings of groups with only our members: they detect a dead leader after 4 s, and by default after 6 s."""
LINKS = Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "links.py"
MEMBERS_OF = 901
"""GET_BROKER_MEMBER_GROUP"""


class Links:
    """TCP links between the members of a group, in their own process (`benchmarks/faults/links.py`)."""

    def __init__(self) -> None:
        self._own: Sequence[int] = ()
        self._ports: dict[tuple[int, int], int] = {}
        self._process: subprocess.Popen[str] | None = None

    def start(self, own_ports: Sequence[int]) -> None:
        """Start the process.

        Args:
            own_ports: port on which each member listens for the others, by member number.
        """
        self._own = own_ports
        pairs = list(itertools.permutations(range(len(own_ports)), 2))
        first = server_ports(len(pairs))
        self._ports = {pair: first + place for place, pair in enumerate(pairs)}
        rows = [(f"n{a}", f"n{b}", port, own_ports[b]) for (a, b), port in self._ports.items()]
        self._process = subprocess.Popen(
            [sys.executable, str(LINKS), json.dumps(rows)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._heard("ready")

    def peers_of(self, number: int) -> str:
        """Return the peer list of a member: its own port, and the link to each other member."""
        ports = (self._ports.get((number, other), port) for other, port in enumerate(self._own))
        return ";".join(f"n{other}-{HOST}:{port}" for other, port in enumerate(ports))

    def cut_off(self, number: int) -> None:
        """Cut all links from and to a member. Clients still reach the member."""
        for other in range(len(self._own)):
            if other != number:
                self._order(f"cut n{number} n{other}")
                self._order(f"cut n{other} n{number}")

    def mend(self) -> None:
        """Restore all links, and deliver the bytes that were sent meanwhile."""
        self._order("mend")

    def _order(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._heard("done")

    def _heard(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word, "the process of the links has ended"

    def close(self) -> None:
        """Kill the process of the links."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@dataclass
class Group:
    """Brokers of one name that elect their master.

    Attributes:
        namesrv: address of the name server.
        folder: parent folder of the members' folders.
        conf: settings of every member.
        members: by their number in the group; n0 is the first.
        kinds: kind of each member: `tianzhou`, or a version of Apache's broker.
        links: links between the members, for tests that cut them.
    """

    namesrv: str
    folder: Path
    conf: Mapping[str, object] = field(default_factory=dict)
    members: list[OwnBroker | ApacheBroker] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    peers: str = ""
    ports: list[int] = field(default_factory=list)
    links: Links | None = None

    def make(self, kinds: Sequence[str]) -> None:
        """Create the members without starting them.

        Args:
            kinds: kind of each member.
        """
        own_ports = server_ports(len(kinds))
        self.peers = ";".join(f"n{i}-{HOST}:{own_ports + i}" for i in range(len(kinds)))
        if self.links is not None:
            self.links.start(range(own_ports, own_ports + len(kinds)))
        self.kinds = list(kinds)
        self.ports = [server_ports(4) + 2 for _ in kinds]
        self.members = [self.member(i, kind) for i, kind in enumerate(kinds)]

    def member(self, number: int, kind: str) -> OwnBroker | ApacheBroker:
        """Return a member on its folder, not started; the folder's previous member may be of another kind."""
        self.kinds[number] = kind
        store = self.folder / f"n{number}"
        conf = {
            "mappedFileSizeCommitLog": 16 << 20,
            "enableDLegerCommitLog": "true",
            "dLegerGroup": NAME,
            "dLegerPeers": self.peers if self.links is None else self.links.peers_of(number),
            "dLegerSelfId": f"n{number}",
            "sendMessageThreadPoolNums": 4,
            "slaveReadEnable": "true",
            **self.conf,
        }
        if kind == OURS:
            return OwnBroker(self.namesrv, store, self.folder / f"h{number}", conf, self.ports[number])
        return ApacheBroker(
            self.namesrv, self.ports[number], store, conf, home=self.folder / f"a{number}-{kind}", version=kind
        )

    def grow(self, kinds: Sequence[str]) -> None:
        """Stop all members cleanly, and add further ones to every member's list; no member is started.

        Args:
            kinds: kind of each further member.
        """
        for member in self.members:
            member.stop()
        for number, kind in enumerate(kinds, len(self.members)):
            self.peers += f";n{number}-{HOST}:{server_ports()}"
            self.kinds.append(kind)
            self.ports.append(server_ports(4) + 2)
        self.members = [self.member(number, kind) for number, kind in enumerate(self.kinds)]

    def start(self) -> None:
        """Start all members and wait until one of them is the master."""
        for member in self.members:
            member.launch()
        self.leader()

    def replace(self, number: int, kind: str) -> None:
        """Stop a member cleanly and start one of another kind on its folder."""
        self.members[number].stop()
        self.members[number] = self.member(number, kind)
        self.members[number].launch()

    def registered(self) -> dict[int, str]:
        """Return the addresses at the name server by broker id."""
        reply = call(self.namesrv, MEMBERS_OF, {"clusterName": "DefaultCluster", "brokerName": NAME})
        if reply.code != 0 or not reply.body:
            return {}
        found = reply.json().get("brokerMemberGroup") or reply.json()
        return {int(number): address for number, address in found.get("brokerAddrs", {}).items()}

    def leader(self, *, other_than: int | None = None, within_s: float = 120) -> int:
        """Wait for a master that accepts messages, and return its number.

        Args:
            other_than: number of the previous master.
            within_s: limit in seconds.
        """

        def found() -> int | None:
            address = self.registered().get(0)
            for number, member in enumerate(self.members):
                if member.address == address and number != other_than and self.sends(address):
                    return number + 1
            return None

        return until(found, "the group has a master", within_s=within_s, every_s=0.1) - 1

    def sends(self, address: str, topic: str = "probe", body: bytes = b"?") -> Reply | None:
        """Return a member's reply to an acknowledged send; None when the send fails."""
        fields = {
            "producerGroup": "probe", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1,
            "queueId": 0, "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "reconsumeTimes": 0, "unitMode": "false",
            "properties": "",
        }  # fmt: skip
        try:
            reply = call(address, 10, fields, body, timeout=5)
        except OSError:
            return None
        return reply if reply.code == 0 else None

    def kill(self) -> None:
        """Kill all members."""
        for member in self.members:
            member.kill()


@contextmanager
def group(
    folder: Path, kinds: Sequence[str], conf: Mapping[str, object] | None = None, links: Links | None = None
) -> Iterator[Group]:
    """Run a group with its name server.

    Args:
        folder: folder for its files.
        kinds: kind of each member.
        conf: settings of every member.
        links: links between the members, for tests that cut them.
    """
    with name_server(folder) as namesrv:
        found = Group(namesrv, folder, conf or {}, links=links)
        found.make(kinds)
        try:
            found.start()
            yield found
        finally:
            found.kill()
            if links is not None:
                links.close()
