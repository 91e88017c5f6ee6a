"""JSON as fastjson writes and reads it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import LimitExceeded, ProtocolError
from tianzhou.limits import JSON_REFERENCES
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP, SUBSCRIPTION_GROUP_TABLE, SubscriptionGroupTable
from tianzhou.wire.json_dialect import dumps, dumps_plain, dumps_pretty, dumps_standard, loads
from tianzhou.wire.json_shape import FOREIGN_DEPTH, MAX_DEPTH

QUEUE = MessageQueue("T", "b-a", 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1}', {"a": 1}),
        ('{0:"10.0.0.1:10911",1:"x"}', {0: "10.0.0.1:10911", 1: "x"}),
        ('{"0":"x"}', {"0": "x"}),
        ("{-1:2}", {-1: 2}),
        ('{{"brokerName":"b-a","queueId":3,"topic":"T"}:7}', {QUEUE: 7}),
        ('{{"topic":"T","queueId":"3","brokerName":"b-a","more":1}:7}', {QUEUE: 7}),
        ('{{"b":1,"a":{"c":[1,2]}}:7}', {(("a", (("c", (1, 2)),)), ("b", 1)): 7}),
        (
            '{{"topic":"T","queueId":"x","brokerName":"b"}:1}',
            {(("brokerName", "b"), ("queueId", "x"), ("topic", "T")): 1},
        ),
        ("{[1,2]:3}", {(1, 2): 3}),
        ("{'a':'b\\'c\"d'}", {"a": "b'c\"d"}),
        ("[1,2,]", [1, 2]),
        ("[,1,,2]", [1, 2]),
        ('{"a":1,}', {"a": 1}),
        ("{a:1,$b:2,c_d:3}", {"a": 1, "$b": 2, "c_d": 3}),
        ("[1.5,-2e3,0.0,5.,.5,1E2,7L,1.5D,3F]", [1.5, -2000.0, 0.0, 5.0, 0.5, 100.0, 7, 1.5, 3]),
        ("[true,false,null,undefined,NaN,'']", [True, False, None, None, None, ""]),
        ("Set['a']", ["a"]),
        ("TreeSet[1,2]", [1, 2]),
        (" \t\r\n{ 'a' : [ 1 , 2 ] } \n", {"a": [1, 2]}),
        ("/* head */{'a':1 // tail\n}", {"a": 1}),
        ("\ufeff{'a':1}", {"a": 1}),
        (r"""'\u4e2d\x41\/\\\"\'\b\f\n\r\t\v\0\7'""", "中A/\\\"'\b\f\n\r\t\v\0\7"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\ud83d'", "\ufffd"),
        ("'raw\tcontrol\n'", "raw\tcontrol\n"),
        ("{'k':1,'k':2}", {"k": 2}),
        ("{}", {}),
        ("[]", []),
    ],
)
def test_reading(text: str, expected: Any) -> None:
    assert loads(text.encode()) == expected
    assert loads(bytearray(text.encode())) == loads(memoryview(text.encode())) == expected


def test_bare_and_quoted_integer_keys_are_distinguished() -> None:
    (bare,) = loads(b"{7:1}")
    (quoted,) = loads(b'{"7":1}')
    assert (bare, quoted) == (7, "7")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert loads(b'{"a":"\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0), ("   ", 3), ("{", 1), ("[", 1), ('{"a"', 4), ('{"a":', 5), ('{"a":}', 5), ('{"a" 1}', 5),
        ('{"a":1 "b":2}', 7), ("[1 2]", 3), ("{'a':1]", 6), ("[1}", 2), ("hello", 0), ("{'a':hello}", 5),
        ("{'a':'open", 5), (r"'\q'", 1), (r"'\u12", 0), (r"'\uXYZW'", 1), ("{}{}", 2), ("1 2", 2), ("{1", 2),
        ("{:1}", 1), ("-", 0), ("@", 0), ("\x00\x01", 0), ("9" * 5000, 0),
    ],
)  # fmt: skip
def test_garbage_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(ProtocolError, match=rf"^JSON at character {position}: expected .*, found "):
        loads(text.encode())


@pytest.mark.over_limit("maxJsonDepth")
def test_nesting_is_bounded() -> None:
    deep = "[" * 100_000
    with pytest.raises(ProtocolError, match=f"{MAX_DEPTH} levels"):
        loads(deep.encode())
    with pytest.raises(ProtocolError, match=f"{MAX_DEPTH} levels"):
        loads(("{'a':" * 100_000).encode())
    with pytest.raises(ProtocolError, match=f"{MAX_DEPTH} levels"):
        loads(("{" * 100_000).encode())
    with pytest.raises(ProtocolError, match="levels"):
        loads(("[" * 500 + '{"$ref":"$"}' + "]" * 500).encode())
    assert loads(b"[" * MAX_DEPTH + b"1," + b"]" * MAX_DEPTH)


@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[1,{"a":', b"}]")])
def test_what_can_be_read_can_be_written(begin: bytes, end: bytes) -> None:
    levels = MAX_DEPTH // (begin.count(b"[") + begin.count(b"{"))
    deepest = loads(begin * levels + b"1" + end * levels)
    assert loads(dumps(deepest)) == loads(dumps_pretty(deepest)) == deepest
    with pytest.raises(ProtocolError, match=f"more than {MAX_DEPTH} levels"):
        loads(begin * (levels + 1) + b"1" + end * (levels + 1))


def test_a_member_of_any_shape_can_be_written_inside_others() -> None:
    def group(levels: int) -> bytes:
        return b'{"groupName":"g","groupRetryPolicy":{"p":' + b"[" * levels + b"]" * levels + b"}}"

    config = SUBSCRIPTION_GROUP.loads(group(FOREIGN_DEPTH))
    table = SubscriptionGroupTable({"g": config})
    assert loads(SUBSCRIPTION_GROUP_TABLE.dumps(table))
    assert loads(dumps_pretty(loads(SUBSCRIPTION_GROUP_TABLE.dumps(table))))
    with pytest.raises(ProtocolError, match=f"groupRetryPolicy.p: more than {FOREIGN_DEPTH} levels"):
        SUBSCRIPTION_GROUP.loads(group(FOREIGN_DEPTH + 1))


def test_many_brackets_in_texts_are_no_nesting() -> None:
    assert loads(b'["' + b"[" * 500 + b'"]') == ["[" * 500]


def test_keys_of_keys_are_refused() -> None:
    with pytest.raises(ProtocolError, match="as a key itself"):
        loads(b'{{{"a":1}:1}:1}')
    with pytest.raises(ProtocolError, match="as a key itself"):
        loads(b"{" * 60 + b"1:1" + b"}:1" * 59 + b"}")


def referring(shared: int, times: int) -> bytes:
    """Return a list of `shared` values, and `times` references to it."""
    values = ",".join(["1"] * (shared - 1))
    references = ",".join(['{"$ref":"$.a"}'] * times)
    return f'{{"a":[{values}],"b":[{references}]}}'.encode()


@pytest.mark.over_limit("maxJsonReferredValues")
def test_references_stand_for_no_more_values_than_the_limit() -> None:
    most = JSON_REFERENCES.default
    value = loads(referring(most // 64, 64))
    assert all(one is value["a"] for one in value["b"])
    with pytest.raises(LimitExceeded, match=f"{most + 1024} values, at most {most}"):
        loads(referring(most // 64, 65))
    with pytest.raises(LimitExceeded):
        loads(referring(8_000, 8_000))


def test_queues_referred_to_as_keys_are_found_for_every_map() -> None:
    def key(number: int) -> str:
        return f'{{"brokerName":"b","queueId":{number},"topic":"t"}}:1'

    queues = ",".join(map(key, range(300)))
    references = ",".join(['{"$ref":"$.m.null"}:2'] * 300)
    lists = ",".join(['{{"$ref":"$.m.null"}:3}'] * 300)
    value = loads(f'{{"m":{{{queues}}},"n":{{{references}}},"l":[{lists}]}}'.encode())
    assert list(value["n"]) == list(value["m"])
    assert value["l"] == [{MessageQueue("t", "b", 0): 3}] * 300


def test_references_to_values_are_followed() -> None:
    value = loads(b'{"a":{"x":[{"y":1},2]},"b":{"$ref":"$.a"},"c":[{"$ref":"$.a.x[0]"},{"$ref":"$.a.x[1]"}]}')
    assert value["b"] == {"x": [{"y": 1}, 2]}
    assert value["c"] == [{"y": 1}, 2]
    assert loads(b'{"m":{0:{"y":1}},"n":{"$ref":"$.m[0]"}}')["n"] == {"y": 1}


@pytest.mark.parametrize("ref", ["$", "$.none", "$.a.b.c", "..", "@", "$.a[7]", "", "$x", "$.l[5]"])
def test_references_that_lead_nowhere_stay(ref: str) -> None:
    text = json.dumps({"a": {"v": {"$ref": ref}}, "l": [1]})
    assert loads(text.encode()) == {"a": {"v": {"$ref": ref}}, "l": [1]}


def test_references_never_make_a_value_contain_itself() -> None:
    text = b'{"a":{"x":{"$ref":"$.b"}},"b":{"y":{"$ref":"$.a"}},"c":{"$ref":"$.c"}}'
    assert loads(text) == json.loads(text)


def test_a_reference_as_key_is_the_key_it_points_at() -> None:
    # Two tables of running information share their queues (wire.md §1.13).
    text = (
        b'{"mqPopTable":{{"brokerName":"b","queueId":0,"topic":"T"}:1,{"brokerName":"b","queueId":1,"topic":"T"}:2},'
        b'"mqTable":{{"$ref":"$.mqPopTable.null"}:3,{"$ref":"$.mqPopTable.null"}:4}}'
    )
    first, second = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    assert loads(text) == {"mqPopTable": {first: 1, second: 2}, "mqTable": {first: 3, second: 4}}
    assert loads(b'{"m":{{"$ref":"$.none.null"}:3}}') == {"m": {(("$ref", "$.none.null"),): 3}}


def test_text_that_looks_like_a_reference_is_text() -> None:
    assert loads(b'{"a":"$ref","$ref":"$.a","b":1}') == {"a": "$ref", "$ref": "$.a", "b": 1}


def test_writing_the_dialect() -> None:
    value = {
        "b": {1: "x", 0: None, 10: "z", 2: "y"},
        "a": [1, True, None, 1.5, "é"],
        "mq": {QUEUE: 7},
        "none": None,
        "queue": QUEUE,
        "set": {5},
        "empty": {},
        "gone": {"x": None},
    }
    assert dumps(value).decode() == (
        '{"a":[1,true,null,1.5,"é"],"b":{1:"x",2:"y",10:"z"},"empty":{},"gone":{},'
        '"mq":{{"brokerName":"b-a","queueId":3,"topic":"T"}:7},'
        '"queue":{"brokerName":"b-a","queueId":3,"topic":"T"},"set":[5]}'
    )
    assert dumps({"b": 1, "a": 2}, sort_keys=False) == b'{"b":1,"a":2}'


def test_writing_standard_json() -> None:
    value = {"brokerAddrs": {1: "b", 0: "a"}, "text": 'é中😀\n"\\\x7f', "mq": {QUEUE: 7}}
    data = dumps_standard(value)
    assert data.isascii()
    assert json.loads(data) == {
        "brokerAddrs": {"0": "a", "1": "b"},
        "text": value["text"],
        "mq": {'{"brokerName":"b-a","queueId":3,"topic":"T"}': 7},
    }
    assert b'{"0":"a","1":"b"}' in data
    assert rb"\u00E9\u4E2D\uD83D\uDE00\n\"\\\u007F" in data


@pytest.mark.parametrize(
    "value",
    [
        {"b": 1, "a": {"é": [True, "x"], "t": ("y",)}},
        {"b": {1: 2}},
        {"b": None, "a": "null"},
        {"b": {QUEUE: 1}, "a": {5}},
        {"b": "\ud800"},
        [],
    ],
)
def test_the_quick_ways_write_the_same(value: Any) -> None:
    assert dumps_plain(value) == dumps(value, sort_keys=False)
    assert json.loads(dumps_standard(value, sort_keys=False)) == json.loads(dumps_standard(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("\x00\x1f\x7f\x85\xa0\u2028\u2029", r'"\u0000\u001F\u007F\u0085\u00A0\u2028\u2029"'),
        ("\b\f\n\r\t\"\\/'", r'"\b\f\n\r\t\"\\/' + "'\""), ("\ud800", '"?"'), (0.0, "0.0"), (-0.0, "-0.0"),
        (1.0, "1.0"), (0.1, "0.1"), (2.099370188943317, "2.099370188943317"), (9999999.5, "9999999.5"), (1e7, "1.0E7"),
        (123456789.5, "1.234567895E8"), (1e16, "1.0E16"), (-1.5e300, "-1.5E300"), (0.001, "0.001"), (0.0001, "1.0E-4"),
        (1.25e-7, "1.25E-7"), (math.nan, "null"), (math.inf, "null"),
    ],
)  # fmt: skip
def test_texts_and_doubles_are_javas(value: Any, expected: str) -> None:
    assert dumps(value) == expected.encode()
    if isinstance(value, float) and math.isfinite(value):
        assert loads(dumps(value)) == value


def test_values_without_json_form_are_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        dumps({"a": object()})


def test_values_nested_too_deep_are_refused() -> None:
    array: list[Any] = []
    members: dict[str, Any] = {}
    for _ in range(MAX_DEPTH):
        array, members = [array], {"a": members}
    for deep in (array, members):
        with pytest.raises(ProtocolError, match="levels"):
            dumps(deep)


def test_the_pretty_form_of_configuration_files() -> None:
    value = {
        "dataVersion": {"counter": 0},
        "groupTopicMap": {"A5G": ["A5Plain"]},
        "none": {},
        "offsetTable": {"A5Plain@A5G": {0: 21, 1: 22}},
    }
    expected = (
        '{\n\t"dataVersion":{\n\t\t"counter":0\n\t},\n\t"groupTopicMap":{\n\t\t"A5G":["A5Plain"]\n\t},\n\t"none":{},\n'
        '\t"offsetTable":{\n\t\t"A5Plain@A5G":{0:21,1:22\n\t\t}\n\t}\n}'
    )
    assert dumps_pretty(value).decode() == expected
    assert loads(expected.encode()) == value
    assert dumps_pretty({}) == b"{}"
    assert dumps_pretty({"b": 1, "a": 2}, sort_keys=True) == b'{\n\t"a":2,\n\t"b":1\n}'


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 62), 1 << 62)
    | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXTS.filter(lambda key: key != "$ref"), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(PLAIN)
def test_both_readers_agree_about_standard_json(value: Any) -> None:
    text = json.dumps(value)
    assert loads(text.encode()) == value
    # Only the lenient reader accepts a trailing comma.
    assert loads(f"[{text},]".encode()) == [value]
    assert loads(f"{{0:{text}}}".encode()) == {0: value}
