"""Every recorded frame: it decodes, its header parses, both decoders agree, and encoding gives the same bytes."""

import json
import struct
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from tianzhou._hot.headers import SendReplyHeader
from tianzhou.access.requests import AccessRequest
from tianzhou.access.signatures import is_signed
from tianzhou.wire.codes import FLAG_RESPONSE, RequestCode
from tianzhou.wire.command import decode, encode, split
from tianzhou.wire.fields import read_header, read_reply, text_fields

pytestmark = pytest.mark.usefixtures("hot")

FOLDER = Path(__file__).parents[1] / "golden/wire"
MAX_FRAME = 16_777_216


class Recorded(NamedTuple):
    file: str
    note: dict[str, Any]
    frame: bytes

    @property
    def header(self) -> bytes:
        (word,) = struct.unpack_from(">I", self.frame, 4)
        return self.frame[8 : 8 + (word & 0xFFFFFF)]


@cache
def recorded() -> list[Recorded]:
    return list(_read())


def _read() -> Iterator[Recorded]:
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            note = json.loads(line)
            if "hex" in note:
                yield Recorded(path.stem, note, bytes.fromhex(note["hex"]))


def test_every_frame_decodes_to_what_was_noted() -> None:
    assert len(recorded()) == 2983
    for _, note, frame in recorded():
        command = decode(frame[4:])
        assert (command.code, command.opaque) == (note["code"], note["opaque"])
        assert command.is_response == (note["dir"] == "resp")
        assert command.serialize_type == (note["serialize"] != "JSON")


def writer(header: bytes) -> str:
    """Return the writer of a JSON header, as far as the bytes reveal it."""
    if header.endswith(b"\n"):
        return "C++"  # a newline after it, a remark without text, no serialize type, numbers bare
    keys = list(json.loads(header))
    if keys != sorted(keys):
        return "Go"  # keys in an order of its own, the fields in random order
    if b'"extFields":{}' in header:
        return "Java, header class without fields"  # ours omits an empty object
    return "Java"


def test_what_java_wrote_we_write_with_the_same_bytes() -> None:
    left_out: Counter[str] = Counter()
    for file, _, frame in recorded():
        one = Recorded(file, {}, frame)
        again = encode(decode(frame[4:]))
        kind = "binary" if frame[4] else writer(one.header)
        if kind in ("Java", "binary"):
            assert again == frame, (file, one.header)
        else:
            # Other writers order and space their JSON differently; the content must be equal.
            assert again != frame
            assert decode(again[4:]) == decode(frame[4:])
            left_out[kind] += 1
    assert left_out == {"C++": 143, "Go": 124, "Java, header class without fields": 303}


def answers_with_fields(code: int) -> bool:
    """Whether a reply with this code has the response header (wire.md §6.2 for 19 to 21)."""
    return code in (0, 19, 20, 21)


def test_every_request_header_parses() -> None:
    known = {int(code) for code in RequestCode}
    codes = Counter[int]()
    for file, note, frame in recorded():
        command = decode(frame[4:])
        if not command.is_response:
            assert command.code in known, (file, command.code)
            assert read_header(command) is not None
            codes[command.code] += 1
        elif answers_with_fields(command.code) and "reqCode" in note:
            assert read_reply(note["reqCode"], command) is not None
    assert len(codes) > 70
    assert codes.total() == 1635


def test_hot_and_general_decoders_agree() -> None:
    hot_kinds: Counter[str] = Counter()
    for file, _, frame in recorded():
        commands, position = split(frame, 0, len(frame), MAX_FRAME)
        assert position == len(frame)
        (hot,) = commands
        general = decode(frame[4:])
        assert replace(hot, header=None, fields=general.fields, signed=b"") == general
        if hot.header is None:
            assert hot == general
            continue
        hot_kinds[type(hot.header).__name__] += 1
        if general.flag & FLAG_RESPONSE:
            sent = isinstance(hot.header, SendReplyHeader)
            answered = RequestCode.SEND_MESSAGE_V2 if sent else RequestCode.PULL_MESSAGE
            assert hot.header == read_reply(answered, general), file
        else:
            assert hot.header == read_header(general), file
        # All of the peer's fields are present; the additional ones are defaults it did not send.
        text = text_fields(hot)
        defaults = {name: value for name, value in text.items() if name not in general.fields}
        assert {**general.fields, **defaults} == text
        assert all(value in ("0", "false", "true") for value in defaults.values())
    # Without headers that have fields of a single writer (OnsChannel), and without binary ones.
    assert hot_kinds == {
        "SendHeaderV2": 187,
        "SendHeader": 32,
        "PullHeader": 205,
        "SendReplyHeader": 254,
        "PullReplyHeader": 158,
    }


def test_many_frames_in_one_read() -> None:
    by_file: dict[str, list[bytes]] = {}
    for one in recorded():
        by_file.setdefault(one.file, []).append(one.frame)
    for frames in by_file.values():
        joined = bytearray(b"".join(frames))
        commands, position = split(joined, 0, len(joined), MAX_FRAME)
        assert position == len(joined)
        assert [command.opaque for command in commands] == [decode(frame[4:]).opaque for frame in frames]


def test_recorded_bodies_are_untouched() -> None:
    for one in recorded():
        body = one.frame[8 + len(one.header) :]
        assert split(one.frame, 0, len(one.frame), MAX_FRAME)[0][0].body == body


def test_the_signatures_of_apaches_clients_are_right() -> None:
    secrets = {}
    for path in FOLDER.glob("*.jsonl"):
        note = json.loads(path.read_text().partition("\n")[0])["note"]
        if "secretKey" in note:
            secrets[path.stem] = note["secretKey"]
    signed: Counter[int] = Counter()
    for file, _, frame in recorded():
        general = decode(frame[4:])
        if general.is_response or not general.fields.get("AccessKey"):
            continue
        (hot,) = split(frame, 0, len(frame), MAX_FRAME)[0]
        assert isinstance(read_header(hot), msgspec.Struct)
        signed[general.code] += 1
        for command in (hot, general):
            fields = text_fields(command)
            request = AccessRequest(command.code, fields, bytes(command.body), command.version, signed=command.signed)
            assert is_signed(request, secrets[file]), (file, command)
            assert not is_signed(request, secrets[file] + "x")
    assert signed[RequestCode.SEND_MESSAGE_V2] == 28
