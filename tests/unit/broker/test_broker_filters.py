"""Expressions in pulls, checks and heartbeats select messages, and the error for a wrong one names its position."""

from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from store_probe import StoreProbe
from tianzhou.model import SubscriptionData, TopicConfig
from tianzhou.records.codec import decode_records
from tianzhou.store.queues.extension import ExtendedQueue
from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, ClientConfigCheck
from tianzhou.wire.fields import read_reply

ON = {"enable_property_filter": True}


async def fill(bench: Bench, *numbers: int, topic: str = "T", **properties: str) -> None:
    peer = bench.peer()
    if bench.tables.topics.get(topic) is None:
        bench.tables.topics.put(TopicConfig(topic, 1, 1), 1)
    for number in numbers:
        reply = await peer.send(topic, b"%d" % number, properties={"n": str(number), **properties})
        assert reply.code == 0, reply.remark


def bodies(reply: Any) -> list[int]:
    assert reply.code == 0, reply.remark
    return [int(record.body) for record in decode_records(reply.body)]


def sql(expression: str) -> dict[str, Any]:
    return {"subscription": expression, "expression_type": "SQL92"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n > 5", [6, 7, 8, 9]),
        ("n BETWEEN 2 AND 4 OR n = 8", [2, 3, 4, 8]),
        ("TAGS = 'odd' AND n < 4", [1, 3]),
        ("a = 1 OR b = 2 OR c = 3 OR d = 4 OR n IN ('7')", [7]),
        ("missing IS NULL", list(range(10))),
    ],
)
async def test_a_pull_brings_its_expression(broker: OpenBench, expression: str, expected: list[int]) -> None:
    async with broker(**ON) as bench:
        for number in range(10):
            await fill(bench, number, TAGS="odd" if number % 2 else "even")
        assert bodies(await bench.peer().pull("T", **sql(expression))) == expected


async def test_passed_over_messages_move_the_position(broker: OpenBench) -> None:
    async with broker(**ON) as bench:
        await fill(bench, *range(5))
        reply = await bench.peer().pull("T", **sql("n > 100"))
        assert (reply.code, reply.remark) == (20, "NO_MATCHED_MESSAGE")
        assert read_reply(11, reply).next_begin_offset == 5


async def test_expressions_that_are_wrong_name_the_place(broker: OpenBench) -> None:
    async with broker(**ON) as bench:
        await fill(bench, 1)
        peer = bench.peer()
        reply = await peer.pull("T", **sql("n >"))
        assert reply.code == 23
        assert "the expression ends at position 3" in reply.remark
        reply = await peer.pull("T", subscription="n", expression_type="XPATH")
        assert (reply.code, "XPATH is unknown" in reply.remark) == (23, True)


async def test_sql_is_off_by_default_and_the_answer_says_how_to_turn_it_on(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1)
    expected = "The broker does not support consumer to filter message by SQL92 (enablePropertyFilter is false)"
    for expression in ("n = 1", "n >"):
        reply = await peer.pull("T", **sql(expression))
        assert (reply.code, reply.remark.startswith(expected)) == (1, True)
    check = ClientConfigCheck("c1", "G", SubscriptionData("T", "n = 1", expression_type="SQL92"))
    reply = await peer.ask(46, CLIENT_CONFIG_CHECK.dumps(check))
    assert (reply.code, reply.remark.startswith(expected)) == (1, True)
    await peer.heartbeat("c1", "T", expression="n = 1", kind="SQL92", version=7)
    reply = await peer.pull("T", sys_flag=0, sub_version=7)
    assert (reply.code, reply.remark.startswith(expected)) == (1, True)


@pytest.mark.parametrize(("text", "code"), [("n > 1", 0), ("n >", 23), ("", 23)])
async def test_the_check_before_a_consumer_starts(broker: OpenBench, text: str, code: int) -> None:
    async with broker(**ON) as bench:
        check = ClientConfigCheck("c1", "G", SubscriptionData("T", text, expression_type="SQL92"))
        reply = await bench.peer().ask(46, CLIENT_CONFIG_CHECK.dumps(check))
        assert reply.code == code
        assert code == 0 or "position" in reply.remark


async def test_heartbeats_announce_expressions(broker: OpenBench) -> None:
    async with broker(**ON) as bench:
        await fill(bench, *range(10))
        peer = bench.peer()

        async def pull(version: int) -> Any:
            return await peer.pull("T", sys_flag=0, sub_version=version)

        assert (await pull(1)).code == 24
        await peer.heartbeat("c1", "T", expression="n < 3", kind="SQL92", version=5)
        assert bodies(await pull(5)) == [0, 1, 2]
        assert (await pull(6)).code == 25
        await peer.heartbeat("c1", "T", expression="n > 7", kind="SQL92", version=6)
        assert bodies(await pull(6)) == [8, 9]
        await peer.heartbeat("c1", "T", expression="n > ", kind="SQL92", version=7)
        reply = await pull(7)
        assert reply.code == 27
        assert "the expression ends at position 4" in reply.remark
        await peer.heartbeat("c1", "T", expression="*", version=8)
        assert len(bodies(await pull(8))) == 10
        await peer.heartbeat("c1", "T", expression="n = 1", kind="SQL92", version=9)
        entry = bench.tables.filters.find("T", "G")
        entry.version = 8
        assert (await pull(9)).code == 28


async def test_a_group_that_leaves_is_remembered_as_gone(broker: OpenBench) -> None:
    async with broker(**ON) as bench:
        await fill(bench, 1)
        one, two = bench.peer(), bench.peer()
        for peer, name in ((one, "c1"), (two, "c2")):
            await peer.heartbeat(name, "T", expression="n = 1", kind="SQL92")
        await one.ask(35, client_id="c1", consumer_group="G")
        entry = bench.tables.filters.find("T", "G")
        assert not entry.dead
        two.transport.close()
        two.connection.connection_lost(None)
        assert entry.dead


async def test_a_wait_ends_with_the_first_message_that_is_wanted(broker: OpenBench) -> None:
    async with broker(**ON) as bench:
        await fill(bench, 1)
        peer = bench.peer()
        asked = peer.post_pull("T", 1, sys_flag=6, **sql("n = 3"))
        await fill(bench, 2)
        assert peer.peek(asked) is None
        await fill(bench, 3)
        assert bodies(await peer.reply(asked)) == [3]


@pytest.mark.parametrize("kind", ["SQL92", "TAG"])
async def test_a_pull_held_while_its_subscription_changes_loses_nothing(broker: OpenBench, kind: str) -> None:
    old, new = ("n = 1", "n = 3") if kind == "SQL92" else ("1", "3")

    async with broker(**ON) as bench:
        await fill(bench, 0)
        peer = bench.peer()
        await peer.heartbeat("c1", "T", expression=old, kind=kind, version=1)
        asked = peer.post_pull("T", 1, sys_flag=2, sub_version=1)
        await fill(bench, 3, TAGS="3")
        assert peer.peek(asked) is None
        await peer.heartbeat("c1", "T", expression=new, kind=kind, version=2)
        await fill(bench, 4, TAGS="4")
        assert bodies(await peer.reply(asked)) == [3]
        asked = peer.post_pull("T", 3, sys_flag=2, sub_version=2)
        await fill(bench, 5, TAGS="5")
        assert peer.peek(asked) is None
        await peer.heartbeat("c1", "T", expression="n = 5" if kind == "SQL92" else "5", kind=kind, version=3)
        assert bodies(await peer.reply(asked)) == [5]  # no new message, and the wait time was over


async def test_retried_messages_are_judged_as_their_topic_when_configured(broker: OpenBench) -> None:
    async with broker(**ON) as bench:
        peer = bench.peer()
        bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
        await peer.heartbeat("c1", "T", expression="n > 2", kind="SQL92")
        retry = "%RETRY%G"
        await fill(bench, 1, 3, topic=retry, RETRY_TOPIC="T")
        await fill(bench, 0, topic=retry, RETRY_TOPIC="other")
        assert bodies(await peer.pull(retry, **sql("n = 1"))) == [1]
        bench.settings.filter_support_retry = True
        assert bodies(await peer.pull(retry, **sql("n = 1"))) == [3, 0]
        assert bodies(await peer.pull(retry)) == [1, 3, 0]


EXTENDED = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1 << 16}


async def test_bits_in_queue_units_spare_the_look_at_records(
    broker: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker(store=EXTENDED, enable_calc_filter_bit_map=True, **ON) as bench:
        await fill(bench, 0, 5)
        peer = bench.peer()
        await peer.heartbeat("c1", "T", expression="n > 3", kind="SQL92", version=1)
        bench.clock.advance(1)
        await fill(bench, *range(10))
        entry = bench.tables.filters.find("T", "G")
        queue = StoreProbe(bench.store).queue("T", 0)
        assert isinstance(queue, ExtendedQueue)
        bitmaps = [queue.extension.get(queue.unit(offset)[2]).bitmap for offset in range(12)]
        want = bench.tables.filters.bloom.bitmap([entry.bloom])
        # Messages stored before the first subscription have no bits.
        assert bitmaps == [b"", b"", *[want if number > 3 else bytes(14) for number in range(10)]]
        looked_at = []
        accepted = type(entry.compiled).matches
        monkeypatch.setattr(
            type(entry.compiled), "matches", lambda self, get: (looked_at.append(get("n")), accepted(self, get))[1]
        )
        assert bodies(await peer.pull("T", sys_flag=0, sub_version=1)) == [5, 4, 5, 6, 7, 8, 9]
        assert looked_at == ["0", "5", "4", "5", "6", "7", "8", "9"]
        looked_at.clear()
        assert bodies(await peer.pull("T", **sql("n > 8"))) == [9]
        assert len(looked_at) == 12
        assert bench.store_settings.bit_map_length_consume_queue_ext == 112


async def test_without_the_switch_no_bits_are_stored(broker: OpenBench) -> None:
    async with broker(store=EXTENDED, **ON) as bench:
        peer = bench.peer()
        bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
        await peer.heartbeat("c1", "T", expression="n > 3", kind="SQL92", version=1)
        bench.clock.advance(1)
        await fill(bench, *range(6))
        queue = StoreProbe(bench.store).queue("T", 0)
        assert queue.extension.get(queue.unit(0)[2]).bitmap == b""
        assert bodies(await peer.pull("T", sys_flag=0, sub_version=1)) == [4, 5]
