"""Producers that send one message after the other for as long as a test wants, and groups that consume all of them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from strangers import STRANGERS, Line, Program, Stranger
from toolchain import ToolchainMissingError

from tianzhou import ConsumeFromWhere, Message, sync
from tianzhou.errors import TianzhouError

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
JAVA, OLD_JAVA, GO = STRANGERS["java-5.3.3"], STRANGERS["java-4.9.7"], STRANGERS["go-2.1.2"]


def need(*strangers: Stranger) -> None:
    """Skip the test when this machine cannot run one of the foreign clients."""
    for stranger in strangers:
        try:
            stranger.resolve(Path())
        except ToolchainMissingError as error:
            pytest.skip(f"{stranger.name}: {error}")


def program(stranger: Stranger, main: str, *arguments: str) -> Program:
    """Return a Java main class of its own, or a command of the Go program."""
    if stranger in (JAVA, OLD_JAVA):
        return Program(replace(stranger, resolve=lambda home: [*stranger.resolve(home)[:-1], main]), *arguments)
    return Program(stranger, main.lower(), *arguments)


class Ours:
    """Our producer, with one message in flight, like the foreign clients'."""

    def __init__(self, namesrv: str, topic: str, first: int) -> None:
        self.lines: list[Line] = []
        self._producer = sync.Producer("two_ours", namesrv, poll_name_server_interval_ms=1_000)
        self._topic, self._first = topic, first
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        i = self._first
        while not self._ended.wait(0.015):
            try:
                result = self._producer.send(Message(self._topic, b"x", properties={"index": str(i)}))
            except TianzhouError as error:
                self.lines.append({"event": "failed", "i": i, "error": str(error)})
            else:
                status, queue = result.status.name, result.queue
                sent = {"event": "sent", "i": i, "status": status, "broker": queue.broker_name}
                self.lines.append({**sent, "queueId": queue.queue_id})
            i += 1

    def __enter__(self) -> Self:
        self._producer.start()
        self._thread.start()
        return self

    def finish(self) -> None:
        self._ended.set()
        self._thread.join(30)

    def __exit__(self, *_: object) -> None:
        self.finish()
        self._producer.stop()


def sent(lines: list[Line], broker: str | None = None, after: int = 0) -> list[int]:
    """Return the numbers of acknowledged messages, by one broker or by any, from a line on."""
    return [
        line["i"] for line in lines[after:] if line["event"] == "sent" and (broker is None or line["broker"] == broker)
    ]


class Groups:
    """Consumers of foreign clients and ours, each in its own group, and their received messages.

    Args:
        stack: ends them.
        namesrv: Address of the name server.
        topic: Topic that they consume.
        name: Part of the groups' names.
        strangers: Foreign clients beside ours.
    """

    def __init__(
        self, stack: ExitStack, namesrv: str, topic: str, name: str = "", strangers: tuple[Stranger, ...] = (JAVA, GO)
    ) -> None:
        self._programs = {
            stranger.name: stack.enter_context(
                Program(
                    stranger,
                    "consume",
                    namesrv,
                    f"{stranger.name}:{topic}_{name}{stranger.name.replace('.', '_')}:{topic}",
                )
            )
            for stranger in strangers
        }
        self._ours: list[int] = []
        consumer = sync.PushConsumer(f"{topic}_{name}ours", namesrv, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=lambda message: self._ours.append(int(message.properties["index"])))
        stack.enter_context(consumer)
        for running in self._programs.values():
            running.await_start()

    def have(self, numbers: set[int]) -> bool:
        """Whether every group has received all of the messages."""
        return numbers <= set(self._ours) and all(
            numbers <= {line["i"] for line in list(running.lines) if line["event"] == "received"}
            for running in self._programs.values()
        )
