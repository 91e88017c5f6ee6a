"""Message ids: the id with broker and log offset, and parts of addresses in ids (wire.md §4.7, store.md §0.6)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from tianzhou._hot import UniqueIdGenerator as UniqueIdGenerator
from tianzhou._hot.identifiers import local_month as local_month
from tianzhou.errors import ProtocolError


@lru_cache(maxsize=1024)
def _host_hex(host: bytes, port: int) -> str:
    return f"{host.hex().upper()}{port & 0xFFFFFFFF:08X}"


def offset_msg_id(host: bytes, port: int, physical_offset: int) -> str:
    """Return the offset message id: upper-case hex of store host, port and commit-log offset (store.md §0.6).

    Args:
        host: 4 bytes of IPv4 or 16 of IPv6 address.
        port: the broker's port.
        physical_offset: offset in the commit log.
    """
    return f"{_host_hex(host, port)}{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"


def parse_offset_msg_id(text: str) -> tuple[str, int, int]:
    """Return host address, port and commit-log offset of an offset message id.

    Raises:
        ProtocolError: `text` is not 32 or 56 hex digits.
    """
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in {16, 28} or len(text) != 2 * len(data):
        raise ProtocolError(f"offset message id {text!r} is not 32 (IPv4) or 56 (IPv6) hex digits")
    host = data[:-12]
    port = int.from_bytes(data[-12:-8], "big", signed=True)
    return address_text(host), port, int.from_bytes(data[-8:], "big", signed=True)


@lru_cache(maxsize=1024)
def address_text(host: bytes) -> str:
    """Return an address of 4 or 16 bytes as text: `10.0.0.1`, `2001:db8::1`."""
    return ".".join(map(str, host)) if len(host) == 4 else IPv6Address(host).compressed


@lru_cache(maxsize=1024)
def host_text(host: bytes, port: int) -> str:
    """Return `ip:port`, with an IPv6 address in brackets."""
    address = address_text(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def address_bytes(text: str) -> bytes:
    """Return the 4 or 16 bytes of an address in text form; brackets and a zone index are allowed.

    Raises:
        ProtocolError: `text` is no IP address.
    """
    try:
        return ip_address(text.strip("[]").partition("%")[0]).packed
    except ValueError:
        raise ProtocolError(f"{text!r} is not an IP address; host names have to be resolved first") from None
