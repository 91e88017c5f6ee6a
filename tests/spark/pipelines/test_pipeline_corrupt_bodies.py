"""`--corrupt-bodies` of the pipelines: a body that its flag calls compressed, and that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odd_sends import send_born
from tianzhou.wire.compression import COMPRESSED

BORN_MS = 1_700_000_000_000
GOOD = b'{"status": "ok"}'


@pytest.fixture
def corrupt(server: Any, topic: str) -> str:
    """Create a topic whose second message of three has a body that cannot be decompressed."""
    for number, flag in enumerate((0, COMPRESSED, 0)):
        server.run(send_born(server.address, topic, BORN_MS + number, GOOD, properties="TAGS\x01A", sys_flag=flag))
    return topic


def test_an_archive_fails_or_has_null_or_a_row_less(
    spark: Any, corrupt: str, pipeline: Any, cli: Any, tmp_path: Path
) -> None:
    code, _, err = cli("pipeline", "archive", corrupt, "--to", str(tmp_path / "fail"))
    assert code == 1
    assert f"{corrupt}@broker-a:0, offset 1: " in err
    for rule, left in (("null", [0, 1, 2]), ("skip", [0, 2])):
        args = ["archive", corrupt, "--to", str(tmp_path / rule), "--corrupt-bodies", rule]
        assert pipeline(*args)["rows"] == len(left)
        rows = spark.read.parquet(str(tmp_path / rule)).orderBy("queueOffset").collect()
        assert [(row["queueOffset"], row["body"]) for row in rows] == [(n, None if n == 1 else GOOD) for n in left]


def test_a_replay_fails_or_leaves_the_message_out(
    server: Any, corrupt: str, pipeline: Any, cli: Any, tmp_path: Path
) -> None:
    to, other = server.create(f"{corrupt}-again"), server.create(f"{corrupt}-other")
    args = ["replay", corrupt]
    code, _, err = cli("pipeline", *args, "--to", other, "--checkpoint", str(tmp_path / "fail"))
    assert code == 1
    assert "offset 1" in err
    args += ["--to", to, "--corrupt-bodies", "skip", "--checkpoint", str(tmp_path / "skip")]
    assert pipeline(*args)["sent"] == 2
    assert [message.body for message in server.messages(to)] == [GOOD, GOOD]


def test_pipelines_with_a_state_go_on(server: Any, corrupt: str, pipeline: Any, cli: Any, tmp_path: Path) -> None:
    to = server.create(f"{corrupt}-once")
    args = ["deduplicate", corrupt, "--to", to, "--corrupt-bodies", "skip", "--checkpoint", str(tmp_path / "once")]
    assert pipeline(*args)["sent"] == 2
    args = ["rates", corrupt, "--to", to, "--corrupt-bodies", "null", "--checkpoint", str(tmp_path / "rates")]
    assert pipeline(*args)["read"] == 3
    code, _, err = cli("pipeline", "deduplicate", corrupt, "--to", to, "--corrupt-bodies", "null", "--checkpoint", "c")
    assert code == 2
    assert "--corrupt-bodies null: expected fail or skip; a message without a body cannot be sent" in err


def test_traces_and_dead_letters_are_counted_without_it(
    server: Any, topic: str, pipeline: Any, cli: Any, corrupt: str
) -> None:
    letters = server.create("%DLQ%corrupt")
    for name in (letters, topic):
        server.run(send_born(server.address, name, BORN_MS, GOOD, properties="RETRY_TOPIC\x01orders"))
        server.run(
            send_born(server.address, name, BORN_MS, GOOD, properties="RETRY_TOPIC\x01orders", sys_flag=COMPRESSED)
        )
    code, _, err = cli("pipeline", "dlq", "corrupt", "--samples", "5")
    assert (code, "offset 1" in err) == (1, True), err
    for rule, count in (("null", 2), ("skip", 1)):
        found = pipeline("dlq", "corrupt", "--samples", "5", "--corrupt-bodies", rule)
        assert sum(cause["letters"] for cause in found["causes"]) == count
        assert len(found["samples"]) == count
    nothing = {"sends": [], "deliveries": []}
    assert pipeline("trace", "--topic", corrupt, "--corrupt-bodies", "skip") == nothing
    chosen = pipeline("dlq", "corrupt", "--all", "--to-topic", topic, "--apply", "--corrupt-bodies", "skip")
    assert len(chosen["letters"]) == 1
