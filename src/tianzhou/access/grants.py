"""Grants: cached permissions of an account for sends and pulls, so that a similar request needs only a signature check.

When one client sends ten thousand messages to a topic, the needs and the permissions are the same each time. Only the
signature differs. A grant is stored under everything that the rules have read, and all grants are dropped when the
rules change. A grant never refuses a request: the rules decide when no grant covers it.
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
"""Maximum number of stored grants. All are dropped when one more arrives."""
LONGEST_NAMES: Final = 600
"""Maximum total length of a request's names, in characters. A longer request gets no grant."""
_Key: TypeAlias = "tuple[str | None, ...]"
Covers: TypeAlias = Callable[[str, Command], bool]


class Grants:
    """Grants of one access gate.

    Args:
        rules: the rules whose decisions are stored.
    """

    __slots__ = ("_epoch", "_found", "_rules")

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self._epoch: object = rules.epoch
        self._found: dict[int, dict[_Key, HmacStart]] = {int(code): {} for code in HOT_CODES}

    def of(self, code: int) -> Covers:
        """Return a check for one request code: whether a request resembles an allowed one and has the same signer.

        The check takes the peer's address and the request. It covers only requests of a hot kind (`Command.header`).

        Args:
            code: a request code of `HOT_CODES`.
        """
        rules, find, forget = self._rules, self._found[code].get, self._forget

        # Both checks are written out for speed, because they run for every message.
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
        """Return a look-up of a peer's grants for sends. It is valid until other code runs.

        The look-up takes code, access key and topic. It returns the state of an HMAC keyed with the account's secret
        (`begin_hmac`); None without a grant. It does not check the further topics of a message.

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
        """Return a look-up of a peer's grants for pulls, as `sends_from`.

        It takes access key, topic and consumer group.
        """
        if self._rules.epoch is not self._epoch:
            self._forget()
        find = self._found[int(RequestCode.PULL_MESSAGE)].get

        def start(account: str, topic: str, group: str) -> HmacStart | None:
            return find((ip, account, topic, group))

        return start

    def remember(self, ip: str, command: Command, account: str) -> None:
        """Store a grant for a request that the rules have allowed.

        Args:
            ip: the peer's address.
            command: the request.
            account: the verified signer; empty when the rules required none.
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
