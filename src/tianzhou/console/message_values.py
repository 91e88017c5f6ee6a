"""Messages in the form of pages: bodies as bounded text, and exports. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from tianzhou.errors import ClientError
from tianzhou.escaping import escaped
from tianzhou.model import MessageExt

SHOWN_BYTES: Final = 64 << 10
"""Maximum number of bytes of a body that a page shows."""
SHOWN_CELL: Final = 200
MAX_EXPORT_BYTES: Final = 64 << 20
"""Maximum size of an export in bytes. The console builds the whole export in memory, and compressed bodies can expand
to a thousand times their size."""
CHARSETS: Final = (
    "utf-8", "gb18030", "big5", "utf-16-le", "utf-16-be", "shift_jis", "euc-jp", "euc-kr", "iso-8859-1", "windows-1251",
)  # fmt: skip
"""Charsets to display a body as text. GB18030 includes GBK and GB2312."""
HEX_WIDTH: Final = 16
HEX_BYTES: Final = 4 << 10


def number(text: str, otherwise: int, most: int) -> int:
    """Return a number of an address, limited to the range 1 to `most`; `otherwise` for any other text."""
    return min(max(int(text), 1), most) if text.isascii() and text.isdecimal() and len(text) < 10 else otherwise


def charset_of(text: str) -> str:
    """Return a charset of an address: one of `CHARSETS`; the first one for any other text."""
    return text if text in CHARSETS else CHARSETS[0]


def body_text(body: bytes, charset: str = CHARSETS[0]) -> str:
    """Return a body as text, up to the size that a page shows.

    Invalid bytes become replacement characters. Characters that change the writing direction or are invisible become
    escapes.

    Args:
        body: the body.
        charset: one of `CHARSETS`.
    """
    text = body[:SHOWN_BYTES].decode(charset, errors="replace").replace("\0", "\N{SYMBOL FOR NULL}")
    return escaped(text, keep="\n\r\t")


def body_json(body: bytes, charset: str = CHARSETS[0]) -> str | None:
    """Return a body as indented JSON; None when it is no JSON, or exceeds the size that a page shows.

    Args:
        body: the body.
        charset: one of `CHARSETS`.
    """
    if len(body) > SHOWN_BYTES:
        return None
    try:
        found = json.loads(body.decode(charset).removeprefix("\ufeff"))
        return escaped(json.dumps(found, indent=2, ensure_ascii=False)[: 4 * SHOWN_BYTES], keep="\n")
    except (ValueError, RecursionError):
        return None


def body_hex(body: bytes) -> str:
    """Return a body as a hex dump, sixteen bytes per line with their text, up to the size that a page shows."""
    lines = []
    for at in range(0, min(len(body), HEX_BYTES), HEX_WIDTH):
        part = body[at : at + HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * HEX_WIDTH}} {text}")
    return "\n".join(lines)


def cell(text: str) -> str:
    """Return a text for a table's cell. Characters that change the writing direction become escapes."""
    text = escaped(text[: SHOWN_CELL + 1])
    return text if len(text) <= SHOWN_CELL else text[: SHOWN_CELL - 1] + "…"


def to_json_line(message: MessageExt) -> str:
    """Return a message as a line of JSON. The body is text if possible, otherwise base64."""
    body: dict[str, Any]
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(message.body).decode()}
    found = {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
        "properties": message.properties,
        **body,
    }
    return json.dumps(found, ensure_ascii=False)


def to_json_lines(messages: Iterable[MessageExt], limit_bytes: int = MAX_EXPORT_BYTES) -> bytes:
    """Return messages as JSON lines, the format of an export.

    Args:
        messages: the messages.
        limit_bytes: maximum size of the lines.

    Raises:
        ClientError: the lines exceed the limit.
    """
    lines = bytearray()
    for message in messages:
        lines += (to_json_line(message) + "\n").encode(errors="replace")
        if len(lines) > limit_bytes:
            raise ClientError(
                f"the messages take more than {limit_bytes >> 20} MiB as JSON; choose fewer, or export them with: "
                "tianzhou dlq export"
            )
    return bytes(lines)
