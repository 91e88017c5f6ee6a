"""Access checks use the same fields as the handlers: extra fields of a request cannot redirect a check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from property_examples import costly
from tianzhou.access import body_names
from tianzhou.access import needs as table
from tianzhou.access.body_names import BY_BODY, parts
from tianzhou.access.needs import NAMELESS, OF_ALL_TOPICS, READS, ROWS, fields_of, needs, plain_needs
from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import Permission, ResourceType
from tianzhou.model import ConsumerData, HeartbeatData, SubscriptionData
from tianzhou.model.names import RETRY_PREFIX
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.command import Command
from tianzhou.wire.fields import HotFields, read_header, request_fields
from tianzhou.wire.staging import StagedMessage, encode_unit

NAMES = st.text("abcxyz%RETRY_-", min_size=1, max_size=12) | st.sampled_from(
    ["t", "g", "%RETRY%g", "%RETRY%%RETRY%g", "%DLQ%g", "x_REPLY_TOPIC", " t", "ns%t"]
)
NAMING = [code for code in ROWS if fields_of(code) and request_fields(code) and code not in BY_BODY]
MORE = "INNER_MULTI_DISPATCH\x01{}\x02"


def filled(code: int, draw: st.DrawFn) -> dict[str, str]:
    fields = {}
    for field in request_fields(code):
        if field.kind == "s":
            fields[field.wire] = draw(NAMES)
        elif field.required:
            fields[field.wire] = draw(st.sampled_from({"b": ["true", "false", "TRUE"]}.get(field.kind, ["0"])))
    return fields


@pytest.mark.parametrize("code", NAMING)
@costly(0.1)  # each of some seventy codes
@given(data=st.data())
def test_names_are_those_of_the_header_the_handler_reads(code: int, data: st.DataObject) -> None:
    fields = filled(code, data.draw)
    others = [
        name for name in ("topic", "b", "group", "a", "consumerGroup", "Topic", "groupName") if name not in fields
    ]
    fields |= data.draw(st.dictionaries(st.sampled_from(others), NAMES)) if others else {}
    header = read_header(Command(code, fields=fields))
    wire = {field.wire: field.attribute for field in request_fields(code)}
    used = {getattr(header, wire[name]) for name in fields_of(code)}
    used |= {part for text in used for part in (*text.split(";"), *text.split(","))}
    used |= {text.removeprefix(RETRY_PREFIX) for text in used} | {RETRY_PREFIX + text for text in used}
    found = {need.resource.name for need in needs(AccessRequest(code, fields), "the cluster")}
    assert found - {"the cluster"} <= used
    assert set(plain_needs(AccessRequest(code, fields), "the cluster").permissions) <= used


@pytest.mark.parametrize("code", [10, 310, 320, 324, 11, 15, 14])
@costly(0.2)  # each of seven codes
@given(data=st.data())
def test_what_is_remembered_is_what_the_row_says(code: int, data: st.DataObject) -> None:
    fields = filled(code, data.draw)
    for name in data.draw(st.sets(st.sampled_from(sorted(fields)))):
        fields[name] = data.draw(st.just("") | NAMES | st.just(MORE.format("u,%RETRY%v")))
    request, cluster = AccessRequest(code, fields), data.draw(st.sampled_from(["C", "D", "x"]))
    found, plain = needs(request, cluster), plain_needs(request, cluster)
    table._plain_row.cache_clear()
    table._policy_row.cache_clear()
    assert needs(request, cluster) == found
    assert plain_needs(request, cluster) == plain


@pytest.mark.parametrize("code", sorted(ROWS))
def test_who_names_nothing_is_not_let_in_for_that(code: int) -> None:
    row, request = ROWS[code], AccessRequest(code, {})
    if row.plain != "account" and code not in NAMELESS:
        assert plain_needs(request, "C").admin
    if row.policy != "account" and code not in NAMELESS:
        assert {need.resource.type for need in needs(request, "C")} == {ResourceType.CLUSTER}


@pytest.mark.parametrize(
    ("code", "topic", "properties"),
    [(10, "topic", "properties"), (324, "topic", "properties"), (310, "b", "i"), (320, "b", "i"), (325, "b", "i")],
)
def test_a_message_needs_all_topics_it_is_put_into(code: int, topic: str, properties: str) -> None:
    further = "TAGS\x01a\x02" + MORE.format("x,%LMQ%y,,t,%RETRY%v")
    request = AccessRequest(code, {topic: "t", properties: further})
    assert {str(need.resource) for need in needs(request, "C")} == {"Topic:t", "Topic:x", "Topic:%LMQ%y", "Group:v"}
    assert plain_needs(request, "C").permissions == {
        "t": Permission.PUB, "x": Permission.PUB, "%LMQ%y": Permission.PUB, "%RETRY%v": Permission.SUB,
    }  # fmt: skip


@pytest.mark.parametrize("wrap", [bytes, memoryview])
def test_a_batch_needs_the_topics_of_each_of_its_messages(wrap: type) -> None:
    batch = encode_batch([(0, b"1", b"TAGS\x01a\x02"), (0, b"2", MORE.format("x").encode()), (0, b"3", b"")])
    for flag, topics in (("true", {"Topic:t", "Topic:x"}), ("TRUE", {"Topic:t", "Topic:x"}), ("false", {"Topic:t"})):
        request = AccessRequest(320, {"b": "t", "m": flag, "i": ""}, wrap(batch))
        assert {str(need.resource) for need in needs(request, "C")} == topics
        assert {f"Topic:{name}" for name in plain_needs(request, "C").permissions} == topics
    broken = AccessRequest(320, {"b": "t", "m": "true"}, batch[:-1] + b"INNER_MULTI_DISPATCH")
    assert [str(need.resource) for need in needs(broken, "C")] == ["Topic:t"]


def test_a_hot_request_needs_the_same_as_its_fields() -> None:
    fields = {field.wire: "t" if field.kind == "s" else "0" for field in request_fields(310) if field.required}
    header = read_header(Command(310, fields=fields))
    assert needs(AccessRequest(310, HotFields(310, header)), "C") == needs(AccessRequest(310, fields), "C")


def test_replies_go_to_the_reply_topic_of_the_servers_own_cluster_freely() -> None:
    assert needs(AccessRequest(325, {"b": "C_REPLY_TOPIC"}), "C") == ()
    assert plain_needs(AccessRequest(325, {"b": "C_REPLY_TOPIC"}), "C").permissions == {}
    assert set(plain_needs(AccessRequest(324, {"topic": "DC_REPLY_TOPIC"}), "C").permissions) == {"DC_REPLY_TOPIC"}
    assert [str(need.resource) for need in needs(AccessRequest(325, {"b": "DC_REPLY_TOPIC"}), "C")] == [
        "Topic:DC_REPLY_TOPIC"
    ]


def test_staged_messages_need_their_topics_and_the_writer() -> None:
    unit = encode_unit([StagedMessage(topic, 0, 0, 0, b"", b"x") for topic in ("t", "u", "t")])
    request = AccessRequest(31002, {"writer": "w"}, unit)
    assert {str(need.resource) for need in needs(request, "C")} == {"Topic:t", "Topic:u", "Group:w"}
    assert plain_needs(request, "C").permissions == {
        "t": Permission.PUB, "u": Permission.PUB, "%RETRY%w": Permission.SUB,
    }  # fmt: skip


@pytest.mark.parametrize("code", [31003, 31004, 31005, 31006])
def test_a_batch_is_decided_by_who_has_its_writer(code: int) -> None:
    request = AccessRequest(code, {}, b'{"writer":"w","batch":1,"coordinator":"b","attempts":[]}')
    assert [(str(need.resource), need.actions) for need in needs(request, "C")] == [("Group:w", ("Sub",))]
    assert plain_needs(request, "C").permissions == {"%RETRY%w": Permission.SUB}


def test_messages_by_place_need_more_than_the_topic_that_is_claimed() -> None:
    for code in (309, 323):
        request = AccessRequest(code, {"topic": "mine", "consumerGroup": "mine"})
        assert ResourceType.CLUSTER in {need.resource.type for need in needs(request, "C")}
        assert plain_needs(request, "C").admin


@pytest.mark.parametrize("topic", [*sorted(OF_ALL_TOPICS), "C_REPLY_TOPIC"])
@pytest.mark.parametrize("code", sorted(READS))
def test_topics_with_messages_of_all_others_are_read_by_administrators(code: int, topic: str) -> None:
    request = AccessRequest(code, {"topic": topic, "consumerGroup": "g"})
    assert plain_needs(request, "C").admin
    assert ("Cluster:C", ("All",)) in [(str(need.resource), need.actions) for need in needs(request, "C")]


@given(
    topics=st.lists(st.just("") | NAMES, max_size=30),
    groups=st.lists(st.just("") | NAMES, max_size=12),
    at_once=st.integers(1, 5),
)
def test_the_parts_of_a_heartbeat_need_together_what_it_needs(
    topics: list[str], groups: list[str], at_once: int
) -> None:
    consumers = [ConsumerData(group, subscription_data_set=list(map(SubscriptionData, topics))) for group in groups]
    data = HeartbeatData("c", [], consumers)
    request = AccessRequest(34, {}, HEARTBEAT.dumps(data), decoded=data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_names, "NAMES_PER_PART", at_once)
        found = list(parts(request))
    assert {need for part in found for need in needs(part, "C")} == set(needs(request, "C"))
    permissions = [plain_needs(part, "C") for part in found]
    assert {name: one for part in permissions for name, one in part.permissions.items()} == (
        plain_needs(request, "C").permissions
    )
    assert all(len(plain_needs(part, "C").permissions) <= at_once for part in found)


@pytest.mark.parametrize("code", sorted(BY_BODY - NAMELESS - {31002}))
def test_a_body_that_names_nothing_needs_as_much_in_parts(code: int) -> None:
    nothing: Any = [] if code in (18, 225) else SimpleNamespace(queues=[], consumer_group="", writer="", group_name="")
    request = AccessRequest(code, {}, b"{}", decoded=nothing)
    assert [needs(part, "C") for part in parts(request)] == [needs(request, "C")]
    assert [plain_needs(part, "C") for part in parts(request)] == [plain_needs(request, "C")]
