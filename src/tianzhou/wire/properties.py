"""The property string of a message: `name` 0x01 `value` 0x02, repeated (wire.md §4.3, store.md §0.3)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from tianzhou.errors import ClientError
from tianzhou.limits import PROPERTIES_BYTES
from tianzhou.records.checksum import Octets

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
MAX_BYTES: Final = PROPERTIES_BYTES.default


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """Encode a property string. A separator ends every pair, including the last one. None values are omitted.

    Args:
        properties: names to values. A value may contain U+0001, a name may not; neither may contain U+0002.

    Raises:
        ClientError: a name or value has a separator. The length (at most 32,767 bytes) is not checked here.
    """
    parts = [f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None]
    text = "".join(parts)
    if text.count(PAIR_END) != len(parts) or text.count(NAME_END) != len(parts):
        _refuse_separators(properties)
    return text.encode()


def _refuse_separators(properties: Mapping[str, str | None]) -> None:
    for name, value in properties.items():
        if NAME_END in name or PAIR_END in name:
            raise ClientError(f"property name {name!r} contains U+0001 or U+0002, which separate properties")
        if value is not None and PAIR_END in value:
            raise ClientError(f"property {name!r}: value {value!r} contains U+0002, which ends a property")


def check_properties_size(size_bytes: int) -> None:
    """Check the length of a property string.

    Raises:
        ClientError: the string does not fit into its 16-bit length field.
    """
    if size_bytes > MAX_BYTES:
        raise ClientError(
            f"the message's properties take {size_bytes} bytes, the limit is {MAX_BYTES}; put the data into the body"
        )


def decode_properties(data: Octets) -> dict[str, str]:
    """Decode a property string; the last pair of a name counts, malformed and empty pairs are dropped.

    Bytes that are no UTF-8 become U+FFFD, as in Java.
    """
    pieces = [piece.partition(NAME_END) for piece in str(data, "utf-8", "replace").split(PAIR_END)]
    return {name: value for name, _, value in pieces if value and name}


@lru_cache(maxsize=128)
def _needle(name: str) -> bytes:
    return f"\x02{name}\x01".encode()


def get_property(raw: Octets, name: str) -> str | None:
    """Return one property's value without parsing the others; None when absent or empty. The last pair counts."""
    data = raw if isinstance(raw, bytes) else bytes(raw)
    needle = _needle(name)
    end = len(data)
    while (at := data.rfind(needle, 0, end)) >= 0:
        start = at + len(needle)
        if value := data[start : _pair_end(data, start)]:
            return value.decode("utf-8", "replace")
        end = at + len(needle) - 1
    if data.startswith(needle[1:]):
        start = len(needle) - 1
        if value := data[start : _pair_end(data, start)]:
            return value.decode("utf-8", "replace")
    return None


def _pair_end(data: bytes, start: int) -> int:
    end = data.find(b"\x02", start)
    return len(data) if end < 0 else end
