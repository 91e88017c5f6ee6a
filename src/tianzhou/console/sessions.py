"""Sessions of visitors, and counters of wrong passwords. Pure: the time is an argument."""

from __future__ import annotations

import hmac
import ipaddress
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tianzhou.console.accounts import ConsoleRole

MOST_SESSIONS: Final = 10_000
MAX_COUNTED: Final = 10_000
"""Maximum number of counters of wrong passwords."""
TRIES: Final = 5
"""Maximum number of wrong passwords for a name from an address. Then passwords for this name from there are refused."""
TRIES_OF_ADDRESS: Final = 100
"""Maximum number of wrong passwords from an address. Then all passwords from there are refused."""
TRIES_WITHIN_S: Final = 300.0
"""Seconds after which a wrong password no longer counts."""
LONGEST_NAME: Final = 64
"""Number of characters of a name that counters use. Accounts have no longer names."""
_Key = tuple[str, str | None]
"""An address, and a name or None for all names."""


@dataclass(slots=True)
class Visitor:
    """A visitor of the console's pages.

    Attributes:
        name: name of the account; empty without log-in.
        role: role of the account.
        token: token of the session.
        form_token: token that the visitor's forms send back.
        since: begin of the session, in seconds.
        seen: time in seconds when the visitor last opened a page, or acted on one.
    """

    name: str
    role: ConsoleRole
    token: str = field(default="", repr=False)
    form_token: str = field(default="", repr=False)
    since: float = 0.0
    seen: float = 0.0

    @property
    def may_change(self) -> bool:
        """Whether the visitor may change the cluster."""
        return self.role is ConsoleRole.ADMIN


class Sessions:
    """Sessions by token.

    Args:
        idle_s: seconds without use after which a session ends.
        longest_s: seconds after which any session ends.
        make_token: returns a new random token.
    """

    def __init__(self, idle_s: float, longest_s: float, make_token: Callable[[], str]) -> None:
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._make_token = make_token
        self._open: dict[str, Visitor] = {}

    def begin(self, name: str, role: ConsoleRole, now: float) -> Visitor:
        """Begin a session for a visitor with the right password."""
        self._end_old(now)
        while len(self._open) >= MOST_SESSIONS:
            self._open.pop(next(iter(self._open)))
        visitor = Visitor(name, role, self._make_token(), self._make_token(), now, now)
        self._open[visitor.token] = visitor
        return visitor

    def find(self, token: str, now: float, *, used: bool = True) -> Visitor | None:
        """Return the visitor of a token whose session is open; None otherwise.

        Args:
            token: token of the session.
            now: time in seconds.
            used: whether the visitor acts now, which updates `seen`. Requests of an open page itself do not count.
        """
        visitor = self._open.get(token)
        if visitor is None or self._is_over(visitor, now):
            self._open.pop(token, None)
            return None
        if used:
            visitor.seen = now
        return visitor

    def is_open(self, visitor: Visitor, now: float) -> bool:
        """Whether a visitor's session is open. The check does not update `seen`."""
        return self._open.get(visitor.token) is visitor and not self._is_over(visitor, now)

    def end(self, token: str) -> None:
        """End a session."""
        self._open.pop(token, None)

    def end_all_of(self, name: str) -> None:
        """End all sessions of an account."""
        for token in [token for token, visitor in self._open.items() if visitor.name == name]:
            del self._open[token]

    def _is_over(self, visitor: Visitor, now: float) -> bool:
        return now - visitor.seen > self._idle_s or now - visitor.since > self._longest_s

    def _end_old(self, now: float) -> None:
        for token in [token for token, visitor in self._open.items() if self._is_over(visitor, now)]:
            del self._open[token]


class LoginTries:
    """Counters of wrong passwords by name and address.

    `TRIES` wrong passwords for a name lock this name at this address. Other names are not locked, and neither is the
    name at other addresses. `TRIES_OF_ADDRESS` wrong passwords lock the whole address, because they are guesses for
    many names.

    The addresses of a 64-bit IPv6 network count as one, because one machine may use all of them.
    """

    def __init__(self) -> None:
        # Ordered by the last wrong password. The first one is dropped when there are too many.
        self._failed: dict[_Key, deque[float]] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def wait_s(self, name: str, address: str, now: float) -> float:
        """Return the seconds until a password for a name is checked again; 0 when it is checked at once."""
        return max(self._wait_of(key, limit, now) for key, limit in _counted(name, address))

    def failed(self, name: str, address: str, now: float) -> None:
        """Count a wrong password."""
        for key, limit in _counted(name, address):
            times = self._failed.pop(key, None) or deque(maxlen=limit)
            if len(self._failed) >= MAX_COUNTED:
                del self._failed[next(iter(self._failed))]
            times.append(now)
            self._failed[key] = times

    def succeeded(self, name: str, address: str) -> None:
        """Reset the counter of a name at an address. Counters of other names at the address stay."""
        (key, _), _ = _counted(name, address)
        self._failed.pop(key, None)

    def _wait_of(self, key: _Key, limit: int, now: float) -> float:
        recent = [at for at in self._failed.get(key, ()) if now - at < TRIES_WITHIN_S]
        return recent[0] + TRIES_WITHIN_S - now if len(recent) >= limit else 0.0


def _counted(name: str, address: str) -> tuple[tuple[_Key, int], tuple[_Key, int]]:
    """Return both keys of a wrong password with their limits: name and address, address alone."""
    network = network_of(address)
    return ((network, name[:LONGEST_NAME]), TRIES), ((network, None), TRIES_OF_ADDRESS)


def network_of(address: str) -> str:
    """Return an IPv4 address, the 64-bit network of an IPv6 address, or any other text unchanged."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((int(found), 64), strict=False))


def same_token(one: str, other: str) -> bool:
    """Whether two tokens are equal, compared in constant time."""
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())
