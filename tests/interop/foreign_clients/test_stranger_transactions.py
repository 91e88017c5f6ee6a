"""Transaction producers of Java and Go against our broker: immediate decisions, decisions on a check, a killed
producer.

A message's index modulo 4 determines the decision: 0 commits and 1 rolls back immediately; 2 commits and 3 rolls back
on a check of the broker. (The C++ client's wheel has no transactions.) With `TIANZHOU_INTEROP_SERVER=apache` the tests
run against Apache's broker, which shows their validity.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache import ApacheNamesrv
from both import broker_of
from frames import create_topic
from strangers import STRANGERS, Line, Program, Stranger, content
from toolchain import ToolchainMissingError

pytestmark = pytest.mark.at_once

# Let marks be written soon: Apache checks decided messages again until they are marked.
CONF = {"transactionTimeOut": 1_000, "transactionCheckInterval": 3_000, "transactionOpBatchInterval": 300}
NAMES = ["java-5.3.3", "java-4.9.7", "go-2.1.2"]
COUNT = 40
PATIENCE = 120
QUEUES = 4


@dataclasses.dataclass(frozen=True)
class Servers:
    """The servers."""

    namesrv: str
    broker: str


@pytest.fixture(scope="module")
def servers(server_kind: str, namesrv: ApacheNamesrv, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield a broker that checks soon and often."""
    with broker_of(server_kind, tmp_path_factory.mktemp("transactions"), CONF, namesrv) as addresses:
        yield Servers(*addresses)


def producer(name: str, servers: Servers, topic: str, group: str, first: int, count: int) -> Program:
    """Return a transaction producer that has finished sending."""
    stranger = STRANGERS[name]

    def command(home: Path) -> list[str]:
        line = stranger.resolve(home)
        return [*line[:-1], "Transactions"] if name.startswith("java") else [*line, "transact"]

    try:
        program = Program(
            dataclasses.replace(stranger, resolve=command), servers.namesrv, topic, group, str(first), str(count)
        )
        program.await_start()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    return program


def consumer(servers: Servers, topic: str) -> Program:
    """Return another client that reads the topic from the beginning."""
    reader: Stranger = STRANGERS["java-5.3.3"]
    program = Program(reader, "consume", servers.namesrv, f"clustering:{topic}_readers:{topic}")
    program.await_start()
    return program


def events(program: Program, event: str) -> list[Line]:
    """Return the lines of an event so far."""
    return [line for line in list(program.lines) if line["event"] == event]


def check_read(reader: Program, first: int, count: int) -> None:
    """Check that exactly the committed messages arrive, each once, unchanged."""
    wanted = {i for i in range(first, first + count) if i % 2 == 0}
    reader.wait_for(
        lambda lines: {line["i"] for line in lines if line["event"] == "received"} >= wanted,
        PATIENCE,
        "not all arrived",
    )
    # Wait for two rounds of checks, in which an unexpected message would arrive.
    time.sleep(5)
    got = events(reader, "received")
    assert Counter(line["i"] for line in got) == Counter(wanted)
    for line in got:
        expected = content(line["i"])
        assert (line["bodySha256"], line["tags"], line["keys"]) == (expected.sha256, expected.tags, expected.keys)


@pytest.mark.parametrize("name", NAMES)
def test_decisions_at_once_and_on_a_check(servers: Servers, name: str) -> None:
    topic = "tx_" + name.replace(".", "_")
    create_topic(servers.namesrv, servers.broker, topic, QUEUES)
    with producer(name, servers, topic, f"{topic}_p", 0, COUNT) as program, consumer(servers, topic) as reader:
        check_read(reader, 0, COUNT)
        sent = {line["i"]: line for line in events(program, "sent")}
        assert {line["status"] for line in sent.values()} == {"SEND_OK"}
        checked = events(program, "checked")
        assert {line["i"] for line in checked} == {i for i in range(COUNT) if i % 4 >= 2}
        for line in checked:
            assert line["topic"] == topic
            assert line["bodyLength"] == content(line["i"]).length
            assert line["transactionId"] == sent[line["i"]]["msgId"], "the id that the producer saw"
        reader.finish()
        program.finish()


@pytest.mark.parametrize(("killed", "other"), [("java-5.3.3", "go-2.1.2"), ("go-2.1.2", "java-4.9.7")])
def test_another_member_is_checked_when_one_is_killed(servers: Servers, killed: str, other: str) -> None:
    topic = f"tx_killed_{killed.partition('-')[0]}"
    create_topic(servers.namesrv, servers.broker, topic, QUEUES)
    with producer(killed, servers, topic, f"{topic}_p", 0, COUNT):
        pass
    # A client that never sent knows no broker, and no broker knows it.
    with producer(other, servers, topic, f"{topic}_p", COUNT, 4) as program, consumer(servers, topic) as reader:
        check_read(reader, 0, COUNT + 4)
        checked = {line["i"] for line in events(program, "checked")}
        assert checked <= {i for i in range(COUNT + 4) if i % 4 >= 2}
        assert len(checked) > COUNT // 4
        reader.finish()
        program.finish()
