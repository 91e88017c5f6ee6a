"""`tianzhou pipeline dlq`: real dead letters, counted, shown and sent again by choice."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tianzhou.client import PushConsumer
from tianzhou.model import ConsumeFromWhere, ConsumeResult

_numbers = itertools.count()


def give_up(server, group: str, topic: str, count: int) -> None:
    """Have a group refuse every message of a topic until `count` are dead letters."""

    async def work() -> None:
        consumer = PushConsumer(
            group, server.address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, max_reconsume_times=0
        )
        seen = 0
        enough = asyncio.Event()

        @consumer.on(topic)
        async def refuse(_message):
            nonlocal seen
            seen += 1
            if seen >= count:
                enough.set()
            return ConsumeResult.RECONSUME_LATER

        async with consumer:
            await asyncio.wait_for(enough.wait(), 30)
            for _ in range(100):
                names = await server.admin.topics.names()
                if f"%DLQ%{group}" in names:
                    found = await server.admin.topics.describe(f"%DLQ%{group}")
                    if found.message_count >= count:
                        return
                await asyncio.sleep(0.1)
        raise AssertionError(f"only {seen} were refused")

    server.run(work())


@pytest.fixture
def group(server, topic) -> str:
    """A group with nine dead letters: six time-outs, two without a reason, one of another kind."""
    name = f"group-{next(_numbers)}"
    server.send(topic, range(6), tags="paid", keys=lambda n: f"k{n}", properties=lambda n: {"reason": "Timeout"})
    server.send(topic, range(6, 8), tags="paid", keys=lambda n: f"k{6 + n}")
    server.send(topic, ["bad"], properties={"exception": "ValueError"})
    give_up(server, name, topic, 9)
    return name


def test_dead_letters_are_counted_shown_and_sent_again(server, topic, group, pipeline):
    found = pipeline("dlq", group, "--samples", "2")
    assert [(c["topic"], c["tag"], c["reason"], c["letters"]) for c in found["causes"]] == [
        (topic, "paid", "Timeout", 6),
        (topic, "paid", None, 2),
        (topic, None, "ValueError", 1),
    ]
    assert [s["reason"] for s in found["samples"]] == ["Timeout", "Timeout", None, None, "ValueError"]

    where = ["--where", "reason = 'Timeout' AND keys IN ('k0', 'k1', 'k2')"]
    planned = pipeline("dlq", group, *where)
    assert (planned["applied"], sorted(p["keys"] for p in planned["letters"])) == (False, ["k0", "k1", "k2"])
    assert len(server.messages(topic)) == 9

    done = pipeline("dlq", group, *where, "--apply")
    assert done["applied"]
    assert len(server.messages(topic)) == 9
    again = [m for m in server.messages(f"%RETRY%{group}") if m.properties.get("origin_kind") == "dead-letter"]
    assert {m.properties["RETRY_TOPIC"] for m in again} == {topic}
    assert sorted((m.keys, m.tags, m.body) for m in again) == [(f"k{n}", "paid", b"%d" % n) for n in range(3)]
    assert {m.properties["origin_topic"] for m in again} == {f"%DLQ%{group}"}
    assert {m.properties["reason"] for m in again} == {"Timeout"}
    assert {m.properties["origin_id"] for m in again} == {p["id"] for p in planned["letters"]}

    other = server.create(f"{topic}-other")
    letter = next(s for s in found["samples"] if s["reason"] == "ValueError")
    pipeline("dlq", group, "--id", letter["id"], "--to-topic", other, "--apply")
    assert [m.body for m in server.messages(other)] == [b"bad"]


def test_text_output(topic, group, cli):
    code, out, err = cli("pipeline", "dlq", group, "--reason", "exception")
    assert code == 0, err
    assert [line.split()[:2] for line in out.splitlines()] == [["topic", "tag"], [topic, "paid"], [topic, "-"]]
    code, out, err = cli("pipeline", "dlq", group, "--all")
    assert "9 messages would be sent again; --apply does it" in err


def test_the_command_without_spark_counts_the_same(group, cli):
    """`tianzhou dlq causes` computes directly what the pipeline computes for any number of letters."""
    by_client, by_spark = (cli(*name, group, "--samples", "3") for name in (("dlq", "causes"), ("pipeline", "dlq")))
    assert by_client[:2] == by_spark[:2]
    assert by_client[0] == 0


def test_a_condition_of_sql(group, pipeline):
    found = pipeline("dlq", group, "--where", "reason LIKE 'T%' AND keys < 'k3'")
    assert sorted(letter["keys"] for letter in found["letters"]) == ["k0", "k1", "k2"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["nobody"], "group nobody has no dead letters: there is no topic %DLQ%nobody"),
        (["nobody", "--apply"], "nothing is chosen; choose by --id, --where or --all"),
        (["nobody", "--all", "--id", "x"], "--all chooses everything"),
    ],
)
def test_mistakes_are_explained(cli, args, text):
    code, _, err = cli("pipeline", "dlq", *args)
    assert (code, text in err) == (2, True), err


def test_a_letter_that_is_not_there_and_a_condition_that_is_none(group, cli):
    code, _, err = cli("pipeline", "dlq", group, "--id", "0A")
    assert code == 1
    assert "no dead letter has the id 0A" in err
    code, _, err = cli("pipeline", "dlq", group, "--where", "colour = 'red'")
    assert code == 1
    assert "colour" in err
    assert "Traceback" not in err
