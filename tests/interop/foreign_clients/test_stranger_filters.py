"""SQL92 subscriptions of Java and Go clients against our broker: push, lite pull, pull, retries, refusals.

(The C++ client's wheel knows tags only.) The broker keeps filter bits in its queue units, so that both ways of judging
a message are taken. With `TIANZHOU_INTEROP_SERVER=apache` Apache's broker is asked, which shows what the tests are
worth.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from both import broker_of
from frames import create_topic
from strangers import STRANGERS, Line, Program, produce
from toolchain import ToolchainMissingError

CONF = {"enablePropertyFilter": "true", "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
JAVA = ("java-5.3.3", "java-4.9.7")
NAMES = (*JAVA, "go-2.1.2")
COUNT = 200
QUEUES = 4
PATIENCE = 120

Wanted = Callable[[int], bool]
# Messages have their number as property `index`, and `tag` with the number modulo 4 as tag.
WISHES: dict[str, tuple[str, Wanted]] = {
    "between": ("index BETWEEN 20 AND 39", lambda i: 20 <= i <= 39),
    "tags": ("TAGS IN ('tag1', 'tag3') AND index < 50", lambda i: i % 2 == 1 and i < 50),
    "text": ("note = 'note 天舟 7' OR note = 'note 天舟 8'", lambda i: i in (7, 8)),
    "logic": ("NOT (index > 9) OR (missing IS NULL AND TAGS <> 'tag0' AND index >= 196)", lambda i: i < 10 or i > 196),
}


@dataclasses.dataclass(frozen=True)
class Servers:
    """Who is asked, and the topic that has the messages."""

    namesrv: str
    broker: str
    topic: str


@pytest.fixture(scope="module")
def servers(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A broker that filters, with messages of a Java client."""
    topic = "selected"
    with broker_of(server_kind, tmp_path_factory.mktemp("filters"), CONF) as (namesrv, broker):
        create_topic(namesrv, broker, topic, QUEUES)
        produce(STRANGERS["java-5.3.3"], namesrv, topic, 0, [("sync", COUNT)])
        yield Servers(namesrv, broker, topic)


def start(name: str, namesrv: str, mode: str, group: str, topic: str, expression: str) -> Program:
    """A consumer with an expression."""
    stranger = STRANGERS[name]

    def command(home: Path) -> list[str]:
        line = stranger.resolve(home)
        return [*line[:-1], "Selecting"] if name.startswith("java") else [*line, "select"]

    try:
        return Program(dataclasses.replace(stranger, resolve=command), namesrv, mode, group, topic, expression)
    except ToolchainMissingError as error:
        pytest.skip(str(error))


def indices(lines: list[Line]) -> list[int]:
    """Numbers of the messages received so far."""
    return [line["i"] for line in list(lines) if line["event"] == "received"]


def check_selection(program: Program, expected: list[int]) -> None:
    """Exactly the expected ones arrive, each once."""
    program.wait_for(lambda lines: set(indices(list(lines))) >= set(expected), PATIENCE, "not all arrived")
    time.sleep(1)
    assert sorted(indices(program.lines)) == expected


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("name", NAMES)
def test_push_consumers_get_what_they_select(servers: Servers, name: str, wish: str) -> None:
    """What was stored before they came, and what is stored while they are there."""
    expression, wanted = WISHES[wish]
    group = f"push_{wish}_{name.replace('.', '_')}"
    topic = f"{group}_T"
    create_topic(servers.namesrv, servers.broker, topic, QUEUES)
    produce(STRANGERS["go-2.1.2"], servers.namesrv, topic, 0, [("sync", COUNT // 2)])
    with start(name, servers.namesrv, "push", group, topic, expression) as program:
        program.await_start()
        check_selection(program, [i for i in range(COUNT // 2) if wanted(i)])
        produce(STRANGERS["go-2.1.2"], servers.namesrv, topic, COUNT // 2, [("sync", COUNT // 2)])
        check_selection(program, [i for i in range(COUNT) if wanted(i)])
        program.finish()


@pytest.mark.parametrize("mode", ["lite", "pull"])
@pytest.mark.parametrize("name", JAVA)
def test_pull_consumers_get_what_they_select(servers: Servers, name: str, mode: str) -> None:
    """Their requests bring the expression along."""
    group = f"{mode}_{name.replace('.', '_')}"
    for wish, (expression, wanted) in WISHES.items():
        with start(name, servers.namesrv, mode, f"{group}_{wish}", servers.topic, expression) as program:
            program.await_start()
            check_selection(program, [i for i in range(COUNT) if wanted(i)])
            program.finish()


@pytest.mark.parametrize("name", NAMES)
def test_refused_messages_come_again(servers: Servers, name: str) -> None:
    """Retries are not filtered away."""
    group = f"retry_{name.replace('.', '_')}"
    with start(name, servers.namesrv, "retry", group, servers.topic, "index IN ('3', '4', '5')") as program:
        program.await_start()
        program.wait_for(lambda lines: len(indices(list(lines))) >= 6, PATIENCE, "no second attempts")
        assert Counter(indices(program.lines)) == {3: 2, 4: 2, 5: 2}
        program.finish()


@pytest.mark.parametrize("name", JAVA)
def test_consumers_with_wrong_expressions_do_not_start(servers: Servers, name: str) -> None:
    """The Java clients ask before they start, and say what the broker said."""
    with start(name, servers.namesrv, "push", "wrong", servers.topic, "index >") as program:
        lines = program.finish(60)
    (refusal,) = [line for line in lines if line["event"] == "refused"]
    assert refusal["code"] == 23, refusal


def test_a_broker_that_does_not_filter_says_so(server_kind: str, tmp_path: Path) -> None:
    """Filtering is off by default, and the clients hear it."""
    with broker_of(server_kind, tmp_path, {"enablePropertyFilter": "false"}) as (namesrv, broker):
        create_topic(namesrv, broker, "T", 1)
        for name in JAVA:
            with start(name, namesrv, "push", "G", "T", "index > 1") as program:
                lines = program.finish(60)
            (refusal,) = [line for line in lines if line["event"] == "refused"]
            assert refusal["code"] == 1, refusal
            assert "does not support consumer to filter message by SQL92" in refusal["error"]
