"""Two masters in one cluster: one is killed, the other continues, and the killed one returns with its messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import frames
import pytest
from frames import masters
from own import OwnBroker, name_server
from steady import FIRST, GO, JAVA, Groups, Ours, need, program, sent
from strangers import Line, Program

from tianzhou import Message, sync
from waiting import until

ENOUGH = 100
QUEUES = 4
OWNED_WITHIN_S = 12.0
"""Seconds after a member's clean leave until every queue has a consumer again: before the next periodic rebalance of
the others.
"""


@contextmanager
def two_masters(folder: Path) -> Iterator[tuple[str, OwnBroker, OwnBroker]]:
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(folder))
        brokers = [
            stack.enter_context(OwnBroker(namesrv, folder / name / "store", folder / name, {"brokerName": name}))
            for name in ("broker-a", "broker-b")
        ]
        yield namesrv, brokers[0], brokers[1]


@pytest.mark.slow
def test_one_of_two_masters_dies_and_comes_back(tmp_path: Path) -> None:
    need(JAVA, GO)
    topic = "two_masters"
    with two_masters(tmp_path) as (namesrv, a, b), ExitStack() as stack:
        for broker in (a, b):
            frames.create_topic(namesrv, broker.address, topic, QUEUES)
        groups = Groups(stack, namesrv, topic)
        producers: dict[str, Program | Ours] = {
            JAVA.name: stack.enter_context(program(JAVA, "Steady", namesrv, "two_java", topic, "0")),
            GO.name: stack.enter_context(program(GO, "Steady", namesrv, "two_go", topic, "1000000")),
            "ours": stack.enter_context(Ours(namesrv, topic, 2_000_000)),
        }

        def all_send(broker: str, after: dict[str, int]) -> bool:
            return all(len(sent(one.lines, broker, after[name])) >= ENOUGH for name, one in producers.items())

        def marks() -> dict[str, int]:
            return {name: len(one.lines) for name, one in producers.items()}

        begin = dict.fromkeys(producers, 0)
        until(lambda: all_send("broker-a", begin) and all_send("broker-b", begin), "both are sent to")
        b.kill()
        down = marks()
        until(lambda: all_send("broker-a", down), "all go on with the one that lives")
        meanwhile = {i for name, one in producers.items() for i in sent(one.lines, "broker-a", down[name])}
        until(lambda: groups.have(meanwhile), "every group has what the living one took")
        b.start()
        back = marks()
        until(lambda: all_send("broker-b", back), "it is sent to again")
        for one in producers.values():
            one.finish()
        every = {i for one in producers.values() for i in sent(one.lines)}
        until(lambda: groups.have(every), "every group has every message that was acknowledged")
        for name, one in producers.items():
            lines = [line for line in one.lines if line["event"] in ("sent", "failed")]
            failed = [line for line in lines if line["event"] == "failed"]
            # Go's client tries the next queues, often those of the broker that just failed, until it refreshes its
            # route after half a minute; Java's and ours try another broker.
            most = len(lines) // 4 if name == GO.name else 0
            assert len(failed) <= most, f"{name}: {len(failed)} of {len(lines)}, {failed[:3]}"
            assert {line["status"] for line in lines if line["event"] == "sent"} == {"SEND_OK"}


def configure(broker: OwnBroker, topic: str, write: int, read: int, perm: int = 6) -> None:
    fields: dict[str, object] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write, "perm": perm,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert frames.call(broker.address, frames.UPDATE_AND_CREATE_TOPIC, fields).code == 0


@pytest.mark.slow
def test_queues_come_and_go_under_load(tmp_path: Path) -> None:
    """Grow, shrink (writing first, then reading), forbid writing, forbid reading: no message is lost or refused."""
    need(JAVA, GO)
    topic = "two_resized"
    with two_masters(tmp_path) as (namesrv, a, b), ExitStack() as stack:
        for broker in (a, b):
            frames.create_topic(namesrv, broker.address, topic, QUEUES)
        groups = Groups(stack, namesrv, topic)
        producers: dict[str, Program | Ours] = {
            JAVA.name: stack.enter_context(program(JAVA, "Steady", namesrv, "two_java", topic, "0")),
            "ours": stack.enter_context(Ours(namesrv, topic, 2_000_000)),
        }

        def last(count: int) -> list[list[Line]]:
            return [
                [line for line in list(one.lines) if line["event"] == "sent"][-count:] for one in producers.values()
            ]

        def all_sent() -> set[int]:
            return {i for one in producers.values() for i in sent(one.lines)}

        def queues(lines: list[Line]) -> set[int]:
            return {line["queueId"] for line in lines}

        def on_a(line: Line) -> bool:
            return bool(line["broker"] == "broker-a")

        until(lambda: all(len(lines) == 50 for lines in last(50)), "all send")
        configure(a, topic, 8, 8)
        until(lambda: all(set(range(8)) <= queues(lines) for lines in last(100)), "8 queues are used")
        configure(a, topic, 2, 8)
        until(lambda: not any(on_a(one) and one["queueId"] > 1 for lines in last(60) for one in lines), "2 are written")
        so_far = all_sent()
        until(lambda: groups.have(so_far), "what the others held is read")
        configure(a, topic, 2, 2)
        time.sleep(1)
        configure(a, topic, 6, 6)
        until(lambda: all(5 in queues(lines) for lines in last(60)), "6 queues are used")
        configure(a, topic, 6, 6, perm=4)
        until(lambda: not any(on_a(one) for lines in last(60) for one in lines), "a is not written to")
        configure(a, topic, 6, 6)
        until(lambda: all(any(map(on_a, lines)) for lines in last(60)), "a is written to again")
        configure(b, topic, QUEUES, QUEUES, perm=2)
        begin = len(all_sent())
        until(lambda: len(all_sent()) > begin + 200, "sending goes on")
        configure(b, topic, QUEUES, QUEUES)
        for one in producers.values():
            one.finish()
        every = all_sent()
        until(lambda: groups.have(every), "every message that was acknowledged is read by every group", within_s=90)
        for name, one in producers.items():
            assert not [line for line in one.lines if line["event"] == "failed"], name


@pytest.mark.slow
def test_orderly_members_own_every_queue_again_soon_after_one_left(tmp_path: Path) -> None:
    need(JAVA)
    topic = group = "two_ordered"
    with two_masters(tmp_path) as (namesrv, a, b), ExitStack() as stack:
        for broker in (a, b):
            frames.create_topic(namesrv, broker.address, topic, QUEUES)
        handled: list[int] = []

        def member() -> sync.PushConsumer:
            consumer = sync.PushConsumer(group, namesrv, orderly=True, consume_from_where=FIRST)
            consumer.subscribe(topic, handler=lambda message: handled.append(int(message.body)))
            return consumer

        def share(consumer: sync.PushConsumer) -> int:
            return sum(queue.topic == topic for queue in consumer.assignment)

        java = stack.enter_context(program(JAVA, "Ordered", namesrv, group, topic))
        java.await_start()
        ours = stack.enter_context(member())
        producer = stack.enter_context(sync.Producer("two_ordered", namesrv))
        queues = producer.queues(topic)
        assert len(queues) == 2 * QUEUES

        def probe(number: int) -> Callable[[], int]:
            for queue in queues:
                producer.send(Message(topic, b"%d" % number), queue)

            def found() -> int:
                theirs = [line for line in list(java.lines) if line["event"] == "handled" and line["number"] == number]
                return len(theirs) + handled.count(number)

            return found

        until(lambda: share(ours) == QUEUES, "a half each")
        everywhere = probe(1)
        until(lambda: everywhere() == len(queues), "both work")
        other = stack.enter_context(member())
        until(lambda: share(ours) + share(other) in (5, 6), "three members")
        everywhere = probe(2)
        until(lambda: everywhere() == len(queues), "three work")
        # One of ours leaves.
        other.stop()
        everywhere = probe(3)
        until(lambda: everywhere() == len(queues), "two have taken over", within_s=OWNED_WITHIN_S)
        # Java leaves.
        java.finish()
        everywhere = probe(4)
        until(lambda: everywhere() == len(queues), "ours has taken over", within_s=OWNED_WITHIN_S)
        assert share(ours) == len(queues)
        # Java returns, and then ours leaves.
        java = stack.enter_context(program(JAVA, "Ordered", namesrv, group, topic))
        java.await_start()
        until(lambda: share(ours) == QUEUES, "Java has taken its half")
        everywhere = probe(5)
        until(lambda: everywhere() == len(queues), "both work again")
        ours.stop()
        everywhere = probe(6)
        until(lambda: everywhere() == len(queues), "Java has taken over", within_s=OWNED_WITHIN_S)
        assert masters(namesrv, topic)
