"""A cluster with a topic and with clients that trace, at which all command lines of `mqadmin_lines` are run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from mqadmin_commands import GROUP, PRODUCERS, TOPIC
from mqadmin_conversation import SENT, has_committed
from servers import Server

from tianzhou import ConsumeFromWhere, ConsumeResult, Message, MessageExt, MessageQueue
from tianzhou.sync import Admin, Producer, PushConsumer
from waiting import until

TRACES: Final = "AdmTrace"
PREPARED: Final = {
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider"
    ".LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider"
    ".LocalAuthorizationMetadataProvider",
}
"""Settings of a broker that stores users while it does not check them yet."""


class Scene(NamedTuple):
    """Names of a cluster for command lines.

    Attributes:
        values: of the `{…}` of the lines, by name.
        places: addresses and folders of the server, with their names.
        waits: by sub-command, a function that waits until the cluster has the data that the sub-command shows.
    """

    values: dict[str, str]
    places: dict[str, str]
    waits: Mapping[str, Callable[[], object]]

    def before(self, command: str) -> None:
        """Wait for the data that a sub-command shows.

        Args:
            command: the sub-command.
        """
        if (wait := self.waits.get(command)) is not None:
            wait()


@contextmanager
def scene(server: Server, home: Path) -> Iterator[Scene]:
    """Create the topic, send messages, let a consumer read them, and yield the names for command lines.

    Args:
        server: a new one.
        home: folder of the tool's files.
    """
    address = server.namesrv
    with Admin(address) as admin:
        for topic, queues in ((TOPIC, 4), (TRACES, 1)):
            admin.topics.create(topic, read_queue_nums=queues, write_queue_nums=queues)
        with _producer(address) as producer:
            sent = [
                producer.send(
                    Message(TOPIC, b"body %d" % i, tags="TagA" if i % 2 else "TagB", keys=f"key{i}"),
                    queue=MessageQueue(TOPIC, "broker-a", i % 4),
                )
                for i in range(SENT)
            ]
            with _consumer(address, server) as consumer:
                # No line consumes the traced message again, so its traces are the same in each run.
                unique_id, traced_id = str(sent[3].msg_id), str(sent[5].msg_id)
                values = {
                    "ns": address,
                    "broker": server.broker,
                    "cluster": "DefaultCluster",
                    "client": consumer.instance.client_id,
                    "offset_id": str(sent[3].offset_msg_id),
                    "missing_id": str(sent[3].offset_msg_id)[:-8] + "00FFFF01",
                    "unique_id": unique_id,
                    "traced_id": traced_id,
                    "export": str(home / "export"),
                    "long": "L" * 256,
                    "policy": '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}',
                    "exponential": '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":60000,'
                    '"multiplier":2}}',
                } | files(home)
                places = {
                    str(server.store_dir): "store",
                    str(home): "home",
                    address: "ns",
                    server.broker: "broker",
                    values["client"]: "client",
                }

                def is_traced() -> bool:
                    return len(admin.messages.trace(traced_id, trace_topic=TRACES)) == 3

                waits = {
                    "queryMsgTraceById": partial(until, is_traced, "the message is traced"),
                    "brokerConsumeStats": partial(until, partial(has_committed, server), "all is committed"),
                }
                yield Scene(values, places, waits)


def _producer(namesrv: str) -> Producer:
    return Producer(PRODUCERS, namesrv_addr=namesrv, trace=True, trace_topic=TRACES)


@contextmanager
def _consumer(namesrv: str, server: Server) -> Iterator[PushConsumer]:
    got: list[MessageExt] = []

    def consume(message: MessageExt) -> ConsumeResult:
        got.append(message)
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        GROUP,
        namesrv_addr=namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        persist_consumer_offset_interval_ms=500,
        trace=True,
        trace_topic=TRACES,
    )
    consumer.subscribe(TOPIC, handler=consume)
    with consumer:
        until(lambda: len(got) >= SENT, "all is consumed")
        until(partial(has_committed, server), "all is committed", every_s=0.1)
        yield consumer


def files(home: Path) -> dict[str, str]:
    """Write the files that command lines name, and return their paths by name."""
    topics = [
        {"topicName": f"AdmL{i}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for i in range(2)
    ]
    texts = {
        "topics_file": json.dumps(topics),
        "groups_file": json.dumps([{"groupName": f"AdmL{i}"} for i in range(2)]),
        "empty_list": "[]",
        "empty_file": "",
        "words_file": "no JSON",
    }
    for name, text in texts.items():
        (home / name).write_text(text, encoding="utf-8")
    return {name: str(home / name) for name in (*texts, "missing_file")}
