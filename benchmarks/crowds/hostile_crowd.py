#!/usr/bin/env python3
"""Cost of ten thousand hostile connections at a server, one limit at a time, and their effect on a well-behaved client.

    .venv/bin/python benchmarks/crowds/hostile_crowd.py                       # 10 000 of each kind, about half an hour
    .venv/bin/python benchmarks/crowds/hostile_crowd.py --connections 500 --cases "topics,long polls" -o json

Each case starts a name server and a broker as processes on a fresh store. For fewer connections the limits shrink in
proportion. A client sends a message and pulls it, over and over, from before the attack until after it; at the end it
pulls every acknowledged message once more. The table shows anonymous memory of the victim before the attack, at its
peak and afterwards; the client's slowest reply; the number of replies that asked it to retry; the number of refusals by
the limit; lines in the log. The exit code is 1 when a message was lost or refused permanently, a server ended, a limit
was not reached that the case must reach, or memory was above `--most-mb`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from hostile_cases import CASES, LARGE_BODY, PASSWORD, QUEUES, TOPIC, USER, Case

sys.path.append(str(Path(__file__).resolve().parents[1]))

from scale import allow_files
from sides import anon_mb, end_processes

from tianzhou.errors import TianzhouError
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.loop import run
from tianzhou.remoting.signing import signing
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command, decode
from tianzhou.wire.fields import write_header

FRIEND = "Friend"
AT_ONCE = 200
SAMPLE_S = 0.1
QUIET_S = 5.0
"""Seconds without a reply after which the connection stops waiting."""


class Peer(asyncio.Protocol):
    """A hostile connection: sends the frames of its case, limited by the window."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.crowd, self.number = crowd, number
        self.frames: Iterator[bytes] = iter(())
        self.waiting = 0
        self.buffer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self.crowd.case.reads:
            transport.pause_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.crowd.gone += 1

    def begin(self) -> None:
        """Send the first pieces."""
        self.frames = self.crowd.case.frames(self.number)
        self.go_on()

    def go_on(self) -> None:
        """Send as many frames as the window allows."""
        pieces = []
        while self.waiting < self.crowd.case.window and (frame := next(self.frames, None)) is not None:
            pieces.append(frame)
            self.waiting += 1
        if pieces and not self.transport.is_closing():
            self.crowd.sent += len(pieces)
            self.transport.write(b"".join(pieces))

    def data_received(self, data: bytes) -> None:
        self.crowd.heard = time.monotonic()
        data, at = self.buffer + data if self.buffer else data, 0
        while len(data) >= at + 4 and len(data) >= (end := at + 4 + int.from_bytes(data[at : at + 4], "big")):
            try:
                reply = decode(data[at + 4 : end])
            except TianzhouError:  # the peer speaks TLS
                break
            if reply.flag & 1:
                self.crowd.codes[int(reply.code)] += 1
                self.waiting -= 1
            at = end
        self.buffer = data[at:]
        self.go_on()


class Crowd:
    """All hostile connections of a case."""

    def __init__(self, case: Case, count: int) -> None:
        self.case, self.count = case, count
        self.peers: list[Peer] = []
        self.codes: Counter[int] = Counter()
        self.sent = self.gone = self.failed = 0
        self.heard = time.monotonic()

    async def connect(self, port: int) -> None:
        """Open the connections, from as many addresses as the case has; the server may refuse some."""
        loop = asyncio.get_running_loop()

        async def one(number: int) -> None:
            source = f"127.0.{1 + number % self.case.addresses}.1", 0
            try:
                async with asyncio.timeout(20):
                    _, peer = await loop.create_connection(
                        lambda: Peer(self, number), "127.0.0.1", port, local_addr=source
                    )
                self.peers.append(peer)
            except (OSError, TimeoutError):
                self.failed += 1

        for first in range(0, self.count, AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(first, min(first + AT_ONCE, self.count))))

    async def attack(self, limit_s: float) -> None:
        """Send everything, and wait for replies, for `limit_s` seconds at most."""
        end = time.monotonic() + limit_s
        for number, peer in enumerate(self.peers):
            peer.begin()
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self.heard = time.monotonic()
        while time.monotonic() < end and time.monotonic() - self.heard < QUIET_S:
            if sum(self.codes.values()) >= self.sent or not self.case.reads:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(self.case.hold_s)

    def leave(self) -> None:
        """Drop all connections."""
        for peer in self.peers:
            peer.transport.abort()


class Victim:
    """A name server and a broker on a store of their own.

    Args:
        case: case with the settings of the victim.
        work: scratch folder.
        connections: number of hostile connections.
    """

    def __init__(self, case: Case, work: Path, connections: int) -> None:
        settings = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "listenPort": 0, "diskMaxUsedSpaceRatio": 99,
                    "diskSpaceEnoughFreeBytes": 1 << 30,
                    "storePathRootDir": work / "store"}  # fmt: skip
        more = case.conf(connections)
        if case.signs:
            user = json.dumps({"username": USER, "password": PASSWORD})
            more |= {"authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": user}
        names = {"listenPort": 0, "kvConfigPath": work / "kv.json", "configStorePath": work / "namesrv.properties"}
        self.work, self.processes = work, []
        namesrv_port = self._start("namesrv", names | (more if case.namesrv else {}))
        self.namesrv = f"127.0.0.1:{namesrv_port}"
        self.port = self._start("broker", settings | {"namesrvAddr": self.namesrv} | ({} if case.namesrv else more))
        self.broker = f"127.0.0.1:{self.port}"
        self.process = self.processes[0 if case.namesrv else 1]
        self.log = work / ("namesrv.log" if case.namesrv else "broker.log")
        if case.namesrv:
            self.port = namesrv_port

    def _start(self, kind: str, settings: dict[str, object]) -> int:
        conf, log, out = (self.work / f"{kind}.{ending}" for ending in ("conf", "log", "out"))
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with log.open("w") as err, out.open("w") as ready:
            process = subprocess.Popen(
                [sys.executable, "-m", "tianzhou", kind, "-c", str(conf), "-o", "json"], stdout=ready, stderr=err,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent / "src")},
            )  # fmt: skip
        self.processes.append(process)
        end = time.monotonic() + 60
        while "\n" not in out.read_text():
            if process.poll() is not None or time.monotonic() > end:
                self.stop()
                sys.exit(f"the {kind} did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        return int(json.loads(out.read_text())["port"])

    @property
    def up(self) -> bool:
        """Whether both processes run."""
        return all(process.poll() is None for process in self.processes)

    def stop(self) -> None:
        """End both processes."""
        end_processes(self.processes, 60)


class Friend:
    """A well-behaved client: sends a message, pulls it, and repeats.

    Args:
        namesrv: address of the name server; each route look-up goes there.
        broker: address of the broker.
        signs: whether requests must be signed.
    """

    def __init__(self, namesrv: str, broker: str, signs: bool) -> None:
        self.namesrv, self.broker = namesrv, broker
        hook = signing(USER, PASSWORD) if signs else None
        self.client = RemotingClient(hooks=[hook] if hook else [])
        self.slowest = {"send": 0.0, "pull": 0.0, "route": 0.0}
        self.sent: list[bytes] = []
        self.errors: list[str] = []
        self.busy = 0

    async def ask(self, what: str, address: str, code: int, body: bytes = b"", **header: object) -> Command:
        """Send a request and note the time until its reply."""
        began = time.monotonic()
        command = Command(code, fields=write_header(code, **header), body=body)
        reply = await self.client.invoke(address, command, timeout_ms=60_000)
        if what:
            self.slowest[what] = max(self.slowest[what], time.monotonic() - began)
        return reply

    async def send(self, topic: str, queue: int, body: bytes, what: str = "") -> bool:
        """Send a message; return whether it was acknowledged."""
        reply = await self.ask(
            what, self.broker, RequestCode.SEND_MESSAGE_V2, body, producer_group="friends", topic=topic,
            default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue, sys_flag=0,
            born_timestamp=int(time.time() * 1000), flag=0, properties="", reconsume_times=0, unit_mode=False,
            batch=False,
        )  # fmt: skip
        if reply.code == ResponseCode.SYSTEM_BUSY:
            self.busy += 1
        elif reply.code:
            self.errors.append(f"send: {reply.code} {reply.remark}")
        return reply.code == 0

    async def pull(self, offset: int, count: int, wait_ms: int, what: str = "") -> list[bytes]:
        """Return the bodies from an offset on."""
        reply = await self.ask(
            what, self.broker, RequestCode.PULL_MESSAGE, consumer_group="friends", topic=FRIEND, queue_id=0,
            queue_offset=offset, max_msg_nums=count, sys_flag=6, commit_offset=0, suspend_timeout_millis=wait_ms,
            subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        return [bytes(record.body) for record in decode_records(reply.body)] if reply.code == 0 else []

    async def prepare(self) -> None:
        """Create the topics, and store the large message of the hostile topic."""
        for topic, queues in ((FRIEND, 1), (TOPIC, QUEUES)):
            reply = await self.ask(
                "", self.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, default_topic="TBW102",
                read_queue_nums=queues, write_queue_nums=queues, perm=6, topic_filter_type="SINGLE_TAG",
                topic_sys_flag=0, order=False,
            )  # fmt: skip
            assert reply.code == 0, reply.remark
        assert await self.send(TOPIC, 0, b"m" * LARGE_BODY)

    async def work(self, pipe: Pipe) -> None:
        """Send and pull until the pipe has a message, then send the observations through the pipe."""
        async with self.client:
            await self.prepare()
            pipe.send("ready")
            while not pipe.poll():
                body = b"%d" % len(self.sent)
                try:
                    if await self.send(FRIEND, 0, body, "send"):
                        self.sent.append(body)
                        if await self.pull(len(self.sent) - 1, 1, 10_000, "pull") != [body]:
                            self.errors.append(f"pull: message {len(self.sent) - 1} is not there")
                    await self.ask("route", self.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=FRIEND)
                except TianzhouError as error:
                    self.errors.append(str(error))
                await asyncio.sleep(0.01)
            found: list[bytes] = []
            while more := await self.pull(len(found), 32, 1_000):
                found += more
            reply = await self.ask("", self.broker, RequestCode.GET_BROKER_RUNTIME_INFO)
            pipe.send(
                {
                    "sent": len(self.sent), "busy": self.busy,
                    "lost": len(set(self.sent) - set(found)), "errors": self.errors[:9],
                    "slowest_ms": {what: round(seconds * 1000, 1) for what, seconds in self.slowest.items()},
                    "figures": {k: v for k, v in KV_TABLE.loads(reply.body).items() if k.startswith("refused_")},
                }
            )  # fmt: skip


def befriend(pipe: Pipe, namesrv: str, broker: str, signs: bool) -> None:
    """Run the well-behaved client in a process of its own."""
    run(Friend(namesrv, broker, signs).work(pipe))


async def measure(case: Case, count: int, limit_s: float, settle_s: float, work: Path) -> dict[str, Any]:
    """Run a case and return its figures."""
    victim = Victim(case, work, count)
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    friend = context.Process(target=befriend, args=(other, victim.namesrv, victim.broker, case.signs), daemon=True)
    try:
        friend.start()
        await _said(pipe)
        await asyncio.sleep(settle_s)
        before = peak = anon_mb(victim.process.pid)
        crowd = Crowd(case, count)

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, anon_mb(victim.process.pid))
                await asyncio.sleep(SAMPLE_S)

        began = time.monotonic()
        watching = asyncio.create_task(watch())
        await crowd.connect(victim.port)
        connected = len(crowd.peers)
        await crowd.attack(limit_s)
        crowd.leave()
        await asyncio.sleep(settle_s)
        watching.cancel()
        took = time.monotonic() - began
        after = anon_mb(victim.process.pid)
        pipe.send("end")
        noticed = await _said(pipe)
        up = victim.up
    finally:
        friend.kill()
        victim.stop()
    log = victim.log.read_text(errors="replace")
    if case.namesrv and crowd.codes[29]:
        noticed["figures"][f"refused_{case.counter}"] = crowd.codes[29]  # the name server has no request for figures
    return {
        "case": case.name, "counter": case.counter, "connections": connected, "refused_connections": crowd.failed,
        "requests": crowd.sent, "replies": dict(sorted(crowd.codes.items())), "before_mb": round(before),
        "peak_mb": round(peak), "after_mb": round(after), "seconds": round(took, 1), **noticed, "up": up,
        "log_lines": log.count("\n"), "traceback": "Traceback" in log,
    }  # fmt: skip


async def _said(pipe: Pipe) -> Any:
    end = time.monotonic() + 120
    while not pipe.poll():
        if time.monotonic() > end:
            raise SystemExit("the client beside the hostile ones does not answer")
        await asyncio.sleep(0.05)
    return pipe.recv()


def problems(found: dict[str, Any], most_mb: float) -> list[str]:
    """Return the violations in the figures of a case."""
    return [text for text, holds in (
        ("a server ended", not found["up"]), ("a traceback is in the log", found["traceback"]),
        (f"{found['lost']} acknowledged messages were lost", found["lost"]),
        (f"refused: {found['errors'][:2]}", found["errors"]),
        (f"memory above {most_mb:.0f} MB", found["peak_mb"] > most_mb),
        (f"refused_{found['counter']} did not move",
         found["counter"] and not int(found["figures"].get(f"refused_{found['counter']}", 0))),
    ) if holds]  # fmt: skip


def show(found: dict[str, Any]) -> str:
    """Return a row of the table."""
    met = found["figures"].get(f"refused_{found['counter']}", "-")
    slowest = max(found["slowest_ms"].values())
    return (
        f"| {found['case']} | {found['connections']} | {found['requests']} | {found['before_mb']} |"
        f" {found['peak_mb']} | {found['after_mb']} | {slowest:.0f} | {found['busy']} | {met} | {found['log_lines']} |"
        f" {found['seconds']:.0f} |"
    )


HEAD = (
    "| who | connections | requests | MB before | at most | after | slowest answer, ms | try again |"
    " limit met | lines of log | s |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Measure the cases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000, help="hostile ones")
    parser.add_argument("--cases", help=f"joined by commas; all by default: {', '.join(CASES)}")
    parser.add_argument("--limit-s", type=float, default=60, help="seconds that one kind may send")
    parser.add_argument("--settle-s", type=float, default=3, help="seconds before and after, when memory is looked at")
    parser.add_argument("--most-mb", type=float, default=float("inf"), help="memory that a victim may use")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    names = [name.strip() for name in arguments.cases.split(",")] if arguments.cases else list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"--cases: there is no {', '.join(sorted(unknown))}; choose from {', '.join(CASES)}")
    allow_files(arguments.connections + 1_000)
    if arguments.output == "table":
        print(HEAD, flush=True)
    bad = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="tianzhou-hostile-") as folder:
            found = run(
                measure(CASES[name], arguments.connections, arguments.limit_s, arguments.settle_s, Path(folder))
            )
        print(json.dumps(found) if arguments.output == "json" else show(found), flush=True)
        bad += [f"{name}: {text}" for text in problems(found, arguments.most_mb)]
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
