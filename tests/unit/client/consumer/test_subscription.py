"""Subscriptions: expressions, exact tags, and the start position of a group."""

import pytest

from tianzhou.client.consumer.subscription import Begin, build_subscription, first_offset, original_topic, tag_wanted
from tianzhou.errors import ClientError
from tianzhou.model import ConsumeFromWhere

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
AT = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


@pytest.mark.parametrize("expression", ["TagA || TagB", "TagA||TagB", " TagA ||TagB|| "])
def test_tags_are_split_with_and_without_spaces(expression):
    made = build_subscription("T", expression, version_ms=5)
    assert (made.tags_set, made.code_set) == ({"TagA", "TagB"}, {2598919, 2598920})
    assert (made.sub_string, made.expression_type, made.sub_version) == (expression, "TAG", 5)


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_all_messages(expression):
    made = build_subscription("T", expression)
    assert (made.sub_string, made.tags_set, made.code_set) == ("*", set(), set())


def test_an_expression_without_tags_is_refused():
    with pytest.raises(ClientError, match="names no tag"):
        build_subscription("T", " || ")


def test_sql_has_no_tags():
    made = build_subscription("T", sql="a > 1")
    assert (made.expression_type, made.sub_string, made.tags_set) == ("SQL92", "a > 1", set())
    with pytest.raises(ClientError, match="blank"):
        build_subscription("T", sql=" ")
    with pytest.raises(ClientError, match=r"'a >' of topic T is wrong: .* ends at position 3"):
        build_subscription("T", sql="a >")
    with pytest.raises(ClientError, match="complete before 'b = 2'"):
        build_subscription("T", sql="a = 1 b = 2")
    with pytest.raises(ClientError, match="use TAGS in the SQL"):
        build_subscription("T", "A", "a > 1")


def test_tags_are_compared_as_text():
    assert tag_wanted({"Aa"}, "Aa")
    assert not tag_wanted({"Aa"}, "BB")  # both have Java's hash 2112
    assert not tag_wanted({"Aa"}, None)
    assert tag_wanted(set(), None)


@pytest.mark.parametrize("where", [LAST, FIRST, AT])
@pytest.mark.parametrize("topic", ["T", "%RETRY%G"])
def test_a_stored_offset_always_counts(where, topic):
    assert first_offset(where, 7, topic) == 7
    assert first_offset(where, 0, topic) == 0


@pytest.mark.parametrize(
    ("where", "topic", "expected"),
    [
        (LAST, "T", Begin.MAX_OFFSET),
        (LAST, "%RETRY%G", 0),
        (FIRST, "T", 0),
        (FIRST, "%RETRY%G", 0),
        (AT, "T", Begin.AT_TIMESTAMP),
        (AT, "%RETRY%G", Begin.MAX_OFFSET),
    ],
)
def test_a_new_group_begins_where_it_wants(where, topic, expected):
    assert first_offset(where, None, topic) == expected


def test_a_retried_message_has_its_original_topic():
    assert original_topic("%RETRY%G", {"RETRY_TOPIC": "T"}, "G") == "T"
    assert original_topic("%RETRY%other", {"RETRY_TOPIC": "T"}, "G") == "%RETRY%other"
    assert original_topic("T", {"RETRY_TOPIC": "X"}, "G") == "T"
