"""Checks of server addresses that people write as `host:port`. Pure."""

from __future__ import annotations

import ipaddress
import re

from tianzhou.escaping import UNSAFE

_UNSAFE = re.compile(UNSAFE)
MAX_PORT = 65_535
_TOO_MANY = "it has more than one ':'"


def address_fault(text: str) -> str:
    """Return why a text is not `host:port`, and how to correct the text; an empty text for a valid address.

    Args:
        text: `host:port`, or `[IPv6]:port`.
    """
    if re.search(r"\s", text):
        return "it contains a space; join several addresses with ';'"
    if _UNSAFE.search(text):
        return "it contains a character that cannot be seen; type it again"
    scheme, separator, _ = text.partition("://")
    if separator:
        return f"it begins with {scheme}://; leave that out"
    before, slash, behind = text.partition("/")
    if slash:
        return f"it ends with {slash + behind}; leave that out" if before else "it begins with /; leave that out"
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket:
            return "the bracket before the IPv6 address is not closed"
        if not _is_ipv6(host):
            return f"{host!r} in brackets is no IPv6 address"
        return _port_fault(port[1:]) if port.startswith(":") else f"it has no port; write [{host}]:9876"
    host, colon, port = text.rpartition(":")
    if not colon:
        return "it has no port"
    if ":" in host:
        if _is_ipv6(host):
            return f"an IPv6 address needs brackets; write [{host}]:{port}"
        return f"an IPv6 address needs brackets and a port; write [{text}]:9876" if _is_ipv6(text) else _TOO_MANY
    if not host:
        return "it has no host"
    return _port_fault(port)


def _port_fault(port: str) -> str:
    if not port:
        return "it has no port behind ':'"
    if not port.isascii() or not port.isdigit():
        return f"port {port!r} is no number in the digits 0 to 9"
    if not 0 < int(port[:9]) <= MAX_PORT:
        return f"port {port[:20]} is not between 1 and {MAX_PORT}"
    return ""


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
