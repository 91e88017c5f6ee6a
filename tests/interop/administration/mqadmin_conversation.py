"""A conversation: one tool runs mqadmin's commands in a fixed order at a cluster with a topic, a producer and a
consumer.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import frames
from mqadmin import Mqadmin
from mqadmin_commands import COMMANDS, GROUP, PRODUCERS, TOPIC, comparable
from servers import Server, serve

from tianzhou import ConsumeFromWhere, ConsumeResult, Message, MessageExt, MessageQueue
from tianzhou.sync import Producer, PushConsumer
from waiting import until

SENT = 8
QUEUES = 4
RUNTIME_INFO, MAX_OFFSET, QUERY_OFFSET = 28, 30, 14


def conversation(kind: str, version: str, folder: Path) -> dict[str, list[str]]:
    """Return the output of a tool at a fresh cluster, by the name of the command, like `talk`.

    Args:
        kind: kind of the server, as in `servers.serve`.
        version: version of the tool, as in `Mqadmin`.
        folder: folder of the cluster's files.
    """
    with serve(kind, folder, clean=False, takes_tls=True) as server, Mqadmin(version) as tools:
        is_warm(server)
        return talk(server, tools)


def is_warm(server: Server) -> None:
    """Wait until a started broker reports its runtime info; Apache's does not at first."""
    until(lambda: frames.call(server.broker, RUNTIME_INFO).code == 0, "the broker is warm", every_s=0.1)


def talk(server: Server, tools: Mqadmin) -> dict[str, list[str]]:
    """Return the parts of a tool's answers that two clusters, or two tools, must have in common, by the name of the
    command.
    """
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
                if asked.afresh:
                    tools.begin_afresh()
                said = tools.run(*(word.format_map(values) for word in asked.line.split()))
                printed[asked.name] = comparable(asked, said, places)
                if asked.name == "sendMessage-queue":
                    until(partial(has_committed, server), "all is committed", every_s=0.1)
            return printed


def is_dispatched(server: Server) -> bool:
    """Whether the queues have every message in the log."""
    return bool(frames.call(server.broker, RUNTIME_INFO).json()["table"]["dispatchBehindBytes"] == "0")


def has_committed(server: Server) -> bool:
    """Whether the group has committed all offsets, which it does every five seconds."""
    for queue in range(QUEUES):
        place: dict[str, object] = {"topic": TOPIC, "queueId": queue}
        end = frames.call(server.broker, MAX_OFFSET, place).fields["offset"]
        reply = frames.call(server.broker, QUERY_OFFSET, {**place, "consumerGroup": GROUP})
        if reply.code != 0 or reply.fields["offset"] != end:
            return False
    return is_dispatched(server)


class consumer_of_all:  # noqa: N801 - reads as a function
    """A consumer that has consumed and committed all messages."""

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
    """Return files with topics and groups to create."""
    topics = [
        {"topicName": f"AdmL{i}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for i in range(2)
    ]
    written = {"topics_file": topics, "groups_file": [{"groupName": f"AdmL{i}"} for i in range(2)]}
    for name, value in written.items():
        (home / name).write_text(json.dumps(value))
    return {name: str(home / name) for name in written}
