"""Our servers answer tools as Apache's 5.3.3 do: every code, bare and with fields, and every command of mqadmin."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import frames
import pytest
from mqadmin import Mqadmin
from mqadmin_commands import COMMANDS, GROUP, NOTHING, PRODUCERS, SETTINGS, TOPIC, Asked, comparable
from raw_requests import BROKER, DIFFERENT, FILLED, NAMESRV, Raw, Shown
from raw_requests import asked as ask
from servers import Server, serve
from toolchain import ToolchainMissingError

from tianzhou import ConsumeFromWhere, ConsumeResult, Message, MessageExt, MessageQueue
from tianzhou.sync import Producer, PushConsumer
from tianzhou.wire.codes import RequestCode
from waiting import until

SENT = 8
CODES = sorted({int(code) for code in RequestCode} | {4711})
QUEUES = 4
RUNTIME_INFO, MAX_OFFSET, QUERY_OFFSET = 28, 30, 14


class Answers(NamedTuple):
    """What one kind of server answered.

    Attributes:
        bare: broker and name server, to every code without fields.
        raw: to `raw_requests.FILLED`.
        mqadmin: to `mqadmin_commands.COMMANDS`, by name.
    """

    bare: dict[tuple[str, int], int]
    raw: list[Shown]
    mqadmin: dict[str, list[str]]


def answers(kind: str, folder: Path) -> Answers:
    """What a server says to raw requests, and to mqadmin when it has a topic, a producer and a consumer."""
    with serve(kind, folder, clean=False) as server, Mqadmin() as tools:
        addresses = {BROKER: server.broker, NAMESRV: server.namesrv}
        # A broker that has just begun fails at some it knows, and Apache's tells nothing of itself for a while.
        until(lambda: frames.call(server.broker, RUNTIME_INFO).code == 0, "the broker is warm", every_s=0.1)
        for _ in range(2):
            bare = {(to, code): ask(Raw(code, to, only="code"), addresses)[0] for to in addresses for code in CODES}
        raw = []
        for request in FILLED:
            raw.append(ask(request, addresses))
            until(partial(is_dispatched, server), "queues follow the log")
        tools.run("updateTopic", "-n", server.namesrv, "-c", "DefaultCluster", "-t", TOPIC, "-r", "4", "-w", "4")
        with Producer(PRODUCERS, namesrv_addr=server.namesrv) as producer:
            sent = [
                producer.send(
                    Message(TOPIC, b"body %d" % i, tags="TagA" if i % 2 else "TagB", keys=f"key{i}"),
                    queue=MessageQueue(TOPIC, "broker-a", i % 4),
                )
                for i in range(SENT)
            ]
            with consumer_of_all(server) as consumer:
                values = {
                    "ns": server.namesrv,
                    "broker": server.broker,
                    "cluster": "DefaultCluster",
                    "client": consumer.instance.client_id,
                    "offset_id": str(sent[3].offset_msg_id),
                    "missing_id": str(sent[3].offset_msg_id)[:-8] + "00FFFF01",
                    "unique_id": str(sent[3].msg_id),
                    "export": str(tools.home / "export"),
                } | lists(tools.home)
                places = {
                    str(server.store_dir): "store",
                    str(tools.home): "home",
                    server.namesrv: "ns",
                    server.broker: "broker",
                    values["client"]: "client",
                }
                printed = {}
                for asked in COMMANDS:
                    said = tools.run(*(word.format_map(values) for word in asked.line.split()))
                    printed[asked.name] = comparable(asked, said, places)
                    if asked.name == "sendMessage-queue":
                        until(partial(has_committed, server), "all is committed", every_s=0.1)
                return Answers(bare, raw, printed)


def is_dispatched(server: Server) -> bool:
    """Whether the queues know everything that is in the log."""
    return bool(frames.call(server.broker, RUNTIME_INFO).json()["table"]["dispatchBehindBytes"] == "0")


def has_committed(server: Server) -> bool:
    """Whether the group has committed everything, which it does every five seconds."""
    for queue in range(QUEUES):
        place: dict[str, object] = {"topic": TOPIC, "queueId": queue}
        end = frames.call(server.broker, MAX_OFFSET, place).fields["offset"]
        reply = frames.call(server.broker, QUERY_OFFSET, {**place, "consumerGroup": GROUP})
        if reply.code != 0 or reply.fields["offset"] != end:
            return False
    return is_dispatched(server)


class consumer_of_all:  # noqa: N801 - reads as a function
    """A consumer that has consumed what was sent, and committed it."""

    def __init__(self, server: Server) -> None:
        self._got: list[MessageExt] = []
        self._server = server
        self._consumer = PushConsumer(
            GROUP,
            namesrv_addr=server.namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self._consumer.subscribe(TOPIC, handler=self._consume)

    def _consume(self, message: MessageExt) -> ConsumeResult:
        self._got.append(message)
        return ConsumeResult.SUCCESS

    def __enter__(self) -> PushConsumer:
        self._consumer.start()
        until(lambda: len(self._got) >= SENT, "all is consumed")
        until(partial(has_committed, self._server), "all is committed", every_s=0.1)
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.stop()


def lists(home: Path) -> dict[str, str]:
    """Files of topics and groups to be created."""
    topics = [
        {"topicName": f"AdmL{i}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for i in range(2)
    ]
    written = {"topics_file": topics, "groups_file": [{"groupName": f"AdmL{i}"} for i in range(2)]}
    for name, value in written.items():
        (home / name).write_text(json.dumps(value))
    return {name: str(home / name) for name in written}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, Answers]:
    """Apache's answers and ours."""
    kinds = ("apache", "tianzhou")
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(answers, kind, tmp_path_factory.mktemp(kind) / "data") for kind in kinds]
        try:
            apache, ours = (one.result() for one in running)
        except ToolchainMissingError as error:
            pytest.skip(str(error))
    return apache, ours


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_the_answer_is_apaches(both: tuple[Answers, Answers], asked: Asked) -> None:
    apache, ours = both[0].mqadmin[asked.name], both[1].mqadmin[asked.name]
    if asked.only == SETTINGS:
        # Paths nobody has set are shown here, too.
        assert set(apache) - set(ours) == set()
    else:
        assert ours == apache
    assert bool(apache) is (asked.only != NOTHING), "an empty answer shows nothing"


@pytest.mark.parametrize("number", range(len(FILLED)), ids=lambda number: f"{number}-{FILLED[number]}")
def test_a_request_is_answered_as_by_apache(both: tuple[Answers, Answers], number: int) -> None:
    assert both[1].raw[number] == both[0].raw[number]


@pytest.mark.parametrize("to", [BROKER, NAMESRV])
def test_every_code_without_fields_is_answered_as_by_apache(both: tuple[Answers, Answers], to: str) -> None:
    apache, ours = ({code: answer for (who, code), answer in one.bare.items() if who == to} for one in both)
    differing = {code for code in CODES if apache[code] != ours[code]}
    assert differing == (set(DIFFERENT) if to == BROKER else set())
    # Known to nobody is answered with 3, whoever is asked.
    assert apache[4711] == ours[4711] == 3
