"""Order of a producer's sends while the broker refuses, hangs and recovers, in virtual time.

The broker is a real one, in the test's process, behind faults (`tianzhou.testing.faults`). Sends of one queue or one
sharding key are never overtaken by later ones, whether they go through the outbox or not, and none is lost.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from memory_outbox import MemoryOutbox

from property_examples import costly
from tianzhou import Message, MessageQueue, Producer
from tianzhou.client.producer.outbox.outbox_store import Frame
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt
from tianzhou.testing import AsyncCluster, run_virtual
from tianzhou.testing.faults import Fault, Faults
from waiting import until_async

TOPIC = "Orders"
QUEUES = 2
FAULTS: dict[str, Callable[[Faults], Fault | None]] = {
    "none": lambda faults: None,
    "busy": lambda faults: faults.refuse(2),
    "refuses every other send": lambda faults: faults.refuse(14, times=1),
    "silent": lambda faults: faults.lose_requests(),
    "silent once": lambda faults: faults.lose_requests(times=1),
    "stores and is silent": lambda faults: faults.lose_replies(),
    "stores and is silent once": lambda faults: faults.lose_replies(times=1),
    "breaks connections": lambda faults: faults.drop_connections(),
    "stores and breaks a connection": lambda faults: faults.drop_connections(served=True, times=1),
    "slow": lambda faults: faults.answer_late(0.2),
}
LINES = ["key a", "key b", "queue", "selector", "batch", "any"]

Step = tuple[str, Any]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.tuples(st.sampled_from(LINES), st.integers(1, 4))),
        st.tuples(st.just("fault"), st.sampled_from(list(FAULTS))),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.1, 0.4, 3.0])),
        st.tuples(st.just("restart"), st.none()),
    ),
    min_size=2,
    max_size=25,
)


@dataclass
class Round:
    """A producer's sends.

    Attributes:
        options: options of the producer.
        sent: number of sends that were begun.
        acknowledged: bodies of the sends that returned a result.
    """

    cluster: AsyncCluster
    options: dict[str, Any]
    shared: dict[str, list[Frame]] = field(default_factory=dict)
    sent: int = 0
    acknowledged: set[bytes] = field(default_factory=set)
    running: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        options = self.cluster.client_options(outbox=MemoryOutbox(self.shared), **self.options)
        self.producer = Producer("P", **options)
        await self.producer.start()

    async def stop(self) -> None:
        await asyncio.gather(*self.running)
        await self.producer.stop()

    def send(self, line: str) -> None:
        """Begin a send. All bodies are numbered in the order of these calls."""
        bodies = [b"%s %d" % (b"free" if line == "any" else b"ordered", self.sent + n) for n in range(2)]
        bodies = bodies[: 2 if line == "batch" else 1]
        self.sent += len(bodies)
        queue = MessageQueue(TOPIC, next(iter(self.cluster.brokers)), 0)
        match line:
            case "queue":
                sending = self.producer.send(Message(TOPIC, bodies[0]), queue)
            case "selector":
                sending = self.producer.send(Message(TOPIC, bodies[0]), selector=lambda queues, message, arg: queues[0])
            case "batch":
                sending = self.producer.send_batch([Message(TOPIC, body) for body in bodies], queue)
            case "any":
                sending = self.producer.send(Message(TOPIC, bodies[0]))
            case _:
                sending = self.producer.send(Message(TOPIC, bodies[0], sharding_key=line))

        async def note() -> None:
            try:
                await sending
            except TianzhouError:
                return
            self.acknowledged.update(bodies)

        task = asyncio.create_task(note())
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def finish(self) -> list[MessageExt]:
        """Let the broker recover, wait until the outbox is empty, and return the messages of the topic."""
        self.cluster.faults.clear()
        await asyncio.gather(*self.running)
        await until_async(lambda: self.producer.outbox.pending == 0, "the outbox is empty", within_s=300)
        await self.producer.stop()
        return await self.cluster.messages(TOPIC)


async def play(script: list[Step], options: dict[str, Any]) -> None:
    async with AsyncCluster(virtual=True) as cluster:
        await cluster.create_topic(TOPIC, QUEUES)
        one = Round(cluster, options)
        await one.start()
        for what, value in script:
            match what:
                case "send":
                    line, count = value
                    for _ in range(count):
                        one.send(line)
                case "fault":
                    cluster.faults.clear()
                    FAULTS[value](cluster.faults)
                case "restart":
                    await one.stop()
                    await one.start()
                case _:
                    await asyncio.sleep(value)
        check(await one.finish(), one.acknowledged)


def check(messages: list[MessageExt], acknowledged: set[bytes]) -> None:
    """Check that no acknowledged message is missing, and that first copies of a queue are in the order of the sends."""
    queues: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append((message.queue_offset, bytes(message.body)))
    found = {body for entries in queues.values() for _, body in entries}
    assert acknowledged <= found, f"lost: {sorted(acknowledged - found)}"
    for queue_id, entries in queues.items():
        first = dict.fromkeys(int(body.split()[1]) for _, body in sorted(entries) if body.startswith(b"ordered"))
        assert list(first) == sorted(first), f"overtaken in queue {queue_id}: {list(first)}"


@costly(0.4)
@given(steps, st.sampled_from([{}, {"durable": True, "durable_timeout_ms": 2_000}, {"auto_batch": True}]))
def test_no_send_of_a_queue_or_a_key_is_overtaken_or_lost(script: list[Step], more: dict[str, Any]) -> None:
    run_virtual(play(script, {"retry_times_when_send_failed": 1, "send_msg_timeout_ms": 300, **more}))


def test_a_send_that_fails_is_not_overtaken_by_one_that_begins_meanwhile() -> None:
    script: list[Step] = [
        ("send", ("key a", 1)), ("wait", 0.1),  # from now on the queues are known
        ("fault", "silent once"), ("send", ("key a", 3)), ("send", ("queue", 2)), ("wait", 3.0),
    ]  # fmt: skip
    run_virtual(play(script, {"retry_times_when_send_failed": 0, "send_msg_timeout_ms": 300}))


def test_first_sends_of_a_topic_keep_their_order_before_its_queues_are_known() -> None:
    script: list[Step] = [("fault", "silent once"), ("send", ("selector", 2)), ("send", ("queue", 2)), ("wait", 3.0)]
    run_virtual(play(script, {"retry_times_when_send_failed": 0, "send_msg_timeout_ms": 300}))
