"""Grants: which sends and pulls an account was let through with, so that the next like one costs its signature only.

Of ten thousand sends to a topic by one client, what they need and whether the account may is the same; the signature
is not. A grant is remembered by all that the rules have looked at, and forgotten as soon as the rules change. It never
refuses: what no grant covers is decided by the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from tianzhou.access.further_topics import SENDS, has_further
from tianzhou.access.requests import AccessRules
from tianzhou.access.signatures import HmacStart, begin_hmac, is_hmac
from tianzhou.wire.command import Command
from tianzhou.wire.fields import HOT_CODES

MOST_GRANTS: Final = 16_384
"""Grants that are remembered; above it all are forgotten."""
LONGEST_NAMES: Final = 600
"""Characters of the names of a request, above which no grant is remembered."""
_Names = Callable[[Any], tuple[str | None, ...]]
_SENT: Final[_Names] = attrgetter("access_key", "topic")
_PULLED: Final[_Names] = attrgetter("access_key", "topic", "consumer_group")
NAMES: Final = {code: _SENT if code in SENDS else _PULLED for code in map(int, HOT_CODES)}
"""Attributes of the header that the rules decide by, beside the code and the address, by request code."""


class Grants:
    """Grants of one gate.

    Args:
        rules: whose decisions are remembered.
    """

    __slots__ = ("_epoch", "_found", "_rules")

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self._epoch: object = rules.epoch
        self._found: dict[tuple[str, int, tuple[str | None, ...]], HmacStart] = {}

    def covers(self, ip: str, command: Command) -> bool:
        """Whether a request is like one that the rules have allowed, and signed by the same account.

        Args:
            ip: the peer's address.
            command: the request; one that is not of a hot kind (`Command.header`) is not covered.
        """
        header = command.header
        if header is None or not command.signed:
            return False
        rules = self._rules
        if rules.epoch is not self._epoch:
            self._found.clear()
            self._epoch = rules.epoch
        code = command.code
        start = self._found.get((ip, code, NAMES[code](header)))
        if start is None or (code in SENDS and has_further(header.properties, header.batch, command.body)):
            return False
        return is_hmac(start, command.signed, command.body, header.signature or "")

    def remember(self, ip: str, command: Command, account: str) -> None:
        """Remember that the rules have allowed a request.

        Args:
            ip: the peer's address.
            command: the request.
            account: who has signed it, as the rules say; empty where they asked nobody.
        """
        header = command.header
        if header is None or not command.signed or not account or header.access_key != account:
            return
        names = NAMES[command.code](header)
        secret = self._rules.secret_of(account)
        if secret is None or sum(len(name) for name in names if name) > LONGEST_NAMES:
            return
        if len(self._found) >= MOST_GRANTS:
            self._found.clear()
        self._found[ip, command.code, names] = begin_hmac(secret)
