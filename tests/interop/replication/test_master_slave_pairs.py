"""Our slave behind Apache's master, and Apache's behind ours: equal logs, every message at both (broker.md §17)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import frames
import pytest
from apache import ApacheBroker
from own import OwnBroker, name_server
from toolchain import SERVERS, ToolchainMissingError

from tianzhou import sync
from tianzhou.bench.proof.load import LoadOrder
from tianzhou.bench.proof.run import ProofPlan, prove
from tianzhou.model import Message, SendStatus
from waiting import until

TOPIC, PROVED = "orders", "proved"
QUEUES = 4
COMMON = {"mappedFileSizeCommitLog": 1 << 20, "haSendHeartbeatInterval": 1000}


@dataclass
class Pair:
    """A master and its slave."""

    namesrv: str
    master: OwnBroker | ApacheBroker
    slave: OwnBroker | ApacheBroker
    sync_master: bool


# Apache's 5.3.3 slave requests the table of topics a minute after its start.
KINDS = [
    pytest.param(("our slave", SERVERS[1]), marks=pytest.mark.slow),
    ("our master", SERVERS[1]),
    ("our slave", SERVERS[0]),
    pytest.param(("our master", SERVERS[0]), marks=pytest.mark.slow),
]


def started(whose: str, version: str, folder: Path, stack: ExitStack) -> Pair:
    """Start a pair whose slave starts after its master has messages."""
    namesrv = stack.enter_context(name_server(folder))
    role = "SYNC_MASTER" if whose == "our master" else "ASYNC_MASTER"
    first = {**COMMON, "brokerRole": role}
    second = {**COMMON, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
    master: OwnBroker | ApacheBroker
    slave: OwnBroker | ApacheBroker
    if whose == "our slave":
        master = ApacheBroker(namesrv, store_dir=folder / "m", home=folder / "mh", version=version, conf=first)
        slave = OwnBroker(namesrv, folder / "s", folder / "sh", second)
    else:
        master = OwnBroker(namesrv, folder / "m", folder / "mh", first)
        slave = ApacheBroker(namesrv, store_dir=folder / "s", home=folder / "sh", version=version, conf=second)
    stack.callback(master.kill)
    master.start()
    # The slave must also copy messages that were sent before its start.
    with sync.Producer("before", namesrv) as producer:
        for i in range(100):
            producer.send(Message(TOPIC, b"before %d" % i))
    frames.create_topic(namesrv, master.address, PROVED, QUEUES)
    stack.callback(slave.kill)
    slave.start()
    return Pair(namesrv, master, slave, sync_master=role == "SYNC_MASTER")


@pytest.fixture(scope="module")
def pairs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Pair]]:
    """Start all pairs of the selected tests at the same time."""
    tests = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    wanted = list(dict.fromkeys(item.callspec.params["pair"] for item in tests))
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(wanted)))
        stacks = [stack.enter_context(ExitStack()) for _ in wanted]
        running = [
            pool.submit(started, *kind, tmp_path_factory.mktemp("pair"), own)
            for kind, own in zip(wanted, stacks, strict=True)
        ]
        try:
            yield {kind: one.result() for kind, one in zip(wanted, running, strict=True)}
        except ToolchainMissingError as error:
            pytest.skip(str(error))


@pytest.fixture(params=KINDS, ids=lambda param: "-".join(param).replace(" ", "-"), scope="module")
def pair(request: pytest.FixtureRequest, pairs: dict[tuple[str, str], Pair]) -> Pair:
    """Return each pair in turn."""
    return pairs[request.param]


def max_offsets(address: str) -> list[int]:
    found = [frames.call(address, 30, {"topic": TOPIC, "queueId": queue}) for queue in range(QUEUES)]
    return [int(reply.fields["offset"]) for reply in found]


def log_of(broker: OwnBroker | ApacheBroker) -> bytes:
    files = sorted(path for path in (broker.store_dir / "commitlog").iterdir() if path.name.isdigit())
    return b"".join(path.read_bytes() for path in files)


def equal_logs(pair: Pair) -> bool:
    master, slave = log_of(pair.master), log_of(pair.slave)
    length = min(len(master), len(slave))
    # A member with one file more has not written to it.
    return master[:length] == slave[:length] and not any(master[length:]) and not any(slave[length:])


def test_what_the_master_gets_the_slave_has(pair: Pair) -> None:
    """Bodies cross the ends of segments; the slave's queues, built by itself, are as long as the master's."""
    with sync.Producer("p", pair.namesrv) as producer:
        until(
            lambda: producer.send(Message(TOPIC, b"x" * 50_000)).status is SendStatus.SEND_OK or not pair.sync_master,
            "the slave takes part in acknowledgements",
            within_s=60,
        )
        statuses = {producer.send(Message(TOPIC, b"%d" % i * 300, keys=f"k{i}")).status for i in range(3000)}
    assert statuses == {SendStatus.SEND_OK}
    until(lambda: max_offsets(pair.slave.address) == max_offsets(pair.master.address), "all is dispatched", within_s=60)
    until(lambda: equal_logs(pair), "the logs are equal", within_s=60)


def served(address: str, fields: dict[str, object]) -> frames.Reply | None:
    reply = frames.call(address, 11, fields)
    return reply if reply.code == 0 else None


def test_every_message_is_served_by_the_slave(pair: Pair) -> None:
    for queue, end in enumerate(max_offsets(pair.master.address)):
        offset = 0
        while offset < end:
            fields = {
                "consumerGroup": "g", "topic": TOPIC, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
                "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            }  # fmt: skip
            master = frames.call(pair.master.address, 11, fields)
            # Apache's slave has the topic after its request for the table of topics, every minute.
            slave = until(lambda f=fields: served(pair.slave.address, f), "the slave serves the topic", within_s=90)
            assert (master.code, master.body) == (0, slave.body)
            offset = int(slave.fields["nextBeginOffset"])


def test_our_slave_has_topics_groups_and_offsets_of_its_master(pair: Pair) -> None:
    if isinstance(pair.slave, ApacheBroker):
        pytest.skip("Apache's slave asks for them in its own time")
    fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": 1, "commitOffset": 77}
    assert frames.call(pair.master.address, 15, fields).code == 0

    def table(address: str, code: int, member: str) -> dict[str, object]:
        found: dict[str, object] = frames.call(address, code).json()[member]
        return found

    offsets = lambda address: table(address, 43, "offsetTable").get(f"{TOPIC}@g")  # noqa: E731
    until(lambda: offsets(pair.slave.address) == offsets(pair.master.address) == {"1": 77}, "offsets", within_s=30)
    until(
        lambda: (
            table(pair.slave.address, 21, "topicConfigTable").keys()
            >= {name for name in table(pair.master.address, 21, "topicConfigTable") if not name.startswith("rmq_sys")}
        ),
        "topics",
        within_s=30,
    )


def test_a_proof_reads_both_and_they_agree(pair: Pair) -> None:
    proof = ProofPlan(
        topic=PROVED, queues=QUEUES, load=LoadOrder(PROVED, 300, None, 0, 100, 16, 30_000), copies=2, wait_s=120
    )
    outcome = asyncio.run(prove(proof, pair.namesrv))
    assert outcome.verdict.settled, outcome
    assert outcome.verdict.on_majority == outcome.verdict.consumed == 300
    # Messages that were not acknowledged before the slave connected are stored once more, at both.
    master, slave = (one.messages for one in outcome.readings)
    assert master == slave == 300 + sum(one.times - 1 for one in outcome.verdict.stored_twice)
