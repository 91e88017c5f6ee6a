"""Message bodies for stdout in pieces, because a body may be 64 MiB and its JSON six times as large. Pure."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tianzhou.escaping import escaped

if TYPE_CHECKING:
    from tianzhou.model import MessageExt

PIECE_BYTES: Final = 3 << 14
"""Bytes of a body to decode at once; a multiple of three, so that base64 pieces need no padding."""


def text_pieces(body: bytes) -> Iterator[str]:
    """Yield a body as text. Bytes that are not UTF-8 become escapes as in Python's source."""
    yield from _decoded(body, "backslashreplace")


def body_start(body: bytes, characters: int) -> str:
    """Return the beginning of a body as text on one line.

    Args:
        body: the body.
        characters: maximum length of the text.
    """
    # A character has at most four bytes. The cut may split the last character, whose escapes lie behind the text's end.
    return escaped(body[: 4 * characters + 4].decode("utf-8", "backslashreplace"), keep="\t")[:characters]


def document(message: MessageExt) -> dict[str, Any]:
    """Return a message as a JSON object. A body that is not UTF-8 text is in `body_base64`."""
    try:
        body = {"body": message.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode("ascii")}
    return _fields_before(message) | body | _fields_behind(message)


def fields_of(message: MessageExt) -> dict[str, Any]:
    """Return a message as a JSON object without its body."""
    return _fields_before(message) | _fields_behind(message)


def document_pieces(message: MessageExt, more: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield the JSON text of `document`.

    Args:
        message: the message.
        more: further fields to append after the fields of `document`.
    """
    body = message.body
    yield _json(_fields_before(message))[:-1]
    if _is_text(body):
        yield ', "body": "'
        for piece in _decoded(body, "strict"):
            yield _json(piece)[1:-1]
    else:
        yield ', "body_base64": "'
        for at in range(0, len(body), PIECE_BYTES):
            yield base64.b64encode(body[at : at + PIECE_BYTES]).decode("ascii")
    yield '", ' + _json(_fields_behind(message) | dict(more or {}))[1:]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_text(body: bytes) -> bool:
    try:
        for _ in _decoded(body, "strict"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _decoded(body: bytes, errors: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    for at in range(0, len(body), PIECE_BYTES):
        yield decoder.decode(body[at : at + PIECE_BYTES], final=at + PIECE_BYTES >= len(body))


def _fields_before(message: MessageExt) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.user_properties,
    }


def _fields_behind(message: MessageExt) -> dict[str, Any]:
    return {
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "reconsume_times": message.reconsume_times,
    }
