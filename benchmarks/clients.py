#!/usr/bin/env python3
"""Clients side by side: ours, in both modes, and the C++ client through its Python wheel, against the same brokers.

    .venv/bin/python benchmarks/clients.py --short
    .venv/bin/python benchmarks/clients.py --ways one,push --brokers tianzhou --clients ours,cpp --rounds 1
    .venv/bin/python benchmarks/clients.py --markdown docs/performance.md --json clients.json

Three ways: `one`, a send after the other; `in256`, 256 tasks that each await their send; `push`, messages pushed one by
one to a handler that counts them. Bodies of 1 KiB, 8 queues, each measurement a process of its own, whose CPU time
counts, with all its threads. Brokers are Apache's 5.3.3 (needs Java and Maven) and ours in compiled mode. The C++
client is the wheel `rocketmq` of the interop tests, in an environment of its own; its library has no asyncio, so it is
left out of `in256`, and it cannot start from the first stored message, so its messages are sent while it consumes and
its measurement begins with the first message received. The report names each measurement that cannot run, with the
reason; nothing is estimated.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from machine import describe
from rounds import in_turn, parser_of, set_duration, some_of
from sides import SIDES, CannotRunError, Server
from tables import machine_list, markdown_table, put_section, write_json

WAYS = {
    "one": "one send at a time",
    "in256": "`await send`, 256 at the same time",
    "push": "pushed, one message a call",
}
WANTED = {"one": 10_000, "in256": 200_000, "push": 300_000}
TIMES_CPP = 5.0
CLIENTS = {"ours": "our client", "pure": "our client, pure mode", "cpp": "C++ client"}
BROKERS = ("tianzhou", "apache")
LISTS = {"ways": tuple(WAYS), "brokers": BROKERS, "clients": tuple(CLIENTS)}
"""Options that are comma lists, with the allowed names of each."""
BODY = b"x" * 1024
BATCH = 32
WARM_S = 1
PATIENCE_S = 60.0
FIGURES = {"msgs_per_s": "messages/s", "cpu_us_per_msg": "CPU µs per message"}

Figures = dict[str, float]


def figures(count: int, seconds: float, cpu_s: float) -> Figures:
    """Return the figures that a session prints."""
    return {"msgs_per_s": count / seconds, "cpu_us_per_msg": cpu_s / count * 1e6}


# --- sessions: one measurement each, in a process of its own ---------------------------------------------------------


async def send(namesrv: str, topic: str, seconds: float, tasks: int) -> Figures:
    """Send from `tasks` tasks for `seconds` seconds, after a warm-up."""
    from tianzhou import Message, Producer

    message = Message(topic, BODY)
    async with Producer("clients", namesrv) as producer:

        async def until(end: float) -> int:
            sent = 0
            while time.monotonic() < end:
                await producer.send(message)
                sent += 1
            return sent

        async def all_until(end: float) -> int:
            return sum(await asyncio.gather(*(until(end) for _ in range(tasks))))

        await all_until(time.monotonic() + WARM_S)
        cpu, began = time.process_time(), time.monotonic()
        sent = await all_until(began + seconds)
        return figures(sent, time.monotonic() - began, time.process_time() - cpu)


async def fill(namesrv: str, topic: str, count: int) -> Figures:
    """Create a topic and store messages in it, in batches."""
    from tianzhou import Message, Producer
    from tianzhou.admin import Admin

    async with Admin(namesrv) as admin:
        await admin.topics.create(topic)
    messages = [Message(topic, BODY)] * BATCH
    began, cpu = time.monotonic(), time.process_time()
    async with Producer("clients", namesrv) as producer:

        async def some(batches: int) -> None:
            for _ in range(batches):
                await producer.send_batch(messages)

        await asyncio.gather(*(some(count // BATCH // 8) for _ in range(8)))
    return figures(count, time.monotonic() - began, time.process_time() - cpu)


async def push(namesrv: str, topic: str, count: int) -> Figures:
    """Consume `count` messages that are already stored."""
    from tianzhou import PushConsumer
    from tianzhou.model import ConsumeFromWhere

    seen, done = 0, asyncio.Event()

    async def consume(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            done.set()

    begin = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer(f"clients-{time.time_ns()}", namesrv, consume_from_where=begin)
    consumer.subscribe(topic, handler=consume)
    consumer.suspend()
    async with consumer, asyncio.timeout(PATIENCE_S):
        while sum(queue.topic == topic for queue in consumer.assignment) < 8:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)
        cpu, began = time.process_time(), time.monotonic()
        consumer.resume()
        await done.wait()
        return figures(count, time.monotonic() - began, time.process_time() - cpu)


def cpp_one(namesrv: str, topic: str, seconds: float) -> Figures:
    """Send with the C++ client, one message after the other."""
    library = importlib.import_module("rocketmq.client")  # of another environment
    producer = library.Producer("clients-cpp", timeout=10_000)
    producer.set_namesrv_addr(namesrv)
    producer.start()

    def until(end: float) -> int:
        sent = 0
        while time.monotonic() < end:
            message = library.Message(topic)
            message.set_body(BODY)
            producer.send_sync(message)
            sent += 1
        return sent

    until(time.monotonic() + WARM_S)
    cpu, began = time.process_time(), time.monotonic()
    sent = until(began + seconds)
    found = figures(sent, time.monotonic() - began, time.process_time() - cpu)
    producer.shutdown()
    return found


def cpp_push(namesrv: str, topic: str, count: int) -> Figures:
    """Consume `count` messages with the C++ client; print `ready` when messages may be sent."""
    library = importlib.import_module("rocketmq.client")
    began = cpu = ended = cpu_ended = 0.0
    seen = 0

    def consume(_: object) -> None:
        nonlocal began, cpu, ended, cpu_ended, seen
        if not seen:
            began, cpu = time.monotonic(), time.process_time()
        seen += 1
        if seen == count:
            ended, cpu_ended = time.monotonic(), time.process_time()

    consumer = library.PushConsumer(f"clients-cpp-{time.time_ns()}")
    consumer.set_namesrv_addr(namesrv)
    consumer.set_thread_count(2)
    consumer.subscribe(topic, consume)
    consumer.start()
    time.sleep(5)  # it has no event for an assignment
    print("ready", flush=True)
    limit = time.monotonic() + PATIENCE_S
    while not ended and time.monotonic() < limit:
        time.sleep(0.05)
    if not ended:
        sys.exit(f"{seen} of {count} messages came within {PATIENCE_S:.0f} s")
    print(json.dumps(figures(count, ended - began, cpu_ended - cpu)), flush=True)
    os._exit(0)  # its shutdown may hang


def session(name: str, namesrv: str, topic: str, amount: float) -> Figures:
    """Run one measurement in this process."""
    if name.startswith("cpp"):
        return (cpp_one if name == "cpp-one" else cpp_push)(namesrv, topic, amount)  # type: ignore[operator,no-any-return]
    from tianzhou.remoting.loop import run

    works: dict[str, Callable[[], Coroutine[Any, Any, Figures]]] = {
        "one": lambda: send(namesrv, topic, amount, 1),
        "in256": lambda: send(namesrv, topic, amount, 256),
        "fill": lambda: fill(namesrv, topic, int(amount)),
        "push": lambda: push(namesrv, topic, int(amount)),
    }
    return run(works[name]())


# --- the run ---------------------------------------------------------------------------------------------------------


class Run:
    """All measurements of one run, and the reasons for the missing ones."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.rounds: dict[str, list[float]] = {}
        self.notes: list[str] = []
        self.failed = False
        self.cpp: Path | None = None
        if "cpp" in arguments.clients:
            toolchain = importlib.import_module("toolchain")  # of the tests
            try:
                self.cpp = toolchain.cpp_python()
            except toolchain.ToolchainMissingError as error:
                self.note(f"not run: the C++ client: {error}")

    def note(self, text: str) -> None:
        """Store a note for the report."""
        self.failed = True
        self.notes.append(text)
        print(text, file=sys.stderr, flush=True)

    def measure(self, work: Path) -> None:
        """Run all rounds."""
        for number in range(self.arguments.rounds):
            for broker in in_turn(self.arguments.brokers, number):
                try:
                    server = Server(broker, work)
                except CannotRunError as error:
                    self.note(f"not run: {SIDES[broker]}: {error}")
                    continue
                try:
                    self._broker(broker, f"127.0.0.1:{server.namesrv_port}")
                finally:
                    server.stop()
            print(f"round {number + 1} of {self.arguments.rounds} done", file=sys.stderr, flush=True)

    def _broker(self, broker: str, namesrv: str) -> None:
        count = self.arguments.messages // (8 * BATCH) * 8 * BATCH
        self._session("ours", "fill", namesrv, "ClientsSend", 8 * BATCH)
        if "push" in self.arguments.ways:
            self._session("ours", "fill", namesrv, "ClientsPush", count)
        for way in self.arguments.ways:
            for client in self.arguments.clients:
                if client == "cpp" and (way == "in256" or self.cpp is None):
                    continue
                try:
                    if way != "push":
                        found = self._session(client, way, namesrv, "ClientsSend", self.arguments.secs)
                    elif client != "cpp":
                        found = self._session(client, way, namesrv, "ClientsPush", count)
                    else:
                        found = self._cpp_push(namesrv, min(count, 8 * BATCH * 150))
                except (CannotRunError, ValueError) as error:
                    self.note(f"not run: {WAYS[way]}, {CLIENTS[client]}, {SIDES[broker]}: {error}")
                    continue
                for figure, value in found.items():
                    self.rounds.setdefault(f"{way}.{broker}.{client}.{figure}", []).append(value)

    def _start(self, client: str, way: str, namesrv: str, topic: str, amount: float) -> subprocess.Popen[str]:
        python, name = (str(self.cpp), f"cpp-{way}") if client == "cpp" else (sys.executable, way)
        command = [python, str(Path(__file__).resolve()), "--session", name, namesrv, topic, str(amount)]
        env = {**os.environ, "TIANZHOU_PURE": "1" if client == "pure" else "0"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def _session(self, client: str, way: str, namesrv: str, topic: str, amount: float) -> Figures:
        return _told(self._start(client, way, namesrv, topic, amount))

    def _cpp_push(self, namesrv: str, count: int) -> Figures:
        self._session("ours", "fill", namesrv, "ClientsCpp", 8 * BATCH)
        process = self._start("cpp", "push", namesrv, "ClientsCpp", count)
        assert process.stdout is not None
        if process.stdout.readline().strip() == "ready":
            self._session("ours", "fill", namesrv, "ClientsCpp", count)
        return _told(process)

    def table(self) -> str:
        """Return the figures as a Markdown table: medians, the ratio of our client to the C++ client, and the
        target.
        """
        clients = self.arguments.clients
        ratio = "ours" in clients and "cpp" in clients
        head = ["way", "broker", "figure", *(CLIENTS[client] for client in clients), *(["ours / C++"] if ratio else [])]
        rows = [
            [WAYS[way], SIDES[broker], title, *self._cells(way, broker, figure, ratio=ratio)]
            for way in self.arguments.ways
            for broker in self.arguments.brokers
            for figure, title in FIGURES.items()
        ]
        return markdown_table([*head, "wanted", ""], rows)

    def _cells(self, way: str, broker: str, figure: str, *, ratio: bool) -> list[str]:
        found: dict[str, float] = {}
        for client in self.arguments.clients:
            if values := self.rounds.get(f"{way}.{broker}.{client}.{figure}"):
                found[client] = statistics.median(values)
        form = "{:,.0f}" if figure == "msgs_per_s" else "{:.2f}"
        cells = [form.format(found[client]) if client in found else "not run" for client in self.arguments.clients]
        ours, cpp = found.get("ours"), found.get("cpp")
        times = ours / cpp if ours and cpp else None
        if ratio:
            cells.append(f"{times:.2f}x" if times else "")
        if figure != "msgs_per_s":
            return [*cells, "", ""]
        # Target in messages a second of our client at our broker; target ratio at both brokers.
        least = WANTED[way] if broker == "tianzhou" else 0
        wanted = [f"≥ {least:,}"] * bool(least) + [f"≥ {TIMES_CPP:g}x"] * bool(times)
        if ours is None or not wanted:
            return [*cells, ", ".join(wanted), ""]
        met = ours >= least and (times is None or times >= TIMES_CPP)
        return [*cells, ", ".join(wanted), "met" if met else "**not met**"]

    def markdown(self, machine: dict[str, str]) -> str:
        """Return the section for `docs/performance.md`."""
        arguments = self.arguments
        how = (
            f"{arguments.rounds} rounds, medians; {arguments.secs} s a sending way after {WARM_S} s of warming, "
            f"{arguments.messages:,} messages pushed; 1 KiB bodies, 8 queues; broker and client free to use every core"
        )
        notes = "".join(f"- {note}\n" for note in dict.fromkeys(self.notes))
        return "\n".join(part for part in (f"{how}.\n", machine_list(machine), self.table(), notes) if part)


def _told(process: subprocess.Popen[str]) -> Figures:
    """Return the figures that a session has printed.

    Raises:
        CannotRunError: the session printed no figures, or did not end in time.
    """
    try:
        out, err = process.communicate(timeout=2 * PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise CannotRunError(f"it did not end within {2 * PATIENCE_S:.0f} s") from None
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if not lines:
        raise CannotRunError(" / ".join(err.strip().splitlines()[-2:])[-300:] or f"it ended with {process.returncode}")
    told: Figures = json.loads(lines[-1])
    return told


def parsed() -> argparse.Namespace:
    """Return the parsed arguments, with defaults that depend on other options."""
    parser = parser_of(__doc__)
    for name, known in LISTS.items():
        parser.add_argument(f"--{name}", default=",".join(known), help=f"comma list of {', '.join(known)}; default all")
    parser.add_argument("--messages", type=int, help="how many are pushed, default 400000")
    parser.add_argument("--session", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name, known in LISTS.items():
        setattr(arguments, name, some_of(parser, f"--{name}", getattr(arguments, name), known))
    set_duration(arguments, rounds=3, secs=(2, 5), warm=(WARM_S, WARM_S))
    arguments.messages = arguments.messages or (100_000 if arguments.short else 400_000)
    if arguments.messages < 8 * BATCH:
        parser.error(f"--messages: {arguments.messages} is too few; at least {8 * BATCH}")
    return arguments


def main() -> int:
    """Parse arguments, run, print; 0 when everything was measured, 1 when not."""
    arguments = parsed()
    if arguments.session:
        name, namesrv, topic, amount = arguments.session
        print(json.dumps(session(name, namesrv, topic, float(amount))), flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="clients-") as scratch:
        machine = describe(Path(scratch))
        run = Run(arguments)
        run.measure(Path(scratch))
    write_json(arguments.json, {"machine": machine, "notes": run.notes, "rounds": run.rounds})
    put_section(arguments.markdown, "clients", run.markdown(machine))
    return int(run.failed)


if __name__ == "__main__":
    sys.exit(main())
