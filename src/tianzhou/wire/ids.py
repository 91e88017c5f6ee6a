"""Message ids: where a broker stored it, and the key its producer gave it (wire.md §4.7, store.md §0.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from tianzhou.errors import ProtocolError


@lru_cache(maxsize=1024)
def _host_hex(host: bytes, port: int) -> str:
    return f"{host.hex().upper()}{port & 0xFFFFFFFF:08X}"


def offset_msg_id(host: bytes, port: int, physical_offset: int) -> str:
    """The offset message id: upper-case hex of store host, port and commit-log offset (store.md §0.6).

    Args:
        host: 4 bytes of IPv4 or 16 of IPv6 address.
        port: the broker's port.
        physical_offset: position in the commit log.
    """
    return f"{_host_hex(host, port)}{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"


def parse_offset_msg_id(text: str) -> tuple[str, int, int]:
    """Host address, port and commit-log offset in an offset message id.

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
    """An address of 4 or 16 bytes as text: `10.0.0.1`, `2001:db8::1`."""
    return ".".join(map(str, host)) if len(host) == 4 else IPv6Address(host).compressed


@lru_cache(maxsize=1024)
def host_text(host: bytes, port: int) -> str:
    """`ip:port`, with an IPv6 address in brackets."""
    address = address_text(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def address_bytes(text: str) -> bytes:
    """The 4 or 16 bytes of an address in text form; brackets and a zone index are tolerated.

    Raises:
        ProtocolError: `text` is no IP address.
    """
    try:
        return ip_address(text.strip("[]").partition("%")[0]).packed
    except ValueError:
        raise ProtocolError(f"{text!r} is not an IP address; host names have to be resolved first") from None


def local_month(now_ms: int) -> tuple[int, int]:
    """Start and end, in ms, of the local calendar month that contains `now_ms`."""
    here = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone()
    # Wall-clock arithmetic without offset, then back: the offset may change within the month.
    first = here.replace(day=1, hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    following = (first + timedelta(days=32)).replace(day=1)
    return int(first.timestamp()) * 1000, int(following.timestamp()) * 1000


class UniqueIdGenerator:
    """Makes the unique keys a client process gives to its messages (wire.md §4.7).

    An id is upper-case hex of address, process id, a per-process number, milliseconds since the local month
    began, and a counter that wraps at 65,536. One generator belongs to one event loop.

    Args:
        ip: 4 or 16 bytes of the client's address.
        pid: process id; its low 16 bits are used.
        process_hash: any number that sets this process apart from others with its pid; low 32 bits.
    """

    __slots__ = ("_counter", "_head", "_head_ms", "_month_end", "_month_start", "_prefix")

    def __init__(self, ip: bytes, pid: int, process_hash: int) -> None:
        self._prefix = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{process_hash & 0xFFFFFFFF:08X}"
        self._month_start = self._month_end = 0
        self._head = ""
        self._head_ms = -1
        self._counter = -1

    def next(self, now_ms: int) -> str:
        """The next id; `now_ms` is milliseconds since the epoch."""
        if now_ms != self._head_ms:
            # Busy producers make hundreds of ids in a millisecond; all of them but the first share this.
            self._head_ms = now_ms
            if now_ms >= self._month_end:
                self._month_start, self._month_end = local_month(now_ms)
            # A clock set back across the month's start gives 0, as in Java.
            since = now_ms - self._month_start if now_ms >= self._month_start else 0
            self._head = f"{self._prefix}{since:08X}"
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._head}{counter:04X}"
