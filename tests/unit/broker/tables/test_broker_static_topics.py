"""Static topics are not served: replies are those of a broker whose topics have no mapping (wire.md §1.14, §9.4)."""

from __future__ import annotations

from typing import Any

import pytest
from broker_bench import Bench

from tianzhou.model import TopicConfig
from tianzhou.wire.fields import read_reply
from tianzhou.wire.json_dialect import loads

QUEUE = {"topic": "T", "queue_id": 0}
ASKED: dict[int, dict[str, Any]] = {
    14: QUEUE | {"consumer_group": "G"},
    15: QUEUE | {"consumer_group": "G", "commit_offset": 1},
    29: QUEUE | {"timestamp": 1},
    30: QUEUE,
    31: QUEUE,
    32: QUEUE,
    202: {"topic": "T"},
    208: {"consumer_group": "G", "topic": "T"},
    351: {"topic": "T"},
}
"""Requests that a broker with a mapping would answer for a logical queue."""
FORMS: list[dict[str, Any]] = [
    {"lo": True}, {"lo": False}, {"bname": "__syslo__global__"}, {"bname": "broker-z", "lo": True},
]  # fmt: skip


async def prepared(bench: Bench) -> Any:
    bench.tables.topics.put(TopicConfig("T", 2, 2), 1)
    peer = bench.peer()
    assert (await peer.send("T")).code == 0
    await peer.heartbeat("c1", "T")
    assert (await peer.ask(15, **ASKED[15])).code == 0
    return peer


@pytest.mark.parametrize("code", sorted(ASKED))
async def test_the_words_of_clients_about_logical_queues_change_no_answer(bench: Bench, code: int) -> None:
    peer = await prepared(bench)
    plain = await peer.ask(code, **ASKED[code])
    assert plain.code == 0, plain.remark
    for form in FORMS:
        reply = await peer.ask(code, **ASKED[code] | form)
        assert (reply.code, reply.remark, reply.fields, bytes(reply.body)) == (
            plain.code, plain.remark, plain.fields, bytes(plain.body),
        ), form  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=str)
async def test_messages_are_stored_and_pulled_whatever_broker_they_are_meant_for(
    bench: Bench, form: dict[str, Any]
) -> None:
    peer = await prepared(bench)
    sent = await peer.send("T", b"one", queue_id=1, **form)
    told = read_reply(310, sent)
    assert (sent.code, told.queue_id, told.queue_offset) == (0, 1, 0)
    got = await peer.pull("T", 0, queue_id=1, **form)
    found = read_reply(11, got)
    assert (got.code, found.next_begin_offset, found.max_offset) == (0, 1, 1)
    assert "offsetDelta" not in got.fields
    assert not read_reply(11, got).offset_delta


async def test_mappings_are_not_taken_and_none_is_shown(bench: Bench) -> None:
    peer = await prepared(bench)
    mapping = b'{"bname":"broker-a","currIdMap":{0:0},"epoch":1,"hostedQueues":{},"topic":"S","totalQueues":1}'
    made = await peer.ask(
        513, mapping, topic="S", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    assert (made.code, made.remark) == (3, " request type 513 not supported")
    assert "S" not in bench.tables.topics
    shown = loads((await peer.ask(351, topic="T", lo=True)).body)
    assert shown.get("mappingDetail") is None
    tables = loads((await peer.ask(21)).body)
    assert not tables.get("topicQueueMappingDetailMap")
