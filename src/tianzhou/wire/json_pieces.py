"""Encoder of large tables in RocketMQ's pretty JSON, a few entries at a time, so that other tasks run in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from tianzhou.wire.json_dialect import dumps_pretty

ENTRIES: Final = 64
"""Entries of a member in one piece; each takes some 10 µs."""
_HEAD: Final = b'{\n\t"_":{'
_TAIL: Final = b"\n\t}\n}"


def pretty_entries(entries: Mapping[Any, Any]) -> bytes:
    """Encode some entries of a member without the surrounding object; return an empty text for no entries."""
    text = dumps_pretty({"_": dict(entries)})
    return text[len(_HEAD) : -len(_TAIL)] if text.endswith(_TAIL) and text.startswith(_HEAD + b"\n") else b""


def pretty_table(head: Mapping[str, Any], member: str, entries: Iterable[bytes]) -> bytes:
    """Encode `head` as `dumps_pretty` does, followed by a member whose entries are already encoded."""
    body = b",".join(entries)
    text = dumps_pretty({**head, member: {}})
    return text[: -len(b"}\n}")] + body + _TAIL if body else text


def pretty_pieces(value: Mapping[str, Any]) -> Iterator[bytes]:
    """Encode a value as `dumps_pretty` does, in pieces, when its members have many entries."""
    large = [name for name, content in value.items() if isinstance(content, dict) and len(content) > ENTRIES]
    text = dumps_pretty({name: {} if name in large else content for name, content in value.items()})
    for name in large:
        head, empty, text = text.partition(dumps_pretty({name: {}})[len(b"{\n") : -len(b"}\n}")])
        yield head + empty
        entries, comma = iter(value[name].items()), b""
        while some := dict(islice(entries, ENTRIES)):
            if body := pretty_entries(some):
                yield comma + body
                comma = b","
        text = b"\n\t" + text if comma else text
    yield text
