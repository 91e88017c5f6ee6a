"""Grants: which sends and pulls an account was let through with, so that the next like one costs its signature only.

Of ten thousand sends to a topic by one client, what they need and whether the account may is the same; the signature
is not. A grant is remembered by all that the rules have looked at, and forgotten as soon as the rules change. It never
refuses: what no grant covers is decided by the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tianzhou._hot import HmacStart, begin_hmac, is_hmac
from tianzhou.access.further_topics import SENDS, has_further
from tianzhou.access.requests import AccessRules
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import HOT_CODES

MOST_GRANTS: Final = 16_384
"""Grants that are remembered; above it all are forgotten."""
LONGEST_NAMES: Final = 600
"""Characters of the names of a request, above which no grant is remembered."""
_Key: TypeAlias = "tuple[str | None, ...]"
Covers: TypeAlias = Callable[[str, Command], bool]


class Grants:
    """Grants of one gate.

    Args:
        rules: whose decisions are remembered.
    """

    __slots__ = ("_epoch", "_found", "_rules")

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self._epoch: object = rules.epoch
        self._found: dict[int, dict[_Key, HmacStart]] = {int(code): {} for code in HOT_CODES}

    def of(self, code: int) -> Covers:
        """Check of requests of one code: whether one is like one that was allowed, and signed by the same account.

        The check is called with the peer's address and the request. A request that is not of a hot kind
        (`Command.header`) is not covered.

        Args:
            code: request code, of `HOT_CODES`.
        """
        rules, find, forget = self._rules, self._found[code].get, self._forget

        # The checks of these two are spelled out: they are made for every message.
        def covers_send(ip: str, command: Command) -> bool:
            header, signed = command.header, command.signed
            if header is None or not signed or (rules.epoch is not self._epoch and forget()):
                return False
            start = find((ip, header.access_key, header.topic))
            if start is None or has_further(header.properties, header.batch, command.body):
                return False
            return is_hmac(start, signed, command.body, header.signature or "")

        def covers_pull(ip: str, command: Command) -> bool:
            header, signed = command.header, command.signed
            if header is None or not signed or (rules.epoch is not self._epoch and forget()):
                return False
            start = find((ip, header.access_key, header.topic, header.consumer_group))
            return start is not None and is_hmac(start, signed, command.body, header.signature or "")

        return covers_send if code in SENDS else covers_pull

    def sends_from(self, ip: str) -> Callable[[int, str, str], HmacStart | None]:
        """Look-up of what a peer's sends were allowed with, for as long as no other code runs.

        It is called with code, access key and topic, and returns the state of an HMAC with the secret of the account in
        (`begin_hmac`); None where nothing is remembered. Further topics of a message are not looked at.

        Args:
            ip: the peer's address.
        """
        if self._rules.epoch is not self._epoch:
            self._forget()
        found = self._found

        def start(code: int, account: str, topic: str) -> HmacStart | None:
            return found[code].get((ip, account, topic))

        return start

    def pulls_from(self, ip: str) -> Callable[[str, str, str], HmacStart | None]:
        """As `sends_from`, for a peer's pulls: called with access key, topic and consumer group."""
        if self._rules.epoch is not self._epoch:
            self._forget()
        find = self._found[int(RequestCode.PULL_MESSAGE)].get

        def start(account: str, topic: str, group: str) -> HmacStart | None:
            return find((ip, account, topic, group))

        return start

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
        code = int(command.code)
        key: _Key = (ip, account, header.topic) if code in SENDS else (ip, account, header.topic, header.consumer_group)
        secret = self._rules.secret_of(account)
        if secret is None or sum(len(name) for name in key if name) > LONGEST_NAMES:
            return
        if sum(map(len, self._found.values())) >= MOST_GRANTS:
            self._forget()
        self._found[code][key] = begin_hmac(secret)

    def _forget(self) -> bool:
        for found in self._found.values():
            found.clear()
        self._epoch = self._rules.epoch
        return True
