"""Header fields: the tables compared with the sheet, encoding and decoding."""

import re
from pathlib import Path

import msgspec
import pytest

from tianzhou.errors import HeaderFieldError
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command, decode, encode, split
from tianzhou.wire.fields import (
    REPLIES,
    REQUESTS,
    HotFields,
    read_header,
    read_reply,
    reply_fields,
    request_fields,
    text_fields,
    write_header,
    write_reply,
)

SHEET = (Path(__file__).parents[3] / "docs/spec/wire.md").read_text()
TOKEN = re.compile(r"\b(\w+):([silb])(!?)")
HOT = (10, 324, 310, 320, 325, 11, 361)

# Required in the sheet, but an absent one has Java's default: no request is refused for it.
DEFAULTED = {(17, "order"), (200050, "bornTime"), (1002, "clusterName"), (1002, "brokerName")}
DEFAULTED |= {(1002, "brokerId"), (1002, "designateElect")}


def sheet_rows() -> list[tuple[int, str, str]]:
    """Return code, request header cell and reply header cell of every row of §3 that describes one code."""
    text = SHEET[SHEET.index("\n## 3. ") : SHEET.index("\n## 4. ")]
    found = []
    for part in re.split(r"\n### ", text)[1:]:
        head = next(line for line in part.splitlines() if line.startswith("| code"))
        columns = [cell.strip() for cell in head.split("|")[1:-1]]
        request = columns.index("request header")
        reply = next((i for i, name in enumerate(columns) if name.startswith("response header")), None)
        for line in part.splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) == len(columns) and re.fullmatch(r"\d+", cells[0]):
                request_cell, _, later = cells[request].partition("response header")
                reply_cell = later if reply is None else cells[reply].partition("; body")[0]
                found.append((int(cells[0]), request_cell, reply_cell))
        if "3.6" in part[:4]:
            break
    return found


def test_every_header_field_of_the_sheet_is_in_the_tables() -> None:
    checked = 0
    for code, request_cell, reply_cell in sheet_rows():
        for cell, fields, side in (
            (request_cell, request_fields(code), "request"),
            (reply_cell, reply_fields(code), "reply"),
        ):
            ours = {field.wire: field for field in fields}
            for name, kind, required in TOKEN.findall("".join(re.findall(r"`([^`]*)`", cell))):
                assert name in ours, (code, side, name)
                assert ours[name].kind == kind, (code, side, name)
                if (code, name) not in DEFAULTED:
                    assert ours[name].required == bool(required), (code, side, name)
                checked += 1
    assert checked > 150


def test_every_line_can_be_read_and_names_are_unique() -> None:
    for code in REQUESTS:
        attributes = [field.attribute for field in request_fields(code)]
        assert len(set(attributes)) == len(attributes), code
        assert all(name.isidentifier() and name == name.lower() for name in attributes), attributes
    for code in REPLIES:
        assert reply_fields(code)
    assert set(REQUESTS) | set(REPLIES) <= {int(code) for code in RequestCode}


def test_hot_structs_agree_with_their_lines() -> None:
    for code in HOT:
        for fields, struct in (
            (request_fields(code), type(read_header(sample(code)))),
            (reply_fields(code), type(read_reply(code, sample_reply(code)))),
        ):
            members = {member.encode_name: member for member in msgspec.structs.fields(struct)}
            assert set(members) == {field.wire for field in fields}
            for field in fields:
                member = members[field.wire]
                assert member.required == field.required, field
                if field.kind == "b":
                    assert member.name == field.attribute + "_text"
                    want = msgspec.UNSET if field.default is None else str(field.default).lower()
                    assert member.default == want
                else:
                    assert member.name == field.attribute
                    if not field.required:
                        assert member.default == field.default, field


def sample(code: int) -> Command:
    texts = {"s": "x", "i": "1", "l": "2", "b": "true", "e": "UPPER"}
    return Command(code, fields={field.wire: texts[field.kind] for field in request_fields(code)})


def sample_reply(code: int) -> Command:
    texts = {"s": "x", "i": "1", "l": "2", "b": "true"}
    return Command(0, flag=1, fields={field.wire: texts[field.kind] for field in reply_fields(code)})


@pytest.mark.parametrize("code", sorted(REQUESTS))
def test_a_header_comes_back_as_written(code: int) -> None:
    values = {"s": "x", "i": -1, "l": 1 << 40, "b": True, "e": "UPPER"}
    wanted = {field.attribute: values[field.kind] for field in request_fields(code)}
    header = read_header(Command(code, fields=write_header(code, **wanted)))
    assert {name: getattr(header, name) for name in wanted} == wanted


@pytest.mark.parametrize("code", sorted(REPLIES))
def test_a_reply_header_comes_back_as_written(code: int) -> None:
    values = {"s": "x", "i": -1, "l": 1 << 40, "b": False}
    wanted = {field.attribute: values[field.kind] for field in reply_fields(code)}
    header = read_reply(code, Command(0, fields=write_reply(code, **wanted)))
    assert {name: getattr(header, name) for name in wanted} == wanted


def test_letters_and_full_names_have_the_same_attributes() -> None:
    values = {"producer_group": "g", "topic": "t", "queue_id": 3, "batch": True, "bname": "b-a"}
    assert write_header(310, **values) == {"a": "g", "b": "t", "e": "3", "m": "true", "n": "b-a"}
    assert write_header(10, **values) == {
        "producerGroup": "g",
        "topic": "t",
        "queueId": "3",
        "batch": "true",
        "bname": "b-a",
    }


def test_what_is_none_is_left_out_and_what_is_unknown_is_refused() -> None:
    assert write_header(105, topic="t", accept_standard_json_only=None) == {"topic": "t"}
    with pytest.raises(TypeError, match=r"GET_ROUTEINFO_BY_TOPIC has no header field 'topik'; it has topic"):
        write_header(105, topik="t")
    with pytest.raises(TypeError, match="reply to GET_MAX_OFFSET has no header field 'max'; it has offset"):
        write_reply(30, max=1)


def test_absent_optional_fields_read_as_their_defaults() -> None:
    header = read_header(Command(30, fields={"topic": "t", "queueId": "1"}))
    assert header.committed is True
    assert header.lo is None
    header = read_header(Command(29, fields={"topic": "t", "queueId": "1", "timestamp": "5"}))
    assert header.boundary_type == "LOWER"
    header = read_header(Command(14, fields={"topic": "t", "queueId": "1", "consumerGroup": "g"}))
    assert header.set_zero_if_not_found is None


def test_a_code_without_header_reads_as_an_empty_one() -> None:
    assert read_header(Command(106)) is not None
    assert read_header(Command(4711, fields={"x": "y"})) is not None
    assert write_header(106) == {}


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderFieldError, match="GET_MAX_OFFSET: header field queueId is missing"):
        read_header(Command(30, fields={"topic": "t"}))
    with pytest.raises(HeaderFieldError, match=r"SEND_MESSAGE_V2: header field b \(topic\) is missing"):
        read_header(Command(310, fields={"a": "g"}))
    with pytest.raises(HeaderFieldError, match="reply to PULL_MESSAGE: header field nextBeginOffset is missing"):
        read_reply(11, Command(0, fields={"suggestWhichBrokerId": "0"}))


@pytest.mark.parametrize("text", ["x", "", "1 ", "1_0", "0x5", "2147483648", "-2147483649", "٣", "1" * 5000])
def test_an_unreadable_number_is_named_with_its_value(text: str) -> None:
    with pytest.raises(HeaderFieldError, match=r"queueId is .*expected a whole number of 32 bits") as info:
        read_header(Command(30, fields={"topic": "t", "queueId": text}))
    assert repr(text[:80]) in str(info.value)


@pytest.mark.parametrize(("text", "value"), [("+5", 5), ("007", 7), ("-0", 0), ("-2147483648", -(2**31))])
def test_numbers_in_odd_spellings_are_read(text: str, value: int) -> None:
    assert read_header(Command(30, fields={"topic": "t", "queueId": text})).queue_id == value


def test_an_empty_optional_number_is_none() -> None:
    header = read_header(Command(321, fields={"topic": "t", "queueId": "", "index": "+7", "count": "1"}))
    assert (header.queue_id, header.index) == (0, 7)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("tRuE", True), ("1", False), ("yes", False), ("", False)]
)
def test_booleans_read_as_java_reads_them(text: str, value: bool) -> None:
    assert read_header(Command(317, fields={"isOrder": text})).is_order is value
    fields = {**sample(310).fields, "m": text, "k": text, "nsd": text}
    header = read_header(Command(310, fields=fields))
    assert (header.batch, header.unit_mode, header.nsd) == (value, value, value)


@pytest.mark.parametrize(
    ("text", "value"), [("upper", "UPPER"), ("UPPER", "UPPER"), ("LOWER", "LOWER"), ("x", "LOWER")]
)
def test_boundaries_read_as_java_reads_them(text: str, value: str) -> None:
    fields = {"topic": "t", "queueId": "1", "timestamp": "5", "boundaryType": text}
    assert read_header(Command(29, fields=fields)).boundary_type == value


@pytest.mark.parametrize("code", [310, 10, 11])
def test_a_signed_request_keeps_its_text_fields(code: int) -> None:
    fields = {**sample(code).fields, "AccessKey": "me", "Signature": "sig"}
    frame = encode(Command(code, fields=fields))
    command = split(frame, 0, len(frame), 1 << 20)[0][0]
    assert text_fields(command) == fields
    assert dict(HotFields(code, command.header)) == fields
    assert read_header(command).access_key == "me"


def test_text_fields_are_the_same_either_way() -> None:
    for code in HOT:
        frame = encode(sample(code))
        hot = split(frame, 0, len(frame), 1 << 20)[0][0]
        assert hot.header is not None
        assert hot.fields == {}
        assert text_fields(hot) == text_fields(decode(frame[4:])) == sample(code).fields
        assert decode(encode(hot)[4:]).fields == sample(code).fields


def test_a_hot_reply_is_read_for_what_it_answers() -> None:
    # It looks like the reply to a send, but answers another request; the text is still readable.
    fields = write_reply(310, msg_id="m", queue_id=1, queue_offset=2)
    frame = encode(Command(0, 5, 1, fields={"queueId": "1", **fields}))
    command = split(frame, 0, len(frame), 1 << 20)[0][0]
    assert command.header is not None
    assert read_reply(370, command).msg_id == "m"
    assert read_reply(310, command).queue_offset == 2
