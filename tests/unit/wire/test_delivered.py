"""Messages with lazily decoded properties, hosts and id behave like any other message."""

import copy
import pickle

import pytest

from tianzhou.records.codec import Record, decode_record, encode_record
from tianzhou.wire.delivered import DeliveredMessage, add_property, pair_behind
from tianzhou.wire.pulled import decode_messages, to_message

HOST = bytes((10, 0, 0, 7))
STORED = encode_record(
    Record("T", 3, 5, 4096, 7, 0, 11, HOST, 40_000, 12, HOST, 10_911, 1, 9, b"hi", b"UNIQ_KEY\x01k\x02TAGS\x01A\x02")
)


def fresh(added=b""):
    (message,) = decode_messages(STORED, "b", added=added)
    assert type(message) is DeliveredMessage
    return message


def test_what_is_made_late_is_what_a_record_says():
    message = fresh()
    assert (message.born_host, message.store_host) == ("10.0.0.7:40000", "10.0.0.7:10911")
    assert message.offset_msg_id == "0A00000700002A9F0000000000001000"
    assert (message.msg_id, message.tags) == ("k", "A")
    assert [fresh()] == to_message(decode_record(STORED), "b")


@pytest.mark.parametrize("look", [False, True])
def test_what_is_set_stays(look):
    message = fresh()
    if look:
        assert message.properties
        assert message.born_host
        assert message.offset_msg_id
    message.properties = {"a": "1"}
    message.born_host = "elsewhere:1"
    message.offset_msg_id = "X"
    add_property([message], "b", "2")
    assert message.properties == {"a": "1", "b": "2"}
    assert (message.born_host, message.msg_id) == ("elsewhere:1", "X")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("store_size", len(STORED)), ("body_crc", 0x58932AAC), ("queue_id", 3), ("queue_offset", 5),
        ("commitlog_offset", 4096), ("flag", 7), ("sys_flag", 0), ("born_timestamp", 11), ("store_timestamp", 12),
        ("reconsume_times", 1), ("prepared_transaction_offset", 9),
    ],
)  # fmt: skip
def test_a_number_is_what_the_record_says_until_it_is_set(name, said):
    message, others = fresh(), fresh()
    assert getattr(fresh(), name) == said
    setattr(message, name, 77)
    assert getattr(message, name) == 77
    setattr(others, name, said)
    assert others == fresh() != message


@pytest.mark.parametrize("look", [False, True])
def test_properties_that_are_added_stand_beside_the_others_and_the_last_wins(look):
    message = fresh(added=pair_behind("MIN_OFFSET", "0"))
    if look:
        assert message.properties == {"UNIQ_KEY": "k", "TAGS": "A", "MIN_OFFSET": "0"}
    add_property([message], "MIN_OFFSET", "9")
    add_property([message], "TAGS", "B")
    assert message.properties == {"UNIQ_KEY": "k", "TAGS": "B", "MIN_OFFSET": "9"}


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("again", [lambda m: pickle.loads(pickle.dumps(m)), copy.copy, copy.deepcopy])
def test_copies_have_all_of_it(look, again):
    message = fresh(added=pair_behind("MIN_OFFSET", "0"))
    if look:
        assert message.properties
        assert message.born_host
    twin = again(message)
    assert twin == message == fresh(added=pair_behind("MIN_OFFSET", "0"))
    add_property([twin], "b", "2")
    assert twin.properties["b"] == "2"


def test_an_attribute_that_does_not_exist_is_named():
    with pytest.raises(AttributeError, match="no attribute 'brn_host'"):
        fresh().brn_host  # noqa: B018 - asked for to be refused
    assert not hasattr(fresh(), "anything")
