"""A name server and a group of our brokers as processes, optionally connected by links that can be cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from frames import call  # of the tests
from sides import end_processes, free_ports

from faults import HERE, ROOT

HOST = "127.0.0.1"
NAME = "broker-a"
METADATA, MAX_OFFSET, CREATE_TOPIC = 50000, 30, 17
ASK_S = 1.0
limit_s = 120.0
"""Default limit of a wait in seconds; `failover.py --limit` sets it."""


class GaveUpError(Exception):
    """A condition did not become true in time; the text names it."""


def until(condition: Callable[[], Any], what: str, within_s: float | None = None, every_s: float = 0.02) -> Any:
    """Return the first true result of a condition; network errors count as false.

    Raises:
        GaveUpError: the condition did not become true in time.
    """
    within_s = limit_s if within_s is None else within_s
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        try:
            if found := condition():
                return found
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(every_s)
    raise GaveUpError(f"not within {within_s:.0f} s: {what}")


class Group:
    """Members that elect their leader; a context manager that ends all its processes.

    Args:
        folder: for stores, configuration and output.
        size: members.
        settings: of every member, beside what makes them a group.
        linked: whether the members connect through links that can be cut.
        before: called after the start of the name server and before the first member.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        settings: Mapping[str, object],
        *,
        linked: bool,
        before: Callable[[Group], None] | None = None,
    ) -> None:
        self._before = before
        self.folder = folder
        self.size = size
        # Reserve all ports in one range, so that no two are the same.
        first = free_ports(size + 1 + 4 * size + size * size)
        self._own = [first + i for i in range(size)]
        self.namesrv = f"{HOST}:{first + size}"
        # A broker listens on the two ports around its own as well.
        self._ports = [first + size + 3 + 4 * i for i in range(size)]
        self.addresses = [f"{HOST}:{port}" for port in self._ports]
        links = first + 5 * size + 1
        self._links = [
            (f"n{a}", f"n{b}", links + a * size + b, self._own[b])
            for a in range(size) for b in range(size) if linked and a != b
        ]  # fmt: skip
        self._settings = settings
        self._env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self._relay: subprocess.Popen[str] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._members: list[subprocess.Popen[bytes] | None] = [None] * size
        self._log_begins = [0] * size

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self) -> None:
        if self._links:
            self._relay = subprocess.Popen(
                [sys.executable, str(HERE / "links.py"), json.dumps(self._links)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._env,
            )  # fmt: skip
            self._heard("ready")
        conf = self.folder / "namesrv.conf"
        port = self.namesrv.rpartition(":")[2]
        conf.write_text(f"listenPort={port}\nbindAddress={HOST}\nkvConfigPath={self.folder / 'kv.json'}\n")
        self._server = self._spawn("namesrv", "namesrv", "-c", str(conf))
        if self._before is not None:
            self._before(self)
        for number in range(self.size):
            self.launch(number)

    def _end(self) -> None:
        for number in range(self.size):
            self.kill(number)
        if self._server is not None:
            end_processes([self._server])
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate()

    def _spawn(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tianzhou", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env,
            )  # fmt: skip

    def _heard(self, word: str) -> None:
        assert self._relay is not None
        assert self._relay.stdout is not None
        if self._relay.stdout.readline().strip() != word:
            raise GaveUpError("the process of the links has ended")

    # members

    def store(self, number: int) -> Path:
        """The folder of a member's store."""
        return self.folder / f"n{number}"

    def peer(self, number: int) -> str:
        """Return a member's entry of `dLegerPeers`."""
        return f"n{number}-{HOST}:{self._own[number]}"

    def pid(self, number: int) -> int:
        """Return the process id of a member that runs."""
        process = self._members[number]
        assert process is not None
        return process.pid

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a `tianzhou` command of this tree."""
        return self._env

    def launch(self, number: int, **settings: object) -> None:
        """Start a member without waiting."""
        to = {(begin, end): port for begin, end, port, _ in self._links}
        peers = ";".join(f"n{i}-{HOST}:{to.get((f'n{number}', f'n{i}'), self._own[i])}" for i in range(self.size))
        values = {
            "brokerName": NAME, "brokerIP1": HOST, "brokerIP2": HOST, "bindAddress": HOST,
            "listenPort": self._ports[number], "namesrvAddr": self.namesrv,
            "storePathRootDir": self.store(number), "enableDLegerCommitLog": "true",
            "dLegerGroup": NAME, "dLegerPeers": peers, "dLegerSelfId": f"n{number}",
            "mappedFileSizeCommitLog": 16 << 20, "diskMaxUsedSpaceRatio": 99, "slaveReadEnable": "true",
            "waitTimeMillsInSendQueue": 60_000, "osPageCacheBusyTimeOutMills": 60_000,
            "maxTransferCountOnMessageInMemory": 2000, "maxTransferBytesOnMessageInMemory": 1 << 20,
            "maxTransferCountOnMessageInDisk": 2000, "maxTransferBytesOnMessageInDisk": 1 << 20,
            **self._settings, **settings,
        }  # fmt: skip
        conf = self.folder / f"n{number}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        log = self._log(number)
        self._log_begins[number] = log.stat().st_size if log.exists() else 0
        self._members[number] = self._spawn(f"n{number}", "broker", "-c", str(conf))

    def _log(self, number: int) -> Path:
        return self.folder / f"n{number}.log"

    def await_start(self, number: int) -> None:
        """Wait until a launched member serves or refuses to start. Before that, SIGTERM ends it like SIGKILL.

        Raises:
            GaveUpError: neither happens in time.
        """
        process = self._members[number]
        assert process is not None

        def started() -> bool:
            return (
                process.poll() is not None or b"ready: " in self._log(number).read_bytes()[self._log_begins[number] :]
            )

        until(started, f"n{number} starts")

    def kill(self, number: int) -> None:
        """End a member by SIGKILL."""
        process, self._members[number] = self._members[number], None
        if process is not None:
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        """Send SIGKILL to all members, then wait for their exit."""
        for process in self._members:
            if process is not None:
                process.kill()
        for number in range(self.size):
            self.kill(number)

    def pause(self, number: int) -> None:
        """Stop a member by SIGSTOP."""
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Resume a member by SIGCONT."""
        self._signal(number, signal.SIGCONT)

    def _signal(self, number: int, which: int) -> None:
        process = self._members[number]
        assert process is not None
        process.send_signal(which)

    def stop(self, number: int) -> None:
        """Stop a member by SIGTERM.

        Raises:
            GaveUpError: the exit code is not 0.
        """
        process, self._members[number] = self._members[number], None
        assert process is not None
        end_processes([process])
        if process.returncode:
            raise GaveUpError(f"n{number} ended with {process.returncode}; see {self.folder / f'n{number}.log'}")

    def stop_all(self, last: int) -> None:
        """Stop all members cleanly.

        Args:
            last: the leader; the others copy its tables until they stop.

        Raises:
            GaveUpError: the exit code of a member is not 0.
        """
        for numbers in ([number for number in range(self.size) if number != last], [last]):
            running = [process for number in numbers if (process := self._members[number]) is not None]
            end_processes(running)
            for number in numbers:
                self._members[number] = None
            if any(process.returncode for process in running):
                codes = [process.returncode for process in running]
                raise GaveUpError(f"members ended with {codes}; see {self.folder}")

    # links

    def cut(self, begin: int, end: int) -> None:
        """Hold back everything that one member sends another."""
        self._order(f"cut n{begin} n{end}")

    def mend(self) -> None:
        """End all cuts and delays; the held-back bytes arrive, too."""
        self._order("mend")

    def _order(self, line: str) -> None:
        assert self._relay is not None
        assert self._relay.stdin is not None
        self._relay.stdin.write(line + "\n")
        self._relay.stdin.flush()
        self._heard("done")

    # replies of members

    def standing(self, number: int) -> tuple[int, str]:
        """Return a member's term and leader; the leader is empty where the member knows none.

        Raises:
            OSError: the member does not reply.
        """
        body = json.dumps({"group": NAME, "remoteId": f"n{number}"}).encode()
        reply = call(f"{HOST}:{self._own[number]}", METADATA, body=body, timeout=ASK_S)
        found = reply.json()
        return int(found["term"]), found.get("leaderId") or ""

    def leader(self, among: list[int] | None = None) -> int | None:
        """Return the leader on which all asked members agree, if it is one of them; otherwise None."""
        asked = list(range(self.size)) if among is None else among
        found = {self.standing(number) for number in asked}
        if len(found) != 1:
            return None
        _, name = found.pop()
        return int(name[1:]) if name and int(name[1:]) in asked else None

    def create_topic(self, topic: str, queues: int, among: list[int] | None = None) -> None:
        """Create a topic at the leader, as soon as a leader accepts it.

        Args:
            topic: name of the topic.
            queues: number of queues.
            among: members that must agree on the leader; None for all.
        """
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip

        def made() -> bool:
            for process in (self._server, *self._members):
                if process is not None and process.poll() is not None:
                    raise GaveUpError(f"a server ended with {process.returncode}; see the logs in {self.folder}")
            leader = self.leader(among)
            return leader is not None and call(self.addresses[leader], CREATE_TOPIC, fields, timeout=5).code == 0

        until(made, "the topic is made")

    def ends(self, number: int, topic: str, queues: int) -> list[int]:
        """Return the end offset of each queue at a member.

        Raises:
            OSError: the member does not reply.
        """
        found = []
        for queue in range(queues):
            reply = call(self.addresses[number], MAX_OFFSET, {"topic": topic, "queueId": queue}, timeout=5)
            if reply.code != 0:
                raise OSError(reply.remark)
            found.append(int(reply.fields["offset"]))
        return found

    def whole(self, topic: str, queues: int) -> int:
        """Return the leader, after all members follow it and have the leader's end offsets of the time of the call.

        Raises:
            GaveUpError: the members need too long.
        """
        leader = -1
        wanted: list[int] = []

        def agreed() -> bool:
            nonlocal leader, wanted
            found = self.leader()
            if found is None:
                return False
            leader, wanted = found, self.ends(found, topic, queues)
            return True

        def caught_up() -> bool:
            others = (number for number in range(self.size) if number != leader)
            return all(
                have >= want
                for number in others
                for have, want in zip(self.ends(number, topic, queues), wanted, strict=True)
            )

        until(agreed, "all members follow one leader")
        until(caught_up, "all members have what the leader has")
        return leader
