"""Offsets reset by the broker (`useServerSideResetOffset`, the default) while foreign members are online.

The broker answers each queue's next pull with the reset offset; members drop their cached messages and continue there,
some of them ten to thirty seconds later. The reset is requested in both ways: by the bare request, and by mqadmin. With
`TIANZHOU_INTEROP_SERVER=apache` the tests run against Apache's broker, which shows their validity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import frames
import pytest
from apache import ApacheNamesrv
from both import broker_of
from mqadmin import Mqadmin
from ways import COUNT, NAMES, Servers, await_shares, got, send, take, topic_for, wait

from waiting import until

DELETE_TOPIC = 215
RESET_OFFSET = 222
QUERY_OFFSET = 14
MAX_OFFSET = 30
QUEUES = 4


@pytest.fixture(scope="module")
def servers(server_kind: str, namesrv: ApacheNamesrv, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield a broker with default settings."""
    with broker_of(server_kind, tmp_path_factory.mktemp("resets"), {}, namesrv) as addresses:
        yield Servers(*addresses)


def has_committed(servers: Servers, topic: str) -> bool:
    """Whether the topic's group has committed all offsets."""
    for queue in range(QUEUES):
        place: dict[str, object] = {"topic": topic, "queueId": queue}
        end = frames.call(servers.broker, MAX_OFFSET, place).fields["offset"]
        reply = frames.call(servers.broker, QUERY_OFFSET, {**place, "consumerGroup": f"{topic}_g"})
        if reply.code != 0 or reply.fields["offset"] != end:
            return False
    return True


def check_reset(servers: Servers, noun: str, reset: Callable[[str], None]) -> None:
    """Check that all clients consume, are reset to the beginning at the same time, and consume all messages
    once more.
    """
    topics = {name: topic_for(name, servers, noun) for name in NAMES}
    with ExitStack() as stack:
        running = {name: stack.enter_context(take(name, servers, "plain", topic)) for name, topic in topics.items()}
        for name, taking in running.items():
            await_shares(taking, servers, topics[name], 1, everyone=False)
            send(name, servers, topics[name], "plain", COUNT)
        for name, taking in running.items():
            wait(taking, lambda lines: len(lines) >= COUNT, f"{name}: not all arrived")
            until(partial(has_committed, servers, topics[name]), f"{name} has committed", every_s=0.1)
        for topic in topics.values():
            reset(topic)
        for name, taking in running.items():
            wait(taking, lambda lines: len(lines) >= 2 * COUNT, f"{name} did not start over")
        for name, taking in running.items():
            until(partial(has_committed, servers, topics[name]), f"{name} has committed", every_s=0.1)
            taking.finish()
            assert Counter(line["i"] for line in got(taking.lines)) == Counter([*range(COUNT)] * 2), name


@pytest.mark.slow
def test_members_begin_again_where_the_broker_resets(servers: Servers) -> None:
    def reset(topic: str) -> None:
        fields: dict[str, object] = {"topic": topic, "group": f"{topic}_g", "timestamp": 0, "isForce": "true"}
        reply = frames.call(servers.broker, RESET_OFFSET, fields)
        assert reply.code == 0, (topic, reply.remark)

    check_reset(servers, "reset", reset)


@pytest.mark.slow
def test_members_begin_again_when_mqadmin_resets(servers: Servers) -> None:
    with Mqadmin() as tools:

        def reset(topic: str) -> None:
            printed = tools.run("resetOffsetByTime", "-n", servers.namesrv, "-g", f"{topic}_g", "-t", topic, "-s", "0")
            assert "broker-a" in printed, printed

        check_reset(servers, "reset_tool", reset)


@pytest.mark.slow
def test_members_consume_a_topic_that_is_made_again(servers: Servers, server_kind: str) -> None:
    """Each client consumes, its topic is deleted and created again, and it consumes as many messages of the
    new topic.
    """
    if server_kind == "apache":
        pytest.skip("Apache's broker lets members pull on at their old offsets")
    topics = {name: topic_for(name, servers, "remade") for name in NAMES}
    with ExitStack() as stack:
        running = {name: stack.enter_context(take(name, servers, "plain", topic)) for name, topic in topics.items()}
        for name, taking in running.items():
            await_shares(taking, servers, topics[name], 1, everyone=False)
            send(name, servers, topics[name], "plain", COUNT)
        for name, taking in running.items():
            wait(taking, lambda lines: len(lines) >= COUNT, f"{name}: not all arrived")
            until(partial(has_committed, servers, topics[name]), f"{name} has committed", every_s=0.1)
        for name, topic in topics.items():
            reply = frames.call(servers.broker, DELETE_TOPIC, {"topic": topic})
            assert reply.code == 0, (topic, reply.remark)
            assert topic_for(name, servers, "remade") == topic
            send(name, servers, topic, "plain", COUNT)
        for name, taking in running.items():
            wait(taking, lambda lines: len(lines) >= 2 * COUNT, f"{name} passed messages of the new topic over")
        for name, taking in running.items():
            until(partial(has_committed, servers, topics[name]), f"{name} has committed", every_s=0.1)
            taking.finish()
            assert Counter(line["i"] for line in got(taking.lines)) == Counter([*range(COUNT)] * 2), name
