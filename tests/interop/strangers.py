"""The foreign clients as child processes that exchange JSON lines, and the contents of their messages."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import toolchain

Line = dict[str, Any]
START_TIMEOUT = 120
PRODUCE_TIMEOUT = 300
STOP_TIMEOUT = 90
COUNT = 250


@dataclass(frozen=True)
class Content:
    """The content of message i of any topic, from any sender."""

    length: int
    sha256: str
    tags: str
    keys: str
    note: str

    @property
    def compressed(self) -> bool:
        """Whether clients compress the body by default, unless it is part of a batch."""
        return self.length >= 4096


@functools.cache
def content(i: int) -> Content:
    """Return the content of message i."""
    length = 4096 + i % 2048 if i % 10 == 9 else 16 + i % 241
    body = bytes(1 + (i * 131 + j * 17 + j // 251) % 255 for j in range(length))
    return Content(
        length=length,
        sha256=hashlib.sha256(body).hexdigest(),
        tags=f"tag{i % 4}",
        keys=f"key-{i} group-{i // 50}",
        note=f"note 天舟 {i}",
    )


@dataclass(frozen=True)
class Stranger:
    """One foreign client.

    Attributes:
        name: Its name in test ids.
        resolve: Builds it when needed and returns the command line without arguments.
        modes: The ways it sends, `COUNT` messages each.
        members: Number of consumers in its clustering group.
        inspects: Whether it can pull, view and query (the Java clients can).
        makes_topics: Whether it can send to a missing topic. Node's queries the name server first, and fails.
        obeys: Whether its consuming program also sends on command (`Program.produce`), which saves a start of a JVM.
    """

    name: str
    resolve: Callable[[Path], list[str]]
    modes: tuple[str, ...]
    members: int = 1
    inspects: bool = False
    makes_topics: bool = True
    obeys: bool = False

    @property
    def topic(self) -> str:
        """Return the topic it sends to."""
        return "interop_" + self.name.replace(".", "_")

    @property
    def made_topic(self) -> str:
        """Return the topic that its first send creates."""
        return "interop_auto_" + self.name.replace(".", "_")

    @property
    def sends(self) -> int:
        """Return the number of messages it sends."""
        return COUNT * len(self.modes)

    def mode(self, i: int) -> str:
        """Return the mode in which message i was sent."""
        return self.modes[i // COUNT]

    def group(self, role: str) -> str:
        """Return the name of its consumer group of that role."""
        return f"interop_{role}_" + self.name.replace(".", "_")


def _java(version: str, *properties: str) -> Callable[[Path], list[str]]:
    def resolve(home: Path) -> list[str]:
        classpath = toolchain.java_client(version)
        options = [
            "-Xms32m",
            "-Xmx192m",
            *toolchain.SHORT_LIVED,
            "-Dfile.encoding=UTF-8",
        ]
        waits = ["-Drocketmq.client.rebalance.waitInterval=2000", toolchain.CONNECT_TIMEOUT]
        own = [*properties, f"-Duser.home={home}", "-cp", classpath]
        return [toolchain.tool("java"), *options, *waits, *own, "Impatient", "Main"]

    return resolve


def _go(home: Path) -> list[str]:
    return [str(toolchain.go_program())]


def _cpp(home: Path) -> list[str]:
    return [str(toolchain.cpp_python()), str(toolchain.HERE / "cpp" / "stranger.py")]


def _node(home: Path) -> list[str]:
    modules = f"NODE_PATH={toolchain.node_modules()}"
    return ["env", modules, toolchain.tool("node"), str(toolchain.HERE / "node" / "stranger.js")]


ALL_MODES = ("sync", "async", "oneway", "batch")
KEYED_MODES = ("sync", "async")
"""Modes in which the sender gives each message a unique key, and gets an acknowledgement."""
BINARY = "-Drocketmq.serialize.type=ROCKETMQ"
TLS = "-Dtls.enable=true"
STRANGERS = {
    stranger.name: stranger
    for stranger in (
        Stranger("java-5.3.3", _java("5.3.3"), ALL_MODES, members=2, inspects=True, obeys=True),
        Stranger("java-4.9.7", _java("4.9.7"), ALL_MODES, members=2, inspects=True, obeys=True),
        Stranger("java-5.3.3-binary", _java("5.3.3", BINARY), ("sync", "batch"), members=2, obeys=True),
        Stranger("java-4.9.7-tls", _java("4.9.7", TLS), ("sync", "batch"), obeys=True),
        Stranger("java-5.3.3-tls", _java("5.3.3", TLS), ("sync", "batch"), obeys=True),
        Stranger("go-2.1.2", _go, ALL_MODES, members=2),
        Stranger("cpp-0.4.4", _cpp, ("sync", "oneway")),
        Stranger("node-3.12.0", _node, ("promise",), members=2, makes_topics=False),
    )
}
JAVA = tuple(name for name, stranger in STRANGERS.items() if stranger.inspects)


class Program:
    """A running foreign client; its lines are collected while it runs.

    Attributes:
        lines: All its output lines, in order.
        received_count: Number of messages it has received, without probes.
        produced_count: Number of `produce` commands it has carried out.
    """

    def __init__(self, stranger: Stranger, *arguments: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="stranger-")
        self.lines: list[Line] = []
        self.received_count = 0
        self.produced_count = 0
        self._arrived = threading.Condition()
        self._errors = (Path(self._home.name) / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [*stranger.resolve(Path(self._home.name)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self._home.name,
            env={**toolchain.environment(), "HOME": self._home.name},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            try:
                line = json.loads(raw)
            except ValueError:
                line = {"event": "noise", "text": raw.decode(errors="replace")}
            with self._arrived:
                self.lines.append(line)
                self.received_count += line.get("event") == "received" and line.get("i", -1) >= 0
                self.produced_count += line.get("event") == "produced"
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    def wait_for(self, condition: Callable[[Sequence[Line]], bool], seconds: float, what: str) -> None:
        """Wait until the lines satisfy a condition; fail when the program ends or the time is over."""
        deadline = time.monotonic() + seconds
        with self._arrived:
            while not condition(self.lines):
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not self._reader.is_alive():
                    state = "ended" if remaining > 0 else f"not within {seconds:g} s"
                    raise AssertionError(f"{what}: {state}; {self.errors()}")
                self._arrived.wait(min(remaining, 1.0))

    def await_start(self) -> None:
        """Wait until its clients have started."""
        self.wait_for(
            lambda lines: any(line["event"] == "started" for line in lines), START_TIMEOUT, "clients did not start"
        )

    def give(self, line: str) -> None:
        """Write a line to the program's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, command: str, seconds: float = 90) -> list[Line]:
        """Send an inspecting program one command and return its lines; raise its error."""
        begin = len(self.lines)
        self.give(command)
        self.wait_for(lambda lines: len(lines) > begin and lines[-1]["event"] == "end", seconds, command)
        answer = self.lines[begin:]
        if "error" in answer[-1]:
            raise AssertionError(f"{command}: {answer[-1]['error']}")
        return answer[:-1]

    def produce(self, topic: str, group: str, first: int, modes: Iterable[tuple[str, int]]) -> list[Line]:
        """Let a consuming program send, and return its lines of event `sent`; a failed send is an error."""
        begin, count = len(self.lines), self.produced_count
        self.give(f"produce {topic} {group} {first} {_parts(modes)}")
        self.wait_for(lambda _: self.produced_count > count, PRODUCE_TIMEOUT, f"sending to {topic}")
        lines = [line for line in self.lines[begin:] if line["event"] in ("sent", "failed", "error")]
        return _all_sent(lines)

    def finish(self, seconds: float = STOP_TIMEOUT) -> list[Line]:
        """Close its input, wait for its clean end and return all lines."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"did not end within {seconds:g} s; {self.errors()}") from error
        self._reader.join(5)
        if self._process.returncode == -signal.SIGABRT and self._interrupted_itself():
            return self.lines
        if self._process.returncode != 0 or not self.lines or self.lines[-1]["event"] != "done":
            raise AssertionError(f"ended with {self._process.returncode}; {self.errors()}")
        return self.lines

    def _interrupted_itself(self) -> bool:
        """Whether the C++ client aborted because its own shutdown interrupted one of its threads (README,
        Peculiarities).
        """
        # Output of its other threads may follow.
        stopping = any(line["event"] == "stopping" for line in self.lines)
        return stopping and "boost::thread_interrupted" in self.errors()

    def errors(self) -> str:
        """Return its last report, and the end of its standard error."""
        reported = [line for line in self.lines[-3:] if line["event"] in ("error", "failed", "noise", "timeout")]
        self._errors.seek(0)
        return f"reported {reported}; {self._errors.read().decode(errors='replace')[-1500:] or 'no errors'}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        self._reader.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._home.cleanup()


def produce(stranger: Stranger, namesrv: str, topic: str, first: int, modes: Iterable[tuple[str, int]]) -> list[Line]:
    """Let a foreign client send and return its lines of event `sent`; a failed send is an error."""
    words = [namesrv, topic, stranger.group("produce"), str(first), *_parts(modes).split()]
    with Program(stranger, "produce", *words) as program:
        lines = program.finish(PRODUCE_TIMEOUT)
    return _all_sent(lines)


def _parts(modes: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{mode}:{count}" for mode, count in modes)


def _all_sent(lines: Iterable[Line]) -> list[Line]:
    found = list(lines)
    failures = [line for line in found if line["event"] not in ("sent", "stopping", "done")]
    assert not failures, failures[:3]
    return [line for line in found if line["event"] == "sent"]


def received(lines: Iterable[Line], **fields: object) -> list[Line]:
    """Return the received messages among some lines that have these fields, without probes."""
    return [
        line
        for line in list(lines)
        if line["event"] == "received" and line["i"] >= 0 and all(line[name] == value for name, value in fields.items())
    ]
