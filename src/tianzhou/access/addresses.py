"""Patterns of addresses: white lists of RocketMQ 4.x (broker.md §22.1), and CIDR ranges of 5.3 (broker.md §22.2).

A pattern is compiled when the rules are loaded. A request then costs one look-up, or the parsing of one address. An
IPv4 address that arrives through an IPv6 socket (`::ffff:10.0.0.1`) counts as the IPv4 address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple, Protocol, TypeAlias

from tianzhou.errors import ConfigError
from tianzhou.escaping import shown

MAX_PATTERN: Final = 8192
"""Maximum number of characters in a pattern, enough for some hundred addresses."""
_ANY: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_V4_PARTS: Final = 4
_V6_PARTS: Final = 8
_FORMS: Final = (
    "expected an address, 10.0.0.*, 10.0.0.1-20, 10.0.0.{1,2}, the same of IPv6 such as fe80::1-20, a comma list of"
    " addresses, or *"
)
_RANGE: Final = re.compile(r"([0-9a-fA-F]{1,4})-+([0-9a-fA-F]{1,4})(-.*)?")

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressPattern(Protocol):
    """A set of addresses."""

    def matches(self, ip: str) -> bool:
        """Whether the set contains an address without port. A text that is no address is only in `ANY`."""


class FailingPatternError(ConfigError):
    """A pattern that RocketMQ can read, but that makes every request fail."""


class ReadPattern(NamedTuple):
    """A pattern in the interpretation of RocketMQ 4.9.

    Attributes:
        addresses: the addresses that the pattern matches.
        oddity: why the pattern does not match the addresses that it seems to match; empty otherwise.
    """

    addresses: AddressPattern
    oddity: str = ""


class _Any:
    def matches(self, ip: str) -> bool:
        return True


class _None:
    def matches(self, ip: str) -> bool:
        return False


class _Several:
    def __init__(self, addresses: frozenset[_Address]) -> None:
        self._texts = frozenset(str(address) for address in addresses)
        self._addresses = addresses

    def matches(self, ip: str) -> bool:
        return ip in self._texts or (":" in ip and _parsed(ip) in self._addresses)


class _Range:
    """Addresses with fixed first parts, a next part within a range, and arbitrary last parts."""

    def __init__(self, version: int, head: tuple[int, ...], first: int, last: int) -> None:
        self._version = version
        bits, count = (8, _V4_PARTS) if version == 4 else (16, _V6_PARTS)
        self._shift = bits * (count - len(head) - 1)
        base = 0
        for part in head:
            base = base << bits | part
        self._first = base << bits | first
        self._last = base << bits | last

    def matches(self, ip: str) -> bool:
        address = _parsed(ip)
        return (
            address is not None
            and address.version == self._version
            and self._first <= int(address) >> self._shift <= self._last
        )


class _Network:
    def __init__(self, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
        self._network = network

    def matches(self, ip: str) -> bool:
        address = _parsed(ip)
        return address is not None and address in self._network


ANY: Final[AddressPattern] = _Any()
"""Every address."""
NONE: Final[AddressPattern] = _None()
"""No address."""


def parse_pattern(pattern: str) -> AddressPattern:
    """Return the addresses of a RocketMQ 4.x pattern. Reject a pattern that does not match what it seems to match.

    Raises:
        ConfigError: `read_pattern` raises it, or the pattern has an oddity.
    """
    found = read_pattern(pattern)
    if found.oddity:
        raise _wrong(pattern, found.oddity)
    return found.addresses


def read_pattern(pattern: str) -> ReadPattern:
    """Read a pattern of a file in the interpretation of RocketMQ 4.9 (broker.md §22.1).

    An empty pattern means none, `*`, `*.*.*.*` and `*:*:*:*:*:*:*:*` mean any. Others are an address, a comma list of
    addresses, a set in braces as the last part, or a range as one of the last parts. RocketMQ ignores the parts behind
    the range.

    Raises:
        FailingPatternError: RocketMQ fails at every request because of the pattern.
        ConfigError: RocketMQ cannot read the pattern either; the text has the pattern and the valid forms.
    """
    if not pattern.strip():
        return ReadPattern(NONE)
    if pattern in _ANY:
        return ReadPattern(ANY)
    if len(pattern) > MAX_PATTERN:
        raise _wrong(pattern, f"it has {len(pattern)} characters, at most {MAX_PATTERN} are read")
    if pattern.endswith("}"):
        return _several(_in_braces(pattern), pattern)
    if "," in pattern:
        return _several([one for one in pattern.split(",") if one], pattern)
    if "*" in pattern or "-" in pattern:
        return _range_of_v6(pattern) if ":" in pattern else _range_of_v4(pattern)
    return _several([pattern], pattern)


def parse_network(text: str) -> AddressPattern:
    """Return the addresses of a RocketMQ 5.3 source IP: an address or a CIDR range (broker.md §22.2).

    Raises:
        ConfigError: the text is neither.
    """
    try:
        return _Network(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError as error:
        raise ConfigError(
            f"source IP {shown(text)!r}: expected an address or a CIDR range such as 10.0.0.0/8 or fe80::/10"
        ) from error


def _parsed(ip: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _several(texts: list[str], pattern: str) -> ReadPattern:
    found, mapped = set(), ""
    for text in texts:
        try:
            address = ipaddress.ip_address(text)
        except ValueError as error:
            raise _wrong(pattern, f"{shown(text)!r} is no address") from error
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            mapped = text
        else:
            found.add(address)
    oddity = f"peers come from the IPv4 address, so that {shown(mapped)!r} lets nobody in" if mapped else ""
    return ReadPattern(_Several(frozenset(found)), oddity)


def _in_braces(pattern: str) -> list[str]:
    head, brace, inner = pattern[:-1].partition("{")
    if not brace or head[-1:] not in (".", ":") or any(sign in inner for sign in "{.:"):
        raise _wrong(pattern, "a set in braces is the whole last part")
    return [head + one for one in inner.split(",") if one]


def _range_of_v4(pattern: str) -> ReadPattern:
    # RocketMQ ignores empty parts, such as the one after a final point.
    parts = [part.strip() for part in pattern.split(".") if part]
    index, (first, last) = _varying_part(parts, pattern)
    if not index and len(parts) >= _V4_PARTS:
        raise _failing(pattern, "the first part has to be a number, or all are *")
    if len(parts) != _V4_PARTS:
        raise _wrong(pattern, f"an IPv4 pattern has four parts, not {len(parts)}")
    head = parts[:index]
    for part in head[:-1]:
        if not _is_number(part) or int(part) > 0xFF:
            raise _wrong(pattern, f"{shown(part)!r} is no number from 0 to 255")
    odd = next((part for part in head if not _is_number(part) or part != str(int(part)) or int(part) > 0xFF), None)
    if odd is not None:
        return ReadPattern(NONE, f"no address has the part {shown(odd)!r}, so that it lets nobody in")
    return ReadPattern(_Range(4, tuple(map(int, head)), first, last), _oddity(parts[index], parts[index + 1 :]))


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) <= 9


def _range_of_v6(pattern: str) -> ReadPattern:
    given = [part.strip() for part in pattern.split(":")]
    index = next(number for number, part in enumerate(given) if "*" in part or "-" in part)
    rest = given[index + 1 :]
    if not any(given[:index]) and not rest:
        raise _failing(pattern, "a range needs a part in front of it")
    if len(rest) > 1 or (rest and ("-" not in given[index] or rest != ["*"])):
        raise _wrong(pattern, "a range is the last part, or the one before a last *")
    wanted = _V6_PARTS - 1 - len(rest)
    head = ":".join(given[:index])
    # `fe80::1-20` is `fe80::` with a last part. The address parser counts the zeros that `::` omits.
    try:
        filled = ipaddress.IPv6Address(f"{head}{':0' * (1 + len(rest))}")
    except ValueError as error:
        raise _wrong(pattern, f"{shown(head)!r} is no beginning of an IPv6 address") from error
    parts = [int(part, 16) for part in filled.exploded.split(":")][:wanted]
    bounds = _bounds(given[index], 16, 0xFFFF, pattern)
    if bounds is None:
        raise _failing(pattern, "a range that ends with 0 is none")
    if given[index - 1] == "" and bounds[0]:
        # RocketMQ reads the `::` as one part and applies the range to another part. Match no address, because the two
        # readings have none in common.
        return ReadPattern(NONE, "RocketMQ takes the :: before the range for one part; write all parts out")
    return ReadPattern(_Range(6, tuple(parts), *bounds))


def _varying_part(parts: list[str], pattern: str) -> tuple[int, tuple[int, int]]:
    """Return index and bounds of the varying part; index 0 when no part varies."""
    for index, part in enumerate(parts[1:_V4_PARTS], 1):
        if part == "*" or "-" in part:
            bounds = _bounds(part, 10, 0xFF, pattern)
            if bounds is not None:
                return index, bounds
    return 0, (0, 0)


def _bounds(part: str, base: int, most: int, pattern: str) -> tuple[int, int] | None:
    """Return the bounds of a part; None for a range that ends with 0, which RocketMQ ignores."""
    if part == "*":
        return 0, most
    match = _RANGE.fullmatch(part)
    try:
        first, last = (int(match[1], base), int(match[2], base)) if match else (1, 0)
    except ValueError:
        first, last = 1, 0
    if not first <= last <= most:
        raise _wrong(pattern, f"{shown(part)!r} is no range from a lower number to a higher one")
    return (first, last) if last else None


def _oddity(varying: str, rest: list[str]) -> str:
    if varying.count("-") > 1:
        return f"of {shown(varying)!r} the first two numbers count"
    ignored = [part for part in rest if part != "*"]
    if not ignored:
        return ""
    return f"behind the part that varies only * may follow, and {shown(ignored[0])!r} has no effect"


def _failing(pattern: str, why: str) -> FailingPatternError:
    return FailingPatternError(f"address pattern {shown(pattern)!r}: {why}; {_FORMS}")


def _wrong(pattern: str, why: str) -> ConfigError:
    return ConfigError(f"address pattern {shown(pattern)!r}: {why}; {_FORMS}")
