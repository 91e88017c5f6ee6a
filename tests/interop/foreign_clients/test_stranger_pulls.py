"""Go's pull consumer against our broker: polling and acknowledging, pulling in turn, pulling a queue from an offset.

(Java's and C++'s are in `test_strangers.py` and `test_stranger_ways.py`.) With `TIANZHOU_INTEROP_SERVER=apache` the
tests run against Apache's broker, which shows their validity.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import frames
import pytest
from apache import ApacheNamesrv
from both import broker_of
from frames import create_topic
from ways import COUNT, GO, QUEUES, Servers, got, program, send, topic_for, wait

from waiting import until

pytestmark = pytest.mark.at_once

CONF = {"messageDelayLevel": " ".join(["1s"] * 18)}
QUERY_OFFSET = 14


@pytest.fixture(scope="module")
def servers(server_kind: str, namesrv: ApacheNamesrv, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield a broker with delays of a second."""
    with broker_of(server_kind, tmp_path_factory.mktemp("pulls"), CONF, namesrv) as addresses:
        yield Servers(*addresses)


def committed(servers: Servers, group: str, topic: str) -> int:
    """Return the sum of a group's committed offsets of all queues."""
    found = 0
    for queue in range(QUEUES):
        fields: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": queue}
        reply = frames.call(servers.broker, QUERY_OFFSET, fields)
        found += int(reply.fields["offset"]) if reply.code == 0 else 0
    return found


def test_what_is_polled_and_sent_back_comes_again(servers: Servers) -> None:
    """A list with one refused message is sent back as a whole; each message is acknowledged once."""
    topic = topic_for(GO, servers, "poll")
    # Otherwise the client would find it half a minute later.
    create_topic(servers.namesrv, servers.broker, f"%RETRY%{topic}_g", 1)
    send(GO, servers, topic, "plain", COUNT)
    with program(GO, "poll", servers.namesrv, f"{topic}_g", topic) as polling:
        polling.await_start()
        wait(polling, lambda lines: {one["i"] for one in lines if not one["failed"]} == set(range(COUNT)), "not all")
        send(GO, servers, topic, "plain", 5)
        wait(polling, lambda lines: len([one for one in lines if not one["failed"]]) == COUNT + 5, "nothing new")
        polling.finish()
        lines = got(polling.lines)
    assert Counter(line["i"] for line in lines if not line["failed"]) == Counter([*range(COUNT), *range(5)])
    refused = {line["i"] for line in lines if line["failed"]}
    assert refused >= {i for i in range(COUNT) if i % 10 == 7}
    assert {line["reconsumeTimes"] for line in lines if not line["failed"] and line["i"] in refused} <= {0, 1}
    assert {line["i"] for line in lines if line["reconsumeTimes"] == 1} == refused
    until(lambda: committed(servers, f"{topic}_g", topic) == COUNT + 5, "all is committed", every_s=0.1)


def test_tags_select_what_is_polled(servers: Servers) -> None:
    topic = topic_for(GO, servers, "poll_tags")
    send(GO, servers, topic, "plain", COUNT)
    with program(GO, "poll", servers.namesrv, f"{topic}_g", topic, tags="tag0 || tag2") as polling:
        polling.await_start()
        wait(polling, lambda lines: len(lines) >= COUNT // 2, "not all arrived")
        time.sleep(1)
        polling.finish()
        assert Counter(line["i"] for line in got(polling.lines)) == Counter(range(0, COUNT, 2))


@pytest.mark.slow
def test_a_group_that_pulls_goes_on_where_it_was(servers: Servers) -> None:
    """Messages pulled before it knows its queues may arrive once more, because its progress is not stored at
    that time.
    """
    topic = topic_for(GO, servers, "pull")

    def pulled(count: int) -> list[tuple[int, int]]:
        with program(GO, "pull", servers.namesrv, f"{topic}_g", topic, count) as pulling:
            return sorted({(line["queueId"], line["queueOffset"]) for line in got(pulling.finish(100))})

    # An empty queue would hold a pull for twenty seconds, so all queues get the same number.
    share = COUNT // QUEUES
    send(GO, servers, topic, "plain", COUNT)
    assert pulled(COUNT) == [(queue, offset) for queue in range(QUEUES) for offset in range(share)]
    until(lambda: committed(servers, f"{topic}_g", topic) == COUNT, "all is committed", every_s=0.1)
    send(GO, servers, topic, "plain", 2 * QUEUES)
    assert pulled(2 * QUEUES) == [(queue, offset) for queue in range(QUEUES) for offset in (share, share + 1)]


@pytest.mark.parametrize("offset", [0, 40])
def test_a_queue_is_pulled_from_an_offset(servers: Servers, offset: int) -> None:
    topic, count = topic_for(GO, servers, f"from_{offset}", queues=1), 50
    send(GO, servers, topic, "plain", count)
    with program(GO, "from", servers.namesrv, f"{topic}_g", topic, "broker-a", 0, offset, count - offset) as pulling:
        lines = pulling.finish()
    assert [line["queueOffset"] for line in got(lines)] == list(range(offset, count))
    places = [(line["next"], line["min"], line["max"]) for line in lines if line["event"] == "pulled"]
    assert places == [(32, 0, count), (count, 0, count)] if offset == 0 else [(count, 0, count)]


def test_a_pull_waits_for_a_message(servers: Servers) -> None:
    topic = topic_for(GO, servers, "wait", queues=1)
    with program(GO, "from", servers.namesrv, f"{topic}_g", topic, "broker-a", 0, 0, 3) as pulling:
        pulling.await_start()
        for number in range(3):
            time.sleep(1)
            frames.send(servers.broker, topic, 0, b"x", {"index": str(number)})
        lines = got(pulling.finish())
    assert [line["i"] for line in lines] == [0, 1, 2]
    # Otherwise it would arrive at the broker's next check of held pulls, every five seconds.
    assert all(line["at"] - line["storeTimestamp"] < 3000 for line in lines), lines
