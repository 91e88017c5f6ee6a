"""Large tables encoded and decoded in slices equal those encoded and decoded at once."""

from __future__ import annotations

from typing import Any

import pytest

from tianzhou.errors import ProtocolError
from tianzhou.model import DataVersion, TopicConfig
from tianzhou.wire.bodies.register import (
    REGISTER_BODY,
    TOPICS_A_STEP,
    RegisterBody,
    encode_registered_topic,
    join_register_body,
)
from tianzhou.wire.bodies.topics import TopicTable
from tianzhou.wire.json_dialect import dumps_plain, dumps_pretty
from tianzhou.wire.json_pieces import ENTRIES, pretty_entries, pretty_pieces, pretty_table

SIZES = (0, 1, ENTRIES, ENTRIES + 1, 2 * ENTRIES, 5 * ENTRIES + 3)


def topics(count: int) -> dict[str, TopicConfig]:
    made = [
        TopicConfig(f"%RETRY%g-{n}" if n % 7 == 0 else f"T{n}", n % 9, 4, 6, order=n % 2 == 0, topic_sys_flag=n % 3)
        for n in range(count)
    ]
    if made:
        made[-1].attributes = {"queue.type": "BatchCQ", 'quo"ted': "é\n\t{}"}
    return {topic.topic_name: topic for topic in made}


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("further", [0, 1, ENTRIES + 5])
def test_pretty_json_in_pieces_is_the_same(count: int, further: int) -> None:
    value: dict[str, Any] = {
        "dataVersion": {"counter": 3, "timestamp": 5},
        "offsetTable": {f"topic{n}@g": {queue: n * queue for queue in range(n % 5)} for n in range(count)},
        "absent": None,
        "list": [1, 2],
        "lmqOffsetTable": {f"%LMQ%{n}": None if n % 3 == 0 else n for n in range(further)},
    }
    pieces = list(pretty_pieces(value))
    assert b"".join(pieces) == dumps_pretty(value)
    assert len(pieces) >= count // ENTRIES
    del value["lmqOffsetTable"], value["list"], value["absent"]
    head = {"dataVersion": value["dataVersion"]}
    entries = [pretty_entries({key: queues}) for key, queues in value["offsetTable"].items()]
    assert pretty_table(head, "offsetTable", entries) == dumps_pretty(value)


def test_nothing_but_absent_entries_is_an_empty_member() -> None:
    value = {"a": {f"k{n}": None for n in range(3 * ENTRIES)}, "b": {"x": {}}}
    assert b"".join(pretty_pieces(value)) == dumps_pretty(value)
    assert pretty_entries({"k": None}) == b""


@pytest.mark.parametrize("count", [0, 1, 3, TOPICS_A_STEP + 1])
def test_a_registration_of_single_texts_is_the_same(count: int) -> None:
    table = topics(count)
    version = DataVersion(7, 1_700_000_000_000)
    whole = REGISTER_BODY.dumps(RegisterBody(TopicTable(table, version)))
    texts = [encode_registered_topic(topic) for topic in table.values()]
    assert join_register_body(version, texts) == whole
    assert REGISTER_BODY.loads(whole).table.topic_config_table == table


def read(data: bytes) -> tuple[RegisterBody, int]:
    """Return a registration decoded in steps, and the number of steps."""
    steps, count = REGISTER_BODY.load_in_steps(data), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def test_a_large_registration_is_read_in_steps() -> None:
    table = topics(4 * TOPICS_A_STEP)
    mapping = {"T1": {"bname": "b", "topic": "T1"}}
    said = RegisterBody(TopicTable(table, DataVersion(1, 2), topic_queue_mapping_info_map=mapping), ["filter:1"])
    found, steps = read(REGISTER_BODY.dumps(said))
    assert found == said
    assert steps >= 4
    assert read(REGISTER_BODY.dumps(RegisterBody()))[1] == 0


def test_a_wrong_topic_among_many_is_named() -> None:
    entries: dict[str, Any] = {f"T{n}": {"topicName": f"T{n}"} for n in range(2 * TOPICS_A_STEP)}
    entries["T300"]["perm"] = "all"
    with pytest.raises(ProtocolError, match=r"register body.*T300.*perm"):
        read(dumps_plain({"topicConfigSerializeWrapper": {"topicConfigTable": entries}}))
