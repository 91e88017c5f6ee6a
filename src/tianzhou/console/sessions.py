"""Who is logged in, and how often somebody may try: pure tables, time is an argument."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tianzhou.console.accounts import Role

MOST_SESSIONS: Final = 10_000
MOST_ADDRESSES: Final = 10_000
TRIES: Final = 5
"""Wrong passwords of an address, or for a name, before the next is refused unseen."""
TRIES_WITHIN_S: Final = 300.0


@dataclass(slots=True)
class Visitor:
    """Somebody who looks at pages.

    Attributes:
        name: the account; empty where nobody has to log in.
        role: what they may do.
        token: of the session.
        form_token: what their forms send back.
        since: when the session began, in seconds.
        seen: when they last opened a page, or did something on one.
    """

    name: str
    role: Role
    token: str = field(default="", repr=False)
    form_token: str = field(default="", repr=False)
    since: float = 0.0
    seen: float = 0.0

    @property
    def may_change(self) -> bool:
        """Whether actions are open to them."""
        return self.role is Role.ADMIN


class Sessions:
    """Sessions by token.

    Args:
        idle_s: a session nobody uses ends after this time.
        longest_s: and any after this.
        make_token: a text nobody can guess.
    """

    def __init__(self, idle_s: float, longest_s: float, make_token: Callable[[], str]) -> None:
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._make_token = make_token
        self._open: dict[str, Visitor] = {}

    def begin(self, name: str, role: Role, now: float) -> Visitor:
        """A session of somebody whose password was right."""
        self._end_old(now)
        while len(self._open) >= MOST_SESSIONS:
            self._open.pop(next(iter(self._open)))
        visitor = Visitor(name, role, self._make_token(), self._make_token(), now, now)
        self._open[visitor.token] = visitor
        return visitor

    def find(self, token: str, now: float, *, used: bool = True) -> Visitor | None:
        """The visitor of a token that is still good.

        Args:
            token: of the session.
            now: the time, in seconds.
            used: whether somebody does something now, who counts as seen; an open page asks by itself as well.
        """
        visitor = self._open.get(token)
        if visitor is None or self._is_over(visitor, now):
            self._open.pop(token, None)
            return None
        if used:
            visitor.seen = now
        return visitor

    def is_open(self, visitor: Visitor, now: float) -> bool:
        """Whether a visitor's session is still good, without them counting as seen."""
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


class Tries:
    """Wrong passwords by address and by name; whoever has had too many waits."""

    def __init__(self) -> None:
        self._failed: dict[str, list[float]] = {}

    def wait_s(self, keys: tuple[str, ...], now: float) -> float:
        """Seconds until the next try is looked at; 0 for at once."""
        return max((self._wait_of(key, now) for key in keys), default=0.0)

    def failed(self, keys: tuple[str, ...], now: float) -> None:
        """Count a wrong password."""
        for key in keys:
            if key not in self._failed and len(self._failed) >= MOST_ADDRESSES:
                self._failed.pop(next(iter(self._failed)))
            self._failed[key] = [*self._recent(key, now), now][-TRIES:]

    def succeeded(self, keys: tuple[str, ...]) -> None:
        """Forget the wrong ones."""
        for key in keys:
            self._failed.pop(key, None)

    def _recent(self, key: str, now: float) -> list[float]:
        return [at for at in self._failed.get(key, ()) if now - at < TRIES_WITHIN_S]

    def _wait_of(self, key: str, now: float) -> float:
        recent = self._recent(key, now)
        return recent[0] + TRIES_WITHIN_S - now if len(recent) >= TRIES else 0.0


def same_token(one: str, other: str) -> bool:
    """Whether two tokens are equal, compared in constant time."""
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())
