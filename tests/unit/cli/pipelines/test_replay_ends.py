"""The checkpoint of a replay: one process at a time, one format, and the end of a replay into its own topic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tianzhou.cli.pipelines.replaying import QueueSpan, ReplayWanted, held_replay, passed
from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import to_json

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


def spans(*ends: int) -> list[QueueSpan]:
    return [QueueSpan(queue, 0, end) for queue, end in zip(QUEUES, ends, strict=True)]


@pytest.fixture
def own(tmp_path: Path) -> ReplayWanted:
    """Return a replay into its own topic."""
    return ReplayWanted("orders", "orders", str(tmp_path / "c"), None, None, None, None, None, "fail")


def test_a_replay_into_its_own_topic_ends_where_its_first_run_did(own: ReplayWanted) -> None:
    for now in ((5, 7), (9, 11)):
        with held_replay(own, spans(*now)) as ends:
            assert ends == {("broker-a", 0): 5, ("broker-a", 1): 7}
    with held_replay(replace(own, checkpoint=f"{own.checkpoint}-2"), spans(9, 11)) as ends:
        assert ends == {("broker-a", 0): 9, ("broker-a", 1): 11}


def test_a_replay_into_another_topic_has_no_end(own: ReplayWanted) -> None:
    with held_replay(replace(own, target="again"), spans(5, 7)) as ends:
        assert ends is None


def test_a_uri_is_left_to_spark(own: ReplayWanted) -> None:
    with held_replay(replace(own, checkpoint="hdfs://name/c"), spans(5, 7)) as ends:
        assert ends == {("broker-a", 0): 5, ("broker-a", 1): 7}


def test_one_process_has_a_checkpoint(own: ReplayWanted) -> None:
    refused = pytest.raises(ConfigError, match="another replay runs with it; wait, or give one of its own")
    with held_replay(own, spans(5, 7)), refused, held_replay(own, spans(5, 7)):
        pass


def test_a_checkpoint_of_the_way_without_spark_is_refused(own: ReplayWanted) -> None:
    Path(own.checkpoint).mkdir()
    (Path(own.checkpoint) / "replay.json").write_text("{}")
    refused = pytest.raises(ConfigError, match=r"is that of a replay without Spark .*finish it with that version")
    with refused, held_replay(own, spans(5, 7)):
        pass


def test_how_many_messages_are_behind_an_offset() -> None:
    assert passed(spans(5, 7), None) == 0
    assert passed(spans(5, 7), "null") == 0
    offset = json.dumps(to_json({}, {QUEUES[0]: 3, QUEUES[1]: 20}))
    assert passed(spans(5, 7), offset) == 10
