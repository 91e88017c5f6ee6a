"""Several brokers as one server: a master with its slave, or the three members of a DLedger group.

All of them share the cores that one broker has in the other lines; the load goes to the master.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sides import BROKER_CORE, HERE, LOAD_CORE, CannotRunError, Server, on_core

sys.path.append(str(HERE.parent / "tests"))

HEAP: Final = "2g"
"""Heap of each of Apache's brokers here; three of them must fit into memory."""
COPIES: Final = {"sync_pair": 2, "async_pair": 2, "group": 3}
"""Number of brokers of each kind of server."""
_PORTS: Final = 5
_NAME: Final = "broker-a"
_MEMBERS_OF: Final = 901
"""GET_BROKER_MEMBER_GROUP"""
_SEND: Final = 10


class Replicas(Server):
    """A name server, and brokers of one name that copy a log; see `Server`.

    Args:
        kind: one of `SIDES`.
        work: scratch folder.
        flush: `async` or `sync`.
        copies: one of `COPIES`.
        pin: whether to pin the first broker to `BROKER_CORE`, the others to the load tool's core.
        fill: as `Server`; not used.
        patience_s: limit in seconds until messages are acknowledged.

    Raises:
        CannotRunError: a process ended, or no message was acknowledged.
    """

    heap = HEAP

    def __init__(
        self,
        kind: str,
        work: Path,
        flush: str = "async",
        *,
        copies: str,
        pin: bool = False,
        fill: Callable[[Path], object] | None = None,
        patience_s: float = 60,
    ) -> None:
        self._copies = copies
        self._pin = pin
        self.ports = 3 + _PORTS * COPIES[copies]
        super().__init__(kind, work, flush, pin=pin, fill=fill, patience_s=patience_s)

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the process ids of all brokers; the name server was started first."""
        return tuple(process.pid for process in self._processes[:-1])

    def _start_brokers(self, patience_s: float) -> None:
        first, began = self.port, time.monotonic()
        ports = [first + _PORTS * number for number in range(COPIES[self._copies])]
        peers = ";".join(f"n{number}-127.0.0.1:{port + 2}" for number, port in enumerate(ports))
        for number, port in enumerate(ports):
            home = self.work / f"home{number}"
            home.mkdir(exist_ok=True)
            conf = self._write_conf(
                f"broker{number}.conf", port, self.store / f"n{number}", self._role(number, port, peers)
            )
            program = self._broker
            if self._pin and number:
                program = on_core(LOAD_CORE) + program[len(on_core(BROKER_CORE)) :]
            command = [part.replace(f"user.home={self.work}", f"user.home={home}") for part in program]
            pid = self._start([*command[:-1], str(conf)], port, patience_s)
            if port == first:
                self.pid = pid
        end = time.monotonic() + patience_s + 60
        while not self._serves():
            if time.monotonic() > end:
                raise CannotRunError(f"no message was acknowledged for {patience_s + 60:.0f} s; see {self.work}")
            self.check_alive()
            time.sleep(0.2)
        self.start_s = time.monotonic() - began

    def _role(self, number: int, port: int, peers: str) -> dict[str, object]:
        if self._copies == "group":
            return {
                "enableDLegerCommitLog": "true",
                "dLegerGroup": _NAME,
                "dLegerPeers": peers,
                "dLegerSelfId": f"n{number}",
                "sendMessageThreadPoolNums": 16,
            }
        master = "SYNC_MASTER" if self._copies == "sync_pair" else "ASYNC_MASTER"
        # With the default, Apache's SYNC_MASTER does not wait for its slave (broker.md §17.2).
        wanted = {"inSyncReplicas": 2} if self._copies == "sync_pair" else {}
        role = "SLAVE" if number else master
        return {"brokerId": number, "brokerRole": role, "haListenPort": port + 1, **wanted}

    def _serves(self) -> bool:
        """Whether the master acknowledges a message; store the master's port."""
        frames = importlib.import_module("frames")  # of the tests
        try:
            fields = {"clusterName": "DefaultCluster", "brokerName": _NAME}
            found = frames.call(f"127.0.0.1:{self.namesrv_port}", _MEMBERS_OF, fields, timeout=5)
            members = found.json() if found.body else {}
            addresses = (members.get("brokerMemberGroup") or members).get("brokerAddrs", {})
            if "0" not in addresses or len(addresses) < COPIES[self._copies]:
                return False
            sent = {
                "producerGroup": "probe", "topic": "probe", "defaultTopic": "TBW102", "defaultTopicQueueNums": 1,
                "queueId": 0, "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "reconsumeTimes": 0, "unitMode": "false",
                "properties": "",
            }  # fmt: skip
            if frames.call(addresses["0"], _SEND, sent, b"?", timeout=5).code != 0:
                return False
        except (OSError, ValueError):
            return False
        self.port = int(addresses["0"].rpartition(":")[2])
        return True


def server(kind: str, work: Path, flush: str, *, copies: str, access: str = "", **more: object) -> Server:
    """Return one broker, or several; see `Server` and `Replicas`."""
    if copies:
        return Replicas(kind, work, flush, copies=copies, **more)  # type: ignore[arg-type]
    return Server(kind, work, flush, access=access, **more)  # type: ignore[arg-type]
