"""Pulls recognised without making commands of them: the pure twin (docs/adr/0022-runs.md)."""

from __future__ import annotations

import struct
from typing import Any, Final

from msgspec import UNSET

from tianzhou._hot import frames

_PULL: Final = frames._number(b'11,"')
_FRAME_HEAD: Final = 8
_NUMBERS: Final = struct.Struct(">iiiqq")
_NONE: Final = b"\1"
_RARE: Final = (
    "ns", "nsd_text", "oway_text", "lo_text", "req_t", "security_token", "request_source", "proxy_froward_client_id"
)  # fmt: skip
_NOT_SET: Final = (None, UNSET)


def pull_key(header: Any) -> bytes:
    """What pulls of one consumer and queue have in common: all that decides about the answer but its offsets.

    Args:
        header: of a pull.
    """
    numbers = _NUMBERS.pack(
        header.queue_id, header.max_msg_nums, header.sys_flag, header.sub_version, header.suspend_timeout_millis
    )
    texts = header.consumer_group, header.topic, header.expression_type, header.subscription
    parts = [_NONE if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    return b"\0".join((*parts, numbers))


def scan_pull(
    buffer: bytes | bytearray | memoryview, start: int, end: int, most_frame: int
) -> tuple[int, bytes, int, int, int] | None:
    """A pull at the front of `buffer[start:end]`.

    Args:
        buffer: what was read.
        start: where its first frame begins.
        end: where it ends.
        most_frame: maximum bytes of a frame.

    Returns:
        Where the frame ends, what the pull has in common with others (`pull_key`), its opaque, and the offsets that it
        reads from and commits. None when there is no whole frame, or none of a pull (code 11, by JSON, without a body)
        as clients spell them: in ASCII without escapes, for themselves, with a reply.
    """
    if end - start < frames._PEEK_SIZE:
        return None
    length, word, first, second = frames._peek(buffer, start)
    stop = start + 4 + length
    if first != frames._START or second != _PULL or word + 4 != length or stop > end or length + 4 > most_frame:
        return None
    head = bytes(memoryview(buffer)[start + _FRAME_HEAD : stop])
    if b"\\" in head or not head.isascii():
        return None
    try:
        request = frames.BY_CODE[_PULL](head)
    except (ValueError, RecursionError):
        return None
    header = request.header
    if request.flag or request.remark is not None or any(getattr(header, name) not in _NOT_SET for name in _RARE):
        return None
    return stop, pull_key(header), request.opaque, header.queue_offset, header.commit_offset
