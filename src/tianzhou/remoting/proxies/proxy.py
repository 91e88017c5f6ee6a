"""HAProxy's PROXY protocol, versions 1 and 2: the client that a load balancer forwards (wire.md §1.11). Pure."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field
from typing import Final

from tianzhou.errors import ProtocolError
from tianzhou.limits import PROXY_BYTES
from tianzhou.remoting.foreign import explain

FIRST_BYTES: Final = (b"P", b"\r")
"""First bytes of PROXY headers. A frame with such a first byte would exceed the maximum frame size."""
_TEXT: Final = b"PROXY "
_SHORTEST_TEXT: Final = len(b"PROXY UNKNOWN\r\n")
_LONGEST_TEXT: Final = 107
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED: Final = 16
_LOCAL: Final = 0x20
_PROXIED: Final = 0x21
_ADDRESS_BYTES: Final = {1: 4, 2: 16}
_VALUE_OVERHEAD: Final = 100
"""Memory of a value in addition to its text, bytes."""
_TLV_HEAD: Final = struct.Struct(">BH")


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A parsed PROXY header.

    Attributes:
        source: the client's address, `host:port`; empty when the balancer connects for itself or has no address.
        ip: the host of `source`.
        values: text values by their type, within a limited size.
    """

    source: str = ""
    ip: str = ""
    values: dict[int, str] = field(default_factory=dict)


def missing(data: bytes) -> int:
    """Return the minimum number of bytes missing from the header; 0 when it is complete.

    Raises:
        ProtocolError: it is not a PROXY header.
    """
    if data.startswith(_TEXT[: len(data)]):
        if b"\n" in data:
            return 0
        if len(data) >= _LONGEST_TEXT:
            raise ProtocolError(f"a PROXY header of more than {_LONGEST_TEXT} bytes")
        return max(_SHORTEST_TEXT - len(data), 1)
    if data.startswith(_SIGNATURE[: len(data)]):
        if len(data) < _FIXED:
            return _FIXED - len(data)
        return max(_FIXED + int.from_bytes(data[14:16]) - len(data), 0)
    raise explain(ProtocolError(f"neither a frame nor a PROXY header: it begins with {data[:_FIXED]!r}"), data)


def parse(header: bytes) -> ProxyHeader:
    """Parse a complete header.

    Raises:
        ProtocolError: it is malformed.
    """
    try:
        return _of_text(header) if header.startswith(_TEXT) else _of_bytes(header)
    except (ValueError, struct.error) as error:
        raise ProtocolError(f"malformed PROXY header {header[:_LONGEST_TEXT]!r}: {error}") from None


def _of_text(header: bytes) -> ProxyHeader:
    if not header.endswith(b"\r\n"):
        raise ValueError("expected one line")
    family, *rest = header.decode("ascii").split()[1:]
    if family == "UNKNOWN":
        return ProxyHeader()
    versions = {"TCP4": 4, "TCP6": 6}
    if family not in versions or len(rest) != 4:
        raise ValueError("expected TCP4 or TCP6, two addresses and two ports")
    source = ipaddress.ip_address(rest[0])
    port = rest[2]
    if source.version != versions[family] or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{rest[0]} {port} is no address of {family}")
    return ProxyHeader(f"{source}:{int(port)}", str(source))


def _of_bytes(header: bytes) -> ProxyHeader:
    command, family = header[12], header[13] >> 4
    if command not in (_LOCAL, _PROXIED):
        raise ValueError(f"version and command {command:#x} are unknown")
    if command == _LOCAL:
        return ProxyHeader()
    size = _ADDRESS_BYTES.get(family)
    if size is None:
        return ProxyHeader()  # Unix sockets and unknown families have no address
    rest = header[_FIXED:]
    if len(rest) < 2 * size + 4:
        raise ValueError(f"{len(rest)} bytes are too few for its addresses")
    source = ipaddress.ip_address(rest[:size])
    port = int.from_bytes(rest[2 * size : 2 * size + 2])
    return ProxyHeader(f"{source}:{port}", str(source), _values(rest[2 * size + 4 :]))


def _values(data: bytes) -> dict[int, str]:
    values = {}
    room = PROXY_BYTES.default
    while data:
        kind, length = _TLV_HEAD.unpack_from(data)
        value, data = data[_TLV_HEAD.size :][:length], data[_TLV_HEAD.size + length :]
        if len(value) < length:
            raise ValueError(f"value {kind:#x} is cut off")
        room -= len(value) + _VALUE_OVERHEAD
        if value.isascii() and room >= 0:
            values[kind] = value.decode("ascii")
    return values
