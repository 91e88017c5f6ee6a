"""Bodies and documents of messages printed in pieces: the same text as in one piece."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.cli.messages import body_pieces
from tianzhou.cli.messages.body_pieces import body_start, document, document_pieces, text_pieces
from tianzhou.cli.output import body_text
from tianzhou.escaping import escaped, escaped_json
from tianzhou.model import MessageExt

BODIES = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.sampled_from([b"", b"\x00" * 9, "\u202e世界𝄞".encode(), b"tab\tand\nline", b"\xf0\x9f\x8e", b'"quoted\\"']),
)


def message(body):
    host = "127.0.0.1:1"
    properties = {"KEYS": "k", "UNIQ_KEY": "U", "colour": "red"}
    return MessageExt("T", body, 0, properties, "b", 1, 2, 3, 0, 4, host, 5, host, 6, 0, 7, 8, "id")


@pytest.fixture(autouse=True, params=[3, 6, 3 << 14])
def piece_bytes(request, monkeypatch):
    monkeypatch.setattr(body_pieces, "PIECE_BYTES", request.param)


@given(BODIES)
def test_a_body_in_pieces_is_the_body_in_one(body):
    assert "".join(escaped(piece, keep="\t") for piece in text_pieces(body)) == body_text(body)


@given(BODIES, st.integers(0, 12))
def test_the_start_of_a_body_is_that_of_its_text(body, characters):
    assert body_start(body, characters) == body_text(body)[:characters]


@given(BODIES)
def test_a_document_in_pieces_is_the_json_of_the_document(body):
    found = message(body)
    more = {"groups": [{"group": "g"}]}
    text = "".join(document_pieces(found, more))
    assert text == json.dumps(document(found) | more, ensure_ascii=False)
    assert json.loads(escaped_json(text)) == document(found) | more
