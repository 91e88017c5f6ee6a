"""`tianzhou pipeline deduplicate`: the first of equal messages, also across runs."""

from __future__ import annotations

from collections import Counter

import pytest


@pytest.fixture
def target(server, topic) -> str:
    return server.create(f"{topic}-once")


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_first_of_equal_messages_goes_through(server, topic, target, pipeline, tmp_path, delivery):
    args = ["deduplicate", topic, "--to", target, "--by", "keys", "--checkpoint", str(tmp_path / "c")]
    args += ["--delivery", delivery]
    server.send(topic, range(12), keys=lambda n: f"k{n % 4}", tags="A", properties=lambda _: {"p": "1"})
    server.send(topic, ["no key"] * 3)
    assert pipeline(*args) == {"read": 15, "left_out": 8, "late": 0, "sent": 7, "to": target}
    found = server.messages(target)
    # Messages without a key are not equal to each other.
    assert Counter(m.keys for m in found) == Counter({"": 3, "k0": 1, "k1": 1, "k2": 1, "k3": 1})
    assert {m.properties["p"] for m in found if m.keys} == {"1"}
    # The next run still knows the keys of this one.
    server.send(topic, ["again", "new"], keys=lambda n: ["k1", "k9"][n])
    assert pipeline(*args)["sent"] == 1
    assert Counter(m.keys for m in server.messages(target))["k9"] == 1


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_other_topic_is_made(server, topic, pipeline, tmp_path, delivery):
    server.send(topic, range(3))
    target = f"{topic}-made"
    args = ["deduplicate", topic, "--to", target, "--by", "body", "--checkpoint", str(tmp_path / "c")]
    assert pipeline(*args, "--delivery", delivery)["sent"] == 3
    assert len(server.maxima(target)) == 4
    assert len(server.messages(target)) == 3


@pytest.mark.parametrize(
    ("by", "left"), [("json:$.order", ["1", "2"]), ("property:p", ["1"]), ("body", ["1", "1b", "2"])]
)
def test_what_makes_messages_equal(server, topic, target, pipeline, tmp_path, by, left):
    bodies = ['{"order": 1, "n": "1"}', '{"order": 1, "n": "1b"}', '{"order": 1, "n": "1"}', '{"order": 2, "n": "2"}']
    for body in bodies:  # one after the other, so that the first is known
        server.send(topic, [body], properties=lambda _: {"p": "x"}, queue=0)
    pipeline("deduplicate", topic, "--to", target, "--by", by, "--checkpoint", str(tmp_path / "c"))
    assert sorted(m.body.decode().split('"')[5] for m in server.messages(target)) == left


@pytest.mark.parametrize(
    ("args", "text", "code"),
    [
        (["--by", "colour"], "--by colour: expected id, keys, body, property:NAME or json:PATH", 2),
        (["--by", "json:order"], "with a path like $.order.id", 2),
        (["--within", "a while"], "a while", 1),
    ],
)
def test_mistakes_are_explained(topic, target, cli, tmp_path, args, text, code):
    found, _, err = cli("pipeline", "deduplicate", topic, "--to", target, "--checkpoint", str(tmp_path / "c"), *args)
    assert (found, text in err) == (code, True), err


def test_a_topic_is_not_copied_into_itself(topic, cli, tmp_path):
    code, _, err = cli("pipeline", "deduplicate", topic, "--to", topic, "--checkpoint", str(tmp_path / "c"))
    assert (code, "is the topic that is read" in err) == (2, True), err
