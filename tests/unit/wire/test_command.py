"""The frame codec: the sheet's vectors, tolerant decoding, refusals and their texts."""

import json
import struct

import pytest

from tianzhou.errors import ProtocolError
from tianzhou.wire.codes import MAX_HEADER, LanguageCode
from tianzhou.wire.command import Command, decode, encode

# wire.md §18
JSON_VECTOR = bytes.fromhex(
    "00000087000000837b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f70696354657374227d"
    "2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a312c2273657269616c697a6554797065"
    "43757272656e74525043223a224a534f4e222c2276657273696f6e223a3437397d"
)
BINARY_VECTOR = bytes.fromhex(
    "0000002d0100002900690001df000000010000000000000000000000140005746f70696300000009546f70696354657374"
)
POP_VECTOR = bytes.fromhex("00000019010000150d720001df00000002000000000000000000000000")


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    """Return a frame without its length."""
    raw = header.encode() if isinstance(header, str) else header
    return struct.pack(">I", len(raw)) + raw + body


def binary_frame(header: bytes) -> bytes:
    return struct.pack(">I", 1 << 24 | len(header)) + header


def test_the_sheets_json_vector() -> None:
    command = decode(JSON_VECTOR[4:])
    assert command == Command(105, 1, 0, LanguageCode.JAVA, 479, None, {"topic": "TopicTest"})
    assert encode(command) == JSON_VECTOR


def test_the_sheets_binary_vector() -> None:
    command = decode(BINARY_VECTOR[4:])
    assert command == Command(105, 1, 0, LanguageCode.JAVA, 479, None, {"topic": "TopicTest"}, b"", 1)
    assert encode(command) == BINARY_VECTOR


def test_a_code_beyond_16_bits_arrives_cut_off_and_is_not_sent() -> None:
    command = decode(POP_VECTOR[4:])
    assert (command.code, command.opaque) == (3442, 2)
    assert encode(command) == POP_VECTOR
    command.code = 200050
    with pytest.raises(ProtocolError, match=r"code 200050.*does not fit a binary header.*JSON"):
        encode(command)


def test_an_empty_json_header_has_javas_defaults() -> None:
    command = decode(json_frame("{}"))
    assert command == Command(0, 0, 0, LanguageCode.JAVA, 0, None, {}, b"", 0)


def test_body_and_remark_travel() -> None:
    for kind in (0, 1):
        command = Command(7, -5, 3, LanguageCode.GO, 317, "ein Wort: 中文", {"k": "v"}, b"\x00body\xff", kind)
        assert decode(encode(command)[4:]) == command
        assert decode(memoryview(bytearray(encode(command)))[4:]) == command


def test_what_java_escapes_is_escaped_alike() -> None:
    text = 'a\x00\x01\x02\b\t\n\x0b\f\r\x0e\x1f"\\/\x7f\x80\x9f\u2028\u2029é中😀\\u000b'
    header = encode(Command(0, remark=text, fields={text: text}))[8:]
    java = (
        '"a\\u0000\\u0001\\u0002\\b\\t\\n\\u000B\\f\\r\\u000E\\u001F\\"\\\\/\\u007F\\u0080\\u009F\\u2028\\u2029'
        'é中😀\\\\u000b"'
    ).encode()
    assert b'"remark":' + java in header
    assert b'"extFields":{' + java + b":" + java + b"}" in header
    assert json.loads(header)["remark"] == text


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    command = decode(encode(Command(1, remark="a\ud800b", fields={"\udfff": "\ud800"}))[4:])
    assert (command.remark, command.fields) == ("a?b", {"?": "?"})
    command = decode(encode(Command(1, remark="a\ud800b", fields={"\udfff": "\ud800"}, serialize_type=1))[4:])
    assert (command.remark, command.fields) == ("a?b", {"?": "?"})


def test_a_reply_keeps_the_opaque_only() -> None:
    request = Command(310, -7, 0, LanguageCode.CPP, 63, "r", {"a": "b"}, b"x", 1)
    reply = request.reply(17, "no route")
    assert reply == Command(17, -7, 1, LanguageCode.PYTHON, 479, "no route")
    assert reply.is_response
    assert not reply.is_oneway
    assert request.reply(0, fields={"k": "v"}, body=b"z").fields == {"k": "v"}
    assert Command(1, flag=2).is_oneway
    reply.fields["own"] = "1"
    assert request.reply(0).fields == {}


# Tolerant reading, wire.md §1.2 to §1.4


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            '{"code":11,"extFields":{"a":32,"b":true,"c":"x","d":1.5,"e":null}}',
            {"a": "32", "b": "true", "c": "x", "d": "1.5"},
        ),
        ('{"code":11,"extFields":{"a":{"b":[1,"x"]}}}', {"a": '{"b":[1,"x"]}'}),
        ('{"code":11,"extFields":{"n":184467440737095516150,"m":1e3}}', {"n": "184467440737095516150", "m": "1e3"}),
        ('{"code":11,"what":1e400,"extFields":{"n":1}}', {"n": "1"}),
        ('{"code":11,"extFields":null}', {}),
        ('{"code":11}\n', {}),
        ('{"code":11,"unknown":[1,{"x":2}],"extFields":{"a":"b"}}', {"a": "b"}),
        ('{"code":11,"extFields":{"a":"1","a":"2"}}', {"a": "2"}),
    ],
)
def test_bare_values_in_ext_fields_become_text(header: str, expected: dict[str, str]) -> None:
    command = decode(json_frame(header))
    assert command.code == 11
    assert command.fields == expected


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ('"GO"', LanguageCode.GO), ('"COBOL"', LanguageCode.OTHER), ('""', LanguageCode.OTHER),
        ("null", LanguageCode.OTHER), ("3", LanguageCode.PYTHON), ("99", LanguageCode.OTHER),
        ("[]", LanguageCode.OTHER),
    ],
)  # fmt: skip
def test_languages(language: str, code: LanguageCode) -> None:
    assert decode(json_frame(f'{{"code":1,"language":{language}}}')).language == code


def test_numbers_as_text_and_nulls_are_read() -> None:
    command = decode(json_frame('{"code":"105","opaque":"-1","flag":null,"version":"479","remark":5}'))
    assert command == Command(105, -1, 0, LanguageCode.JAVA, 479, "5")


def test_text_that_is_no_utf8_is_read_with_replacement_characters() -> None:
    # Seen from C++ clients in another locale: Java ignores it, and so do we.
    command = decode(json_frame(b'{"code":1,"remark":"\xc4\xe3","extFields":{"a":"\xba\xc3"}}'))
    assert command.fields == {"a": "\ufffd\ufffd"}
    binary = struct.pack(">hBhiii", 1, 0, 0, 0, 0, 1) + b"\xff" + struct.pack(">ihciB", 8, 1, b"a", 1, 0xFF)
    assert decode(binary_frame(binary)).fields == {"a": "\ufffd"}


def test_binary_strings_without_length_are_absent() -> None:
    table = b"\x00\x01a\x00\x00\x00\x00" + b"\x00\x00\x00\x00\x00\x01x" + b"\x00\x01b\x00\x00\x00\x01y"
    header = struct.pack(">hBhiii", -1000, 200, 1, 2, 1, 0) + struct.pack(">i", len(table)) + table
    command = decode(binary_frame(header))
    assert command == Command(-1000, 2, 1, LanguageCode.OTHER, 1, None, {"b": "y"}, b"", 1)


def test_a_duplicate_binary_field_wins_with_its_last_value() -> None:
    table = b"\x00\x01a\x00\x00\x00\x011" + b"\x00\x01a\x00\x00\x00\x012"
    header = struct.pack(">hBhiii", 1, 0, 0, 0, 0, 0) + struct.pack(">i", len(table)) + table
    assert decode(binary_frame(header)).fields == {"a": "2"}


# Refusals


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"\x00\x00", "frame of 2 bytes; at least 4"),
        (b"\x05\x00\x00\x02{}", "serialize type 5; known are 0"),
        (b"\x00\x00\x00\x03{}", "header length 3 exceeds the 2 bytes"),
        (json_frame(""), "JSON header of 0 bytes cannot be read"),
        (json_frame("{} x"), "JSON header of 4 bytes cannot be read"),
        (json_frame("[1]"), "JSON header of 3 bytes cannot be read: Expected `object`, got `array`"),
        (json_frame('{"code":"x"}'), "code of the JSON header is 'x'; expected a whole number"),
        (json_frame('{"code":2147483648}'), "code of the JSON header is 2147483648"),
        (json_frame('{"opaque":[]}'), r"opaque of the JSON header is \[\]"),
        (json_frame('{"version":true}'), "version of the JSON header is True"),
        (json_frame('{"extFields":"x"}'), r"cannot be read: Expected .object . null., got .str. - at .\$\.extFields"),
        (json_frame('{"extFields":' + "[" * 5000), "JSON header of 5013 bytes cannot be read"),
        (json_frame('{"a":' + "[" * 100_000), "cannot be read"),
        (binary_frame(b"\x00" * 20), "binary header of 20 bytes; at least 21"),
        (binary_frame(struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 1, 0)), "remark length 1 exceeds"),
        (binary_frame(struct.pack(">hBhiiii", 1, 0, 0, 0, 0, -4, 0)), "remark length -4 exceeds"),
        (binary_frame(struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, 1)), "extFields length 1 exceeds the 0 bytes"),
        (binary_frame(struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, -1)), "extFields length -1 exceeds"),
        (binary_frame(struct.pack(">hBhiiiihi", 1, 0, 0, 0, 0, 0, 6, 9, 0)), "field name at byte 21"),
        (binary_frame(struct.pack(">hBhiiiihi", 1, 0, 0, 0, 0, 0, 6, -1, 0)), "field name at byte 21"),
        (binary_frame(struct.pack(">hBhiiiihi", 1, 0, 0, 0, 0, 0, 6, 0, 7)), "field value at byte 27"),
        (binary_frame(struct.pack(">hBhiiiihi", 1, 0, 0, 0, 0, 0, 6, 0, -7)), "field value at byte 27"),
        (binary_frame(struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, 1) + b"x"), "field name at byte 21"),
    ],
)
def test_bad_frames_are_refused_by_name(frame: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(frame)


def test_a_header_beyond_24_bits_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match=f"the limit is {MAX_HEADER}"):
        encode(Command(1, fields={"a": "x" * (MAX_HEADER + 1)}))


def test_a_field_name_beyond_16_bits_is_not_sent_in_binary() -> None:
    with pytest.raises(ProtocolError, match="does not fit a binary header"):
        encode(Command(1, fields={"x" * 0x8000: "v"}, serialize_type=1))
