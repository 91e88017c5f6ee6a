"""Name rules: names of clients, tools and brokers pass, harmful ones do not, and every text field has a rule."""

from __future__ import annotations

import pytest

from tianzhou.broker.tables.groups import BUILT_IN
from tianzhou.errors import IllegalName
from tianzhou.model import name_rules as rules
from tianzhou.wire.command import Command
from tianzhou.wire.fields import HOT_CODES, REQUESTS, request_fields
from tianzhou.wire.named_fields import BY_FIELD, behind_names, name_fields

NEVER = ("\0", "a\nb", "\x1b[2J", "a\x7f", "\ud800", "‮txt", "x" * 1_048_577)


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (
            rules.TOPIC,
            (
                "T", "%RETRY%G", "%DLQ%G", "MQ_INST_123%orders", "%RETRY%" + "g" * 255, "%LMQ%home%room+",
                "DefaultCluster_REPLY_TOPIC", "host.example.com", "rmq_sys_SYNC_BROKER_MEMBER_broker-a.example",
                "%RETRY%G_orders", "%RETRY%G+orders", "生产",
            ),
        ),
        (rules.GROUP, (*BUILT_IN, "CID_RMQ_SYS_TOOLS", "ns%g", "g" * 255, "%LMQ%client-1")),
        (rules.CLIENT_ID, ("10.0.0.1@1234#56789@unit", "192.168.1.2@DEFAULT@STREAM", "[fe80::1%eth0]@x", "a/b c")),
        (rules.CLUSTER, ("DefaultCluster", "eu.west-1", "生产 1")),
        (rules.BROKER, ("broker-a", "broker-0.brokers.ns.svc.cluster.local")),
        (rules.ADDRESS, ("127.0.0.1:10911", "[::1]:10911", "broker.example.com:10911")),
        (rules.NAMESPACE, ("ORDER_TOPIC_CONFIG", "TIANZHOU_STAGING")),
        (rules.KV_KEY, ("orders", "%RETRY%" + "g" * 255, "10.0.0.1 ")),
    ],
    ids=lambda value: getattr(value, "noun", ""),
)  # fmt: skip
def test_names_that_are_used_pass(rule: rules.NameRule, names: tuple[str, ...]) -> None:
    for name in names:
        assert rule.problem(name) is None


@pytest.mark.parametrize("rule", dict.fromkeys(filter(None, BY_FIELD.values())), ids=lambda rule: rule.noun)
def test_no_kind_of_name_breaks_a_line_hides_or_is_endless(rule: rules.NameRule) -> None:
    for name in NEVER:
        problem = rule.problem(name)
        assert problem is not None
        assert rule.noun in problem
        assert problem.isprintable()
        assert len(problem) < 400


@pytest.mark.parametrize("rule", [rules.TOPIC, rules.GROUP, rules.BROKER, rules.CLUSTER], ids=lambda rule: rule.noun)
def test_what_may_become_a_folder_or_a_topic_leads_nowhere(rule: rules.NameRule) -> None:
    for name in ("..", ".", "/", "/etc", "../x", "a/b", "a\\b"):
        assert rule.problem(name) is not None


def test_a_refusal_names_the_thing_the_value_and_the_place() -> None:
    assert rules.TOPIC.problem("a\nb") == (
        "the topic 'a\\nb' has '\\n' at position 1; use characters that can be seen, without / and \\"
    )
    assert rules.GROUP.problem("g" * 256) == f"the group {'g' * 64}… has 256 characters, at most 255 are allowed"
    assert (rules.TOPIC.problem("..") or "").startswith("the topic '..' has '..' at position 0;")


def test_light_queues_have_the_names_of_their_publishers_but_no_paths() -> None:
    for name in ("%LMQ%home%room+", "%LMQ%$share", "%LMQ%温度", "%LMQ%a b", "%LMQ%.."):
        assert rules.light_queue_problem(name) is None
    for name in ("%LMQ%a/b", "%LMQ%../../x", "%LMQ%\0", "%LMQ%" + "é" * 126, "%LMQ%a\nb"):
        assert rules.light_queue_problem(name) is not None


def test_every_text_field_of_every_request_is_a_name_of_a_kind_or_free() -> None:
    fields = {field.name for code in REQUESTS for field in request_fields(code) if field.kind == "s"}
    assert fields <= BY_FIELD.keys(), "say in wire/named_fields.py what kind of name these are"
    assert BY_FIELD.keys() - fields == {"Owner"}
    for code in REQUESTS:
        name_fields(code)


def test_only_what_is_there_is_judged() -> None:
    def check(code: int, fields: dict[str, str]) -> None:
        behind_names(code, lambda _connection, request: request.reply(0))(None, Command(code, fields=fields))

    check(104, {})
    check(104, {"brokerName": ""})
    check(12, {"topic": "T", "key": "a\nb"})
    with pytest.raises(IllegalName, match="the key"):
        check(100, {"namespace": "N", "key": "a\nb", "value": "anything\n"})


def test_sends_and_pulls_are_not_made_slower() -> None:
    def handle(_connection: object, _request: Command) -> None:
        return None

    assert {10, 11, 310, 320, 361} <= HOT_CODES
    for code in HOT_CODES:
        assert behind_names(code, handle) is handle


@pytest.mark.over_limit("maxTopicNameLength")
@pytest.mark.over_limit("maxGroupNameLength")
def test_names_that_are_created_have_as_many_characters_as_the_limits_say() -> None:
    assert rules.topic_name_problem("t" * 127) is None
    assert rules.topic_name_problem("t" * 128) == "The specified topic is longer than topic max length."
    assert rules.group_name_problem("g" * 255) is None
    assert rules.group_name_problem("g" * 256) == "The specified group is longer than group max length 255."
