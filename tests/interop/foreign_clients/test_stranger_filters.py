"""SQL92 subscriptions of Java and Go clients against our broker: push, lite pull, pull, retries, refusals.

(The C++ client's wheel knows tags only.) The broker stores filter bits in its queue units, so that both ways of
filtering are used. With `TIANZHOU_INTEROP_SERVER=apache` the tests run against Apache's broker, which shows their
validity.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from apache import ApacheNamesrv
from both import broker_of
from frames import create_topic
from strangers import START_TIMEOUT, STRANGERS, Line, Program, produce
from toolchain import ToolchainMissingError

pytestmark = pytest.mark.at_once

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
    """The servers, and the topic with the messages."""

    namesrv: str
    broker: str
    topic: str


@pytest.fixture(scope="module")
def servers(server_kind: str, namesrv: ApacheNamesrv, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield a broker that filters, with messages of a Java client."""
    topic = "selected"
    with broker_of(server_kind, tmp_path_factory.mktemp("filters"), CONF, namesrv) as (address, broker):
        create_topic(address, broker, topic, QUEUES)
        produce(STRANGERS["java-5.3.3"], address, topic, 0, [("sync", COUNT)])
        yield Servers(address, broker, topic)


class Wish(NamedTuple):
    """A consumer with an expression."""

    mode: str
    group: str
    topic: str
    expression: str


def start(name: str, namesrv: str, *wishes: Wish) -> Program:
    """Start a program of consumers with expressions: several consumers in Java, one in Go."""
    stranger = STRANGERS[name]

    def command(home: Path) -> list[str]:
        line = stranger.resolve(home)
        return [*line[:-1], "Selecting"] if name.startswith("java") else [*line, "select"]

    arguments = [part for wish in wishes for part in wish]
    try:
        return Program(dataclasses.replace(stranger, resolve=command), namesrv, *arguments)
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@contextmanager
def started(name: str, namesrv: str, wishes: Sequence[Wish]) -> Iterator[dict[str, Program]]:
    """Yield the programs of started consumers, by group. In Java one program has all consumers."""
    with ExitStack() as stack:
        if name in JAVA:
            one = stack.enter_context(start(name, namesrv, *wishes))
            programs = {wish.group: one for wish in wishes}
        else:
            programs = {wish.group: stack.enter_context(start(name, namesrv, wish)) for wish in wishes}
        for group, program in programs.items():
            program.wait_for(partial(has_started, group), START_TIMEOUT, f"{group} did not start")
        yield programs
        for program in set(programs.values()):
            program.finish()


def is_of(group: str, line: Line) -> bool:
    """Whether a line belongs to a group. Lines of Go's programs name no group and always belong to it."""
    return bool(line.get("group", group) == group)


def has_started(group: str, lines: Sequence[Line]) -> bool:
    return any(line["event"] == "started" and is_of(group, line) for line in lines)


def indices(lines: Sequence[Line], group: str) -> list[int]:
    """Return the numbers of the messages that a group has received so far."""
    return [line["i"] for line in list(lines) if line["event"] == "received" and is_of(group, line)]


def check_selections(programs: dict[str, Program], expected: dict[str, list[int]]) -> None:
    """Check that each group receives exactly the expected messages, each once."""
    for group, wanted in expected.items():
        programs[group].wait_for(
            lambda lines, group=group, wanted=wanted: set(indices(lines, group)) >= set(wanted),  # type: ignore[misc]
            PATIENCE,
            f"{group}: not all arrived",
        )
    time.sleep(1)
    for group, wanted in expected.items():
        assert sorted(indices(programs[group].lines, group)) == wanted, group


@pytest.mark.parametrize("name", NAMES)
def test_push_consumers_get_what_they_select(servers: Servers, name: str) -> None:
    """Messages stored before the consumers started, and messages stored while they run."""
    wishes = {}
    for wish, (expression, wanted) in WISHES.items():
        group = f"push_{wish}_{name.replace('.', '_')}"
        wishes[Wish("push", group, f"{group}_T", expression)] = wanted
    for wish in wishes:
        create_topic(servers.namesrv, servers.broker, wish.topic, QUEUES)
        produce(STRANGERS["go-2.1.2"], servers.namesrv, wish.topic, 0, [("sync", COUNT // 2)])
    with started(name, servers.namesrv, list(wishes)) as programs:
        for end in (COUNT // 2, COUNT):
            check_selections(
                programs, {wish.group: [i for i in range(end) if wanted(i)] for wish, wanted in wishes.items()}
            )
            if end < COUNT:
                for wish in wishes:
                    produce(STRANGERS["go-2.1.2"], servers.namesrv, wish.topic, end, [("sync", COUNT - end)])


@pytest.mark.parametrize("mode", ["lite", "pull"])
@pytest.mark.parametrize("name", JAVA)
def test_pull_consumers_get_what_they_select(servers: Servers, name: str, mode: str) -> None:
    """Their requests contain the expression."""
    group = f"{mode}_{name.replace('.', '_')}"
    wishes = {
        Wish(mode, f"{group}_{wish}", servers.topic, expression): [i for i in range(COUNT) if wanted(i)]
        for wish, (expression, wanted) in WISHES.items()
    }
    with started(name, servers.namesrv, list(wishes)) as programs:
        check_selections(programs, {wish.group: expected for wish, expected in wishes.items()})


@pytest.mark.parametrize("name", NAMES)
def test_refused_messages_come_again(servers: Servers, name: str) -> None:
    """Retries are not filtered away."""
    group = f"retry_{name.replace('.', '_')}"
    wish = Wish("retry", group, servers.topic, "index IN ('3', '4', '5')")
    # Create the retry topic first. The broker would create it when a message is sent back, and Go's client refreshes
    # its routes only every half minute.
    create_topic(servers.namesrv, servers.broker, f"%RETRY%{group}", 1)
    with started(name, servers.namesrv, [wish]) as programs:
        programs[group].wait_for(lambda lines: len(indices(lines, group)) >= 6, PATIENCE, "no second attempts")
        assert Counter(indices(programs[group].lines, group)) == {3: 2, 4: 2, 5: 2}


@pytest.mark.parametrize("name", JAVA)
def test_consumers_with_wrong_expressions_do_not_start(servers: Servers, name: str) -> None:
    """The Java clients check the expression before they start, and report the broker's error."""
    with start(name, servers.namesrv, Wish("push", "wrong", servers.topic, "index >")) as program:
        lines = program.finish(60)
    (refusal,) = [line for line in lines if line["event"] == "refused"]
    assert refusal["code"] == 23, refusal


def test_a_broker_that_does_not_filter_says_so(server_kind: str, tmp_path: Path) -> None:
    """Filtering is off by default, and the clients get an error."""
    with broker_of(server_kind, tmp_path, {"enablePropertyFilter": "false"}) as (namesrv, broker):
        create_topic(namesrv, broker, "T", 1)
        for name in JAVA:
            with start(name, namesrv, Wish("push", "G", "T", "index > 1")) as program:
                lines = program.finish(60)
            (refusal,) = [line for line in lines if line["event"] == "refused"]
            assert refusal["code"] == 1, refusal
            assert "does not support consumer to filter message by SQL92" in refusal["error"]
