"""Ways of sending and consuming in Java, Go, C++ and Node, as programs that a test starts and watches."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import frames
import pytest
from frames import create_topic
from strangers import STRANGERS, Line, Program
from toolchain import ToolchainMissingError

JAVA = ("java-5.3.3", "java-4.9.7")
GO = "go-2.1.2"
CPP = "cpp-0.4.4"
NODE = "node-3.12.0"
NAMES = (*JAVA, GO, CPP, NODE)
QUEUES = 4
COUNT = 40
PATIENCE = 120


@dataclasses.dataclass(frozen=True)
class Servers:
    """The servers of a test."""

    namesrv: str
    broker: str


def program(name: str, *arguments: object, main: str = "Ways", **options: str) -> Program:
    """Return a foreign client that uses these ways.

    Args:
        name: Name of the client.
        arguments: Arguments of the program.
        main: The class of the Java program.
        options: Its environment variables, without `STRANGER_`; see the programs.
    """
    stranger = STRANGERS[name]
    environment = ["env", *(f"STRANGER_{option.upper()}={value}" for option, value in options.items())]

    def command(home: Path) -> list[str]:
        line = stranger.resolve(home)
        return [*environment, *line[:-1], main] if name in JAVA else [*environment, *line]

    try:
        return Program(dataclasses.replace(stranger, resolve=command), *map(str, arguments))
    except ToolchainMissingError as error:
        pytest.skip(f"{name}: {error}")


def topic_for(name: str, servers: Servers, noun: str, queues: int = QUEUES) -> str:
    """Create a topic and return its name."""
    topic = f"ways_{noun}_{name}".replace(".", "_").replace("-", "_")
    create_topic(servers.namesrv, servers.broker, topic, queues)
    return topic


def send(
    name: str, servers: Servers, topic: str, way: str, count: int, parameter: int = 0, **options: str
) -> list[Line]:
    """Let a foreign client send, and return its lines; every message must be acknowledged."""
    with program(name, "send", servers.namesrv, topic, f"{topic}_p", way, count, parameter, **options) as sender:
        lines = [line for line in sender.finish() if line["event"] == "sent"]
    assert sorted(line["i"] for line in lines) == list(range(count))
    assert {line["status"] for line in lines} == {"SEND_OK"}
    return lines


def take(name: str, servers: Servers, role: str, topic: str, members: int = 1, **options: str) -> Program:
    """Start a foreign client's consumers; their group has the topic's name with `_g`."""
    taking = program(name, "take", servers.namesrv, role, f"{topic}_g", topic, members, **options)
    try:
        taking.await_start()
    except BaseException:
        taking.__exit__()
        raise
    return taking


def got(lines: Sequence[Line]) -> list[Line]:
    """Return the received messages, without probes."""
    return [line for line in list(lines) if line["event"] == "received" and line["i"] >= 0]


def wait(taking: Program, condition: Callable[[list[Line]], bool], what: str) -> None:
    """Wait until a program's received messages fulfil a condition."""
    taking.wait_for(lambda lines: condition(got(lines)), PATIENCE, what)


def await_shares(
    taking: Program, servers: Servers, topic: str, members: int, everyone: bool, tag: str = "probe"
) -> None:
    """Send probes until a round of them reaches the members correctly."""
    deadline = time.monotonic() + PATIENCE
    wanted = QUEUES * (members if everyone else 1)
    while True:
        begin = len(taking.lines)
        for queue in range(QUEUES):
            frames.send(servers.broker, topic, queue, b"probe", {"KEYS": "probe", "TAGS": tag})
        for _ in range(20):
            time.sleep(0.1)
            found = [line for line in list(taking.lines)[begin:] if line["event"] == "received" and line["i"] < 0]
            if len(found) == wanted and len({line["consumer"] for line in found}) == members:
                return
        assert time.monotonic() < deadline, f"{len(found)} of {wanted} probes arrived"
