"""Java, Go, C++, Node and our own consumers in one group: each member gets queues, and each message arrives once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import frames
import pytest
from servers import Server
from strangers import STRANGERS, Line, Program, Stranger, received
from toolchain import ToolchainMissingError
from ways import PATIENCE

from tianzhou import ConsumeFromWhere, Message, sync
from waiting import until

pytestmark = pytest.mark.at_once

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
JAVA, GO = STRANGERS["java-5.3.3"], STRANGERS["go-2.1.2"]
CPP, NODE = STRANGERS["cpp-0.4.4"], STRANGERS["node-3.12.0"]


def need(*strangers: Stranger) -> None:
    for stranger in strangers:
        try:
            stranger.resolve(Path())
        except ToolchainMissingError as error:
            pytest.skip(f"{stranger.name}: {error}")


class Tally:
    """The messages of each member."""

    def __init__(self, programs: dict[str, Program]) -> None:
        self._programs = programs
        self._lock = threading.Lock()
        self._ours: list[int] = []

    def ours(self, message) -> None:
        with self._lock:
            self._ours.append(int(message.properties["index"]))

    def by_member(self) -> dict[str, list[int]]:
        seen = {name: [line["i"] for line in received(program.lines)] for name, program in self._programs.items()}
        with self._lock:
            return {**seen, "ours": [i for i in self._ours if i >= 0]}

    def times(self) -> Counter[int]:
        return Counter(i for seen in self.by_member().values() for i in seen)


def send(producer: sync.Producer, topic: str, numbers: range, queues: int) -> None:
    targets = producer.queues(topic)
    assert len(targets) == queues
    for i in numbers:
        producer.send(Message(topic, b"x", properties={"index": str(i)}), targets[i % queues])


def test_members_of_five_kinds_share_one_group(server: Server) -> None:
    strangers = (JAVA, GO, CPP, NODE)
    need(*strangers)
    topic, group, queues = "mixed_group", "mixed_group", 20
    frames.create_topic(server.namesrv, server.broker, topic, queues)
    with ExitStack() as stack:
        programs = {
            # The first part names the instance; the broker treats two members of one name as one.
            stranger.name: stack.enter_context(
                Program(stranger, "consume", server.namesrv, f"{stranger.name}:{group}:{topic}")
            )
            for stranger in strangers
        }
        for program in programs.values():
            program.await_start()
        tally = Tally(programs)
        producer = stack.enter_context(sync.Producer("mixed", server.namesrv))
        consumer = sync.PushConsumer(group, server.namesrv, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=tally.ours)
        consumer.start()

        def share() -> int:
            return sum(queue.topic == topic for queue in consumer.assignment)

        def since(first: int) -> dict[str, int]:
            return {name: len([i for i in seen if i >= first]) for name, seen in tally.by_member().items()}

        def check_round(numbers: range, members: list[str]) -> None:
            """Check that each member gets its share of new messages, and each message arrives once."""
            send(producer, topic, numbers, queues)
            until(lambda: sum(since(numbers.start).values()) >= len(numbers), "all have come")
            time.sleep(1)
            assert {count for i, count in tally.times().items() if i >= numbers.start} == {1}
            assert since(numbers.start) == {name: len(numbers) // len(members) for name in members}

        try:
            until(lambda: share() == 4, "ours has a fifth")
            settle(producer, topic, queues, programs, tally, dict.fromkeys(programs, 4))
            check_round(range(3000), [*programs, "ours"])
            assert len(received(programs.pop(GO.name).finish())) == 600
            until(lambda: share() == 5, "ours has a fourth")
            settle(producer, topic, queues, programs, tally, dict.fromkeys(programs, 5))
            check_round(range(3000, 4200), [*programs, "ours"])
            programs.pop(NODE.name).finish()
        finally:
            consumer.stop()
        settle(producer, topic, queues, programs, tally, {JAVA.name: 10, CPP.name: 10})
        send(producer, topic, range(4200, 4500), queues)
        until(lambda: {i for i in tally.times() if i >= 4200} == set(range(4200, 4500)), "two members have all")
        assert [since(4200)[name] for name in programs] == [150, 150]


def settle(
    producer: sync.Producer,
    topic: str,
    queues: int,
    programs: dict[str, Program],
    tally: Tally,
    shares: dict[str, int],
) -> None:
    """Send rounds of probes, one a queue, until a round reaches each client's share of queues."""
    targets = producer.queues(topic)
    deadline = time.monotonic() + PATIENCE
    while True:
        probe = f"probe-{random.randrange(10**9)}"
        for queue in targets:
            producer.send(Message(topic, b"x", keys=probe, properties={"index": "-1"}), queue)
        for _ in range(20):
            time.sleep(0.1)
            found = {
                name: len({line["queueId"] for line in list(program.lines) if line.get("keys") == probe})
                for name, program in programs.items()
            }
            if found == shares:
                return
        assert time.monotonic() < deadline, f"shares are {found} instead of {shares}"


@dataclass(frozen=True)
class Handled:
    """One call of an orderly handler, by any member; times are milliseconds since the epoch."""

    queue: int
    number: int
    begin: float
    end: float


@contextmanager
def ordered_java(server: Server, group: str, topic: str) -> Iterator[Program]:
    program = replace(JAVA, resolve=lambda home: [*JAVA.resolve(home)[:-1], "Ordered"])
    with Program(program, server.namesrv, group, topic) as running:
        running.await_start()
        yield running


def test_orderly_members_of_both_kinds_never_overlap(server: Server) -> None:
    need(JAVA)
    topic = group = "mixed_order"
    queues, count = 8, 400
    frames.create_topic(server.namesrv, server.broker, topic, queues)
    ours: list[Handled] = []

    def handle(message) -> None:
        begin = time.time() * 1000
        time.sleep(random.uniform(0.001, 0.008))
        ours.append(Handled(message.queue_id, int(message.body), begin, time.time() * 1000))

    def member() -> sync.PushConsumer:
        consumer = sync.PushConsumer(group, server.namesrv, orderly=True, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=handle)
        return consumer

    def share(consumer: sync.PushConsumer) -> int:
        return sum(queue.topic == topic for queue in consumer.assignment)

    def feed() -> None:
        with sync.Producer("mixed", server.namesrv) as producer:
            targets = producer.queues(topic)
            for number in range(count):
                for queue in targets:
                    producer.send(Message(topic, b"%d" % number), queue)

    lines: list[Line] = []

    def handled() -> list[Handled]:
        theirs = [line for line in list(lines) if line["event"] == "handled"]
        return [*ours, *(Handled(line["queueId"], line["number"], line["begin"], line["end"]) for line in theirs)]

    feeding = threading.Thread(target=feed)
    feeding.start()
    with ordered_java(server, group, topic) as java:
        lines = java.lines
        with member() as first:
            until(lambda: share(first) == 4, "ours has a half")
            with member() as second:
                until(lambda: share(first) + share(second) in (5, 6), "two of ours and one of Java's share")
                time.sleep(1.5)
            until(lambda: share(first) == 4, "ours has a half again")
            feeding.join(60)
            # When Java's lock request for a queue fails, it tries again after twenty seconds.
            until(lambda: len([line for line in list(lines) if line["event"] == "handled"]) >= 50, "Java has some")
            java.finish()
            assert len(ours) >= 50
            until(lambda: share(first) == queues, "ours has all")
            until(lambda: len({(one.queue, one.number) for one in handled()}) == queues * count, "all are handled")
    check_order(handled(), queues, count)


def check_order(calls: list[Handled], queues: int, count: int) -> None:
    by_queue: dict[int, list[Handled]] = defaultdict(list)
    for one in sorted(calls, key=lambda one: (one.begin, one.end)):
        by_queue[one.queue].append(one)
    assert len(by_queue) == queues
    for queue, of_queue in by_queue.items():
        latest, ended = -1, 0.0
        for one in of_queue:
            # The programs' clocks are read in whole milliseconds.
            assert one.begin >= ended - 1, f"queue {queue}: {one} begins before its predecessor ended at {ended}"
            assert one.number <= latest + 1, f"queue {queue}: {one} overtakes {latest + 1}"
            latest, ended = max(latest, one.number), one.end
        assert latest == count - 1
    # A Java member that loses a queue does not count the last result of its handler; no other message repeats.
    assert len(calls) - queues * count <= 2 * queues
