"""The exchange: every foreign client consumes while every foreign client sends; one run yields the whole matrix."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import frames
from servers import Server
from strangers import COUNT, JAVA, STRANGERS, Line, Program, Stranger, produce, received
from toolchain import ToolchainMissingError

QUEUES = 4
Need = Callable[..., None]
MADE = 20
"""Messages sent to a topic that did not exist."""
AT_A_TIME = 2
"""Number of concurrent senders; with more senders, a pull of each of the many consumers returns more messages."""
ROUNDS = 10
READY_TIMEOUT = 120
COMPLETE_TIMEOUT = 180
SETTLE_SECONDS = 2.5


@dataclass
class Exchange:
    """The sent and received messages.

    Attributes:
        server: The serving broker.
        missing: Foreign clients that this machine cannot run, with the reason.
        broken: Foreign clients that did not do their part, with the reason.
        sent: Lines of event `sent`, by client.
        made: Lines of event `sent` to a topic that did not exist, by client.
        lines: All lines of the consuming program, by client.
    """

    server: Server
    missing: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    sent: dict[str, list[Line]] = field(default_factory=dict)
    made: dict[str, list[Line]] = field(default_factory=dict)
    lines: dict[str, list[Line]] = field(default_factory=dict)

    @property
    def present(self) -> list[Stranger]:
        """Return the participating foreign clients."""
        return [stranger for name, stranger in STRANGERS.items() if name not in self.missing]

    def received(self, consumer: str, role: str, topic: str) -> list[Line]:
        """Return the messages that a client's consumers of a role received from a topic."""
        return [line for line in received(self.lines[consumer], topic=topic) if line["consumer"].startswith(role)]


def run(server: Server) -> Exchange:
    """Run the exchange."""
    exchange = Exchange(server, missing=_missing())
    for stranger in exchange.present:
        frames.create_topic(server.namesrv, server.broker, stranger.topic, QUEUES)
    with ExitStack() as stack:
        programs: dict[str, Program] = {}
        for stranger in exchange.present:
            specs = [":".join((role, group, ",".join(topics))) for role, group, topics in _specs(exchange, stranger)]
            program = Program(stranger, "consume", server.namesrv, *specs)
            programs[stranger.name] = stack.enter_context(program)
        _await_readiness(exchange, programs)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(partial(_send, exchange, programs), exchange.present))
        _await_completion(exchange, programs)
        for name, program in programs.items():
            try:
                program.finish()
            except AssertionError as error:
                exchange.broken.setdefault(name, f"stopping its consumers: {error}")
            exchange.lines[name] = program.lines
    return exchange


def _send(exchange: Exchange, programs: dict[str, Program], stranger: Stranger) -> None:
    name, modes = stranger.name, [(mode, COUNT) for mode in stranger.modes]
    send = partial(produce, stranger, exchange.server.namesrv)
    if stranger.obeys:
        send = partial(_send_on_command, programs[name], stranger.group("produce"))
    try:
        exchange.sent[name] = send(stranger.topic, 0, modes)
        if stranger.makes_topics:
            exchange.made[name] = send(stranger.made_topic, 0, [("sync", MADE)])
    except AssertionError as error:
        exchange.broken[name] = f"sending: {error}"


def _send_on_command(program: Program, group: str, topic: str, first: int, modes: list[tuple[str, int]]) -> list[Line]:
    return program.produce(topic, group, first, modes)


def broadcast_topics(exchange: Exchange, stranger: Stranger) -> list[str]:
    """Return the topics of a client's broadcasting consumers: its own and the Go client's."""
    return [other.topic for other in exchange.present if other is stranger or other.name.startswith("go")]


def _missing() -> dict[str, str]:
    missing = {}
    for name, stranger in STRANGERS.items():
        try:
            stranger.resolve(Path())
        except ToolchainMissingError as error:
            missing[name] = str(error)
    return missing


def _specs(exchange: Exchange, stranger: Stranger) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (role, group, topics) of each consumer of a client."""
    topics = [other.topic for other in exchange.present]
    for _ in range(stranger.members):
        yield "clustering", stranger.group("clustering"), topics
    if stranger.name in JAVA:
        for _ in range(2):
            yield "broadcasting", stranger.group("broadcasting"), broadcast_topics(exchange, stranger)
        yield "retry", stranger.group("retry"), [stranger.topic]


def _await_readiness(exchange: Exchange, programs: dict[str, Program]) -> None:
    """Send rounds of probes until one round reaches every consumer correctly.

    Then the queue assignment is final, and clients that start at the end of a queue miss no message.
    """
    for program in programs.values():
        program.await_start()
    deadline = time.monotonic() + READY_TIMEOUT
    for number in itertools.count():
        for stranger in exchange.present:
            for queue_id in range(QUEUES):
                properties = {"KEYS": f"probe-{number}"}
                frames.send(exchange.server.broker, stranger.topic, queue_id, b"probe", properties)
        time.sleep(0.7)
        # On a busy machine a round takes longer than the pause before the next one.
        waiting = min((_unready(exchange, programs, n) for n in range(max(0, number - ROUNDS), number + 1)), key=len)
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not consuming within {READY_TIMEOUT} s: {', '.join(waiting)}")


def _unready(exchange: Exchange, programs: dict[str, Program], number: int) -> list[str]:
    """Return the roles whose consumers did not receive that round of probes correctly."""
    return [
        f"{stranger.name} {role}"
        for stranger in exchange.present
        for role in _unready_roles(exchange, stranger, programs[stranger.name].lines, f"probe-{number}")
    ]


def _unready_roles(exchange: Exchange, stranger: Stranger, lines: list[Line], probe: str) -> list[str]:
    unready = []
    seen: dict[str, list[tuple[str, int]]] = {}
    for line in list(lines):
        if line["event"] == "received" and line["keys"] == probe:
            seen.setdefault(line["consumer"], []).append((line["topic"], line["queueId"]))
    specs = list(_specs(exchange, stranger))
    for role in {role for role, _, _ in specs}:
        mine = [queues for name, queues in seen.items() if name.startswith(role)]
        count = sum(1 for other, _, _ in specs if other == role)
        topics = next(topics for other, _, topics in specs if other == role)
        wanted = sorted((topic, queue_id) for topic in topics for queue_id in range(QUEUES))
        if role == "broadcasting":
            ready = len(mine) == count and all(sorted(queues) == wanted for queues in mine)
        else:
            ready = len(mine) == count and sorted(queue for queues in mine for queue in queues) == wanted
        if not ready:
            unready.append(role)
    return unready


def _await_completion(exchange: Exchange, programs: dict[str, Program]) -> None:
    """Wait until all clients have all messages, then a little longer for unexpected ones.

    The tests detect slow clients, pair by pair.
    """
    deadline = time.monotonic() + COMPLETE_TIMEOUT
    for stranger in exchange.present:
        wanted = 0
        for role, _, topics in _distinct(_specs(exchange, stranger)):
            sends = sum(len(exchange.sent.get(other.name, ())) for other in exchange.present if other.topic in topics)
            wanted += sends * (2 if role == "broadcasting" else 1)
            if role == "retry":
                wanted += sum(1 for i in range(stranger.sends) if fails_first(i))
        program = programs[stranger.name]
        try:
            program.wait_for(
                lambda _, program=program, wanted=wanted: program.received_count >= wanted,  # type: ignore[misc]
                max(1.0, deadline - time.monotonic()),
                f"{stranger.name} received less than {wanted} messages",
            )
        except AssertionError as error:
            exchange.broken.setdefault(stranger.name, str(error))
    time.sleep(SETTLE_SECONDS)


def fails_first(i: int) -> bool:
    """Whether the retry consumer refuses message i the first time."""
    return i % 100 == 7


def _distinct(specs: Iterator[tuple[str, str, list[str]]]) -> list[tuple[str, str, list[str]]]:
    return list({group: (role, group, topics) for role, group, topics in specs}.values())
