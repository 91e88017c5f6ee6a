"""One cluster of two kinds: our name server, our broker, and a running broker of Apache's that registers at ours.

All clients use both brokers: Java, Go, C++, Node, our own client, and the tools.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import frames
import pytest
from apache import ApacheBroker
from frames import create_topic, masters
from mqadmin import Mqadmin
from own import OwnBroker, name_server
from strangers import Line
from toolchain import ToolchainMissingError
from ways import JAVA, NAMES, PATIENCE, QUEUES, Servers, got, program, send, take, wait

from tianzhou import ConsumeFromWhere, Message, sync
from tianzhou.errors import TianzhouError
from waiting import until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
COUNT = 40
MAX_OFFSET = 30
CONF = {
    "messageDelayLevel": " ".join(["1s"] * 18), "transactionTimeOut": 1_000, "transactionCheckInterval": 3_000,
    "transactionOpBatchInterval": 300,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Our name server with both brokers."""

    namesrv: str
    ours: OwnBroker
    theirs: ApacheBroker

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of both brokers."""
        return [self.ours.address, self.theirs.address]

    def make(self, topic: str, queues: int = QUEUES) -> str:
        """Create a topic with `queues` queues on each broker."""
        for address in self.addresses:
            create_topic(self.namesrv, address, topic, queues)
        return topic

    def stored(self, topic: str) -> list[int]:
        """Return the number of messages of a topic at each broker."""
        found = []
        for address in self.addresses:
            replies = [frames.call(address, MAX_OFFSET, {"topic": topic, "queueId": i}) for i in range(QUEUES)]
            found.append(sum(int(reply.fields["offset"]) for reply in replies))
        return found


@pytest.fixture(scope="module", params=["5.3.3", pytest.param("4.9.7", marks=pytest.mark.slow)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield both brokers, registered with our name server."""
    folder = tmp_path_factory.mktemp("beside")
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(folder))
        ours = OwnBroker(namesrv, folder / "ours" / "store", folder / "ours", CONF)
        theirs = ApacheBroker(
            namesrv, store_dir=folder / "store", home=folder / "apache", version=request.param,
            conf={**CONF, "brokerName": "broker-b"},
        )  # fmt: skip
        stack.callback(theirs.kill)
        stack.callback(ours.kill)
        ours.start()
        try:
            theirs.start()
        except ToolchainMissingError as error:
            pytest.skip(str(error))
        yield Cluster(namesrv, ours, theirs)


@pytest.mark.at_once("cluster")
@pytest.mark.slow
def test_tools_see_one_cluster(cluster: Cluster) -> None:
    """A topic created for the cluster exists on both."""
    with Mqadmin() as tools:
        ns = ("-n", cluster.namesrv)
        tools.run("updateTopic", *ns, "-c", "DefaultCluster", "-t", "beside_tools", "-r", "4", "-w", "4")
        until(lambda: len(masters(cluster.namesrv, "beside_tools")) == 2, "it is on both")
        listed = tools.run("clusterList", *ns)
        printed = tools.run("topicStatus", *ns, "-t", "beside_tools")
    assert all(address in listed for address in cluster.addresses), listed
    if cluster.theirs.version == "4.9.7":
        # The tool of 5.3.3 requests the topic's configuration from every broker, and 4.9.7 does not support that.
        assert "request type 351 not supported" in printed
        return
    status = [line.split()[:2] for line in printed.splitlines() if line.startswith("broker")]
    assert status == [[name, str(i)] for name in ("broker-a", "broker-b") for i in range(4)], printed


@pytest.mark.at_once("cluster")
def test_everyone_sends_to_both_and_reads_from_both(cluster: Cluster) -> None:
    topic = cluster.make("beside_all")
    servers = Servers(cluster.namesrv, cluster.ours.address)
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(
                program(name, "take", cluster.namesrv, "plain", f"beside_{name.replace('.', '_')}", topic, 1)
            )
            for name in NAMES
        }
        ours: list[int] = []
        consumer = sync.PushConsumer("beside_ours", cluster.namesrv, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=lambda message: ours.append(int(message.properties["index"])))
        stack.enter_context(consumer)
        for taking in running.values():
            taking.await_start()
        for number, name in enumerate(NAMES, 1):
            send(name, servers, topic, "plain", COUNT)
            here, there = cluster.stored(topic)
            assert here + there == number * COUNT, name
            assert min(here, there) >= number * COUNT // 4, f"{name} spreads over both"
        with sync.Producer("beside_ours", cluster.namesrv) as producer:
            results = [producer.send(Message(topic, b"x", properties={"index": str(i)})) for i in range(COUNT)]
            assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
        wanted = Counter({i: len(NAMES) + 1 for i in range(COUNT)})
        for name, taking in running.items():
            wait(taking, lambda lines: len(lines) >= wanted.total(), f"{name}: not all arrived")
        until(lambda: len(ours) >= wanted.total(), "all have come to ours")
        time.sleep(1)
        for taking in running.values():
            taking.finish()
            assert Counter(line["i"] for line in got(taking.lines)) == wanted
        assert Counter(ours) == wanted


def held_once(namesrv: str, group: str) -> dict[str, int]:
    """Return the number of queues that exactly one member holds, by topic; empty when two members hold a queue."""
    try:
        with sync.Admin(namesrv) as admin:
            members = admin.groups.connections(group)
            held = Counter(
                queue
                for member in (members.connection_set if members else ())
                for queue, state in admin.groups.running_info(group, member.client_id).mq_table.items()
                if not state.dropped
            )
    except TianzhouError:
        return {}  # a member has just joined or left
    return Counter(queue.topic for queue in held) if set(held.values()) == {1} else {}


@pytest.mark.at_once("cluster")
@pytest.mark.parametrize("name", JAVA)
def test_java_and_ours_share_the_queues_of_both(cluster: Cluster, name: str) -> None:
    """Each gets half of the eight queues. A refused message goes to its member or another one, from either broker."""
    topic = cluster.make(f"beside_shared_{name}".replace(".", "_"))
    group = f"{topic}_g"
    retries = cluster.make(f"%RETRY%{group}", 1)  # Java refreshes its route only every half minute
    servers = Servers(cluster.namesrv, cluster.ours.address)
    ours: list[tuple[int, int]] = []

    def handle(message, context) -> None:
        index, again = int(message.properties["index"]), message.reconsume_times
        ours.append((index, again))
        if index % 10 == 7 and not again:
            context.delay_level = 1
            raise ValueError("once more")

    consumer = sync.PushConsumer(group, cluster.namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic, handler=handle)
    with take(name, servers, "again", topic) as taking, consumer:
        # Java releases its half at its next rebalance; until then both would read it.
        everything = {topic: 2 * QUEUES, retries: 2}
        until(lambda: held_once(cluster.namesrv, group) == everything, "queues are shared out", within_s=PATIENCE)
        assert sum(queue.topic == topic for queue in consumer.assignment) == QUEUES
        send(name, servers, topic, "plain", 2 * COUNT)

        def done() -> list[int]:
            theirs = [line["i"] for line in got(taking.lines) if not line["failed"]]
            return theirs + [index for index, again in list(ours) if index % 10 != 7 or again]

        until(lambda: set(done()) == set(range(2 * COUNT)), "all are consumed")
        time.sleep(1)
        taking.finish()
    assert Counter(done()) == Counter(range(2 * COUNT))
    refused = [line["i"] for line in got(taking.lines) if line["failed"]]
    refused += [index for index, again in ours if index % 10 == 7 and not again]
    assert sorted(refused) == list(range(7, 2 * COUNT, 10))
    assert len(ours) >= COUNT // 2
    assert len(got(taking.lines)) >= COUNT // 2


@pytest.mark.at_once("cluster")
@pytest.mark.parametrize("name", JAVA)
def test_transactions_end_on_either(cluster: Cluster, name: str) -> None:
    """Each broker checks its own transactions."""
    topic = cluster.make(f"beside_tx_{name}".replace(".", "_"))
    with program(name, cluster.namesrv, topic, f"{topic}_p", 0, COUNT, main="Transactions") as deciding:
        deciding.await_start()
        consumer = sync.PushConsumer(f"{topic}_g", cluster.namesrv, consume_from_where=FIRST)
        seen: list[tuple[str, int]] = []

        def handle(message) -> None:
            seen.append((message.store_host, int(message.properties["index"])))

        consumer.subscribe(topic, handler=handle)
        with consumer:
            committed = set(range(0, COUNT, 2))
            until(lambda: {i for _, i in list(seen)} == committed, "all committed ones have come")
            undecided = {i for i in range(COUNT) if i % 4 >= 2}
            deciding.wait_for(
                lambda lines: {line["i"] for line in lines if line["event"] == "checked"} >= undecided,
                PATIENCE,
                "not all were asked about",
            )
        deciding.finish()
    ours = [i for host, i in seen if host == cluster.ours.address]
    assert len(set(ours)) == len(ours)
    # Apache's broker checks committed transactions that it has not marked yet, and takes the reply for another commit.
    theirs = [i for host, i in seen if host == cluster.theirs.address]
    assert sorted({*ours, *theirs}) == sorted(committed)
    assert not set(ours) & set(theirs)
    assert cluster.stored(topic) == [len(ours), len(theirs)]
    assert min(len(ours), len(theirs)) > 0


@pytest.mark.at_once("cluster")
def test_messages_are_found_on_either(cluster: Cluster) -> None:
    """By offset id, by unique key, by key: with our client's tools and with Java's."""
    topic = cluster.make("beside_found")
    with sync.Producer("beside_found", cluster.namesrv) as producer:
        queues = producer.queues(topic)
        results = [producer.send(Message(topic, b"%d" % i, keys=f"k{i}"), queues[i]) for i in range(len(queues))]
    assert len(results) == 2 * QUEUES
    with sync.Admin(cluster.namesrv) as admin:
        for i, result in enumerate(results):
            until(partial(_finds, admin, topic, f"k{i}", b"%d" % i), f"message {i} of {result.queue}")
            assert admin.messages.by_offset_id(result.offset_msg_id, topic=topic).body == b"%d" % i
    with program(JAVA[0], "inspect", cluster.namesrv, "beside_inspect", main="Main") as inspecting:
        inspecting.await_start()
        for i, result in enumerate(results):
            ways = (f"view {topic} {result.offset_msg_id}", f"unique {topic} {result.msg_id}", f"query {topic} k{i} 8")
            for command in ways:
                (line,) = inspecting.ask(command)
                assert (line["queueId"], line["keys"]) == (result.queue.queue_id, f"k{i}"), command
        inspecting.finish()


def _finds(admin: sync.Admin, topic: str, key: str, body: bytes) -> bool:
    return [message.body for message in admin.messages.by_key(topic, key)] == [body]


@pytest.mark.slow
def test_apaches_broker_leaves_and_comes_back(cluster: Cluster) -> None:
    """Its clean stop removes it from our routes immediately; clients continue with ours, and use it again after its
    return.
    """
    topic = cluster.make("beside_leaving")
    lines: list[Line] = []
    with program(JAVA[0], cluster.namesrv, "beside_steady", topic, 0, main="Steady") as steady:
        lines = steady.lines

        def sent(broker: str, after: int) -> int:
            return len([line for line in lines[after:] if line["event"] == "sent" and line["broker"] == broker])

        until(lambda: sent("broker-a", 0) > 20 and sent("broker-b", 0) > 20, "both are used")
        cluster.theirs.stop()
        assert masters(cluster.namesrv, topic) == [cluster.ours.address]
        mark = len(lines)
        until(lambda: sent("broker-a", mark) > 100, "sending goes on")
        cluster.theirs.start()
        mark = len(lines)
        until(lambda: sent("broker-b", mark) > 20, "it is used again", within_s=PATIENCE)
        steady.finish()
    numbers = {line["i"] for line in lines if line["event"] == "sent"}
    with take(JAVA[1], Servers(cluster.namesrv, cluster.ours.address), "plain", topic) as taking:
        wait(taking, lambda found: {line["i"] for line in found} >= numbers, "not all that was acknowledged arrived")
        taking.finish()
