"""Access control at the door of a server: no request reaches its handler without passing it (docs/adr/0017)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from typing import Any, Final, TypeVar

from tianzhou._hot import HmacStart
from tianzhou.access.body_names import parts
from tianzhou.access.grants import Grants
from tianzhou.access.requests import NOBODY, AccessDenied, AccessRequest, AccessRules, Identity
from tianzhou.access.signatures import ACCESS_KEY
from tianzhou.escaping import shown
from tianzhou.limits import Refusals
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.error_codes import failure
from tianzhou.remoting.turns import Pace, Turns
from tianzhou.repeats import Once
from tianzhou.wire.codes import FLAG_ONEWAY, RequestCode, request_name
from tianzhou.wire.command import Command
from tianzhou.wire.fields import HOT_CODES, HotFields

COUNTED: Final = "access"
"""The name that refusals are counted under: `refused_access` in the runtime figures."""

ANSWERED_ONE_WAY: Final = frozenset({int(RequestCode.END_TRANSACTION)})
"""Codes whose refusal is sent to the peer although the request is one-way: a transaction that is not ended is a message
that is not delivered. Clients log an answer that they have not waited for."""
_IDENTITY: Final = "access.identity"
_NEVER: Final = object()
Reply = TypeVar("Reply")
Serve = Callable[[Connection, Command], Reply]
_log = logging.getLogger(__name__)


def access_request(connection: Connection, command: Command) -> AccessRequest:
    """What access control looks at, of a request that a connection has sent."""
    return AccessRequest(
        command.code,
        command.fields if command.header is None else HotFields(command.code, command.header),
        command.body,
        command.version,
        connection.verified_ip,
        connection.account,
        command.signed,
        getattr(command.body, "value", None),
    )


class AccessGate:
    """Lets requests through to handlers as the rules allow.

    Args:
        rules: decide.
        refusals: counts what was refused.
        by_body: request codes whose bodies say what they need. At the door these are only looked at for who has
            signed them; whether that account may is decided behind `inner`, when the body has been decoded.
    """

    def __init__(self, rules: AccessRules, refusals: Refusals, by_body: frozenset[int] = frozenset()) -> None:
        self._rules = rules
        self._refusals = refusals
        self._by_body = by_body
        self._once = Once()
        self._grants = Grants(rules)

    def door(self, code: int, handle: Serve[Reply]) -> Serve[Reply]:
        """A handler that sees only requests of accounts."""
        if code == RequestCode.HEART_BEAT:
            return self._behind(self._remember, handle)
        if code in self._by_body:
            return self._behind(self._identify, handle)
        return self._behind_grants(code, handle) if code in HOT_CODES else self._behind(self._check, handle)

    def guarded(self, serve: Serve[Reply]) -> Serve[Reply]:
        """What serves all requests of a port, of which none is decided by its body."""
        return self._behind(self._check, serve)

    def signed(self, serve: Serve[Reply]) -> Serve[Reply]:
        """What serves requests of every account, whatever they are for."""
        return self._behind(self._identify, serve)

    @staticmethod
    def account_of(connection: Connection) -> str:
        """Account that a connection's last heartbeat was of; empty for a peer that need not say who it is."""
        identity: Identity = connection.attributes.get(_IDENTITY, NOBODY)
        return identity.account

    def allow(self, request: AccessRequest) -> None:
        """Return when a request of another protocol's is allowed.

        Raises:
            AccessDenied: it is not.
        """
        self._rules.check(request)

    def may_send(self, connection: Connection, topic: str) -> bool:
        """Whether the account that a connection's last heartbeat was of may send to a topic."""
        return self._may(connection.attributes.get(_IDENTITY, NOBODY), RequestCode.SEND_MESSAGE, connection, topic)

    def sends_from(self, connection: Connection) -> Callable[[int, str, str], HmacStart | None]:
        """See `Grants.sends_from`."""
        return self._grants.sends_from(connection.verified_ip)

    def pulls_from(self, connection: Connection) -> Callable[[str, str, str], HmacStart | None]:
        """See `Grants.pulls_from`."""
        return self._grants.pulls_from(connection.verified_ip)

    def may_read(self, connection: Connection, command: Command, topic: str) -> bool:
        """Whether the sender of a request may read a topic that the request does not name."""
        return self._may_too(connection, command, RequestCode.QUERY_MESSAGE, topic)

    def may_view(self, connection: Connection, command: Command, topic: str) -> bool:
        """Whether the sender of a request may view single messages of a topic that the request does not name."""
        return self._may_too(connection, command, RequestCode.VIEW_MESSAGE_BY_ID, topic)

    def may_write(self, connection: Connection, command: Command, topic: str) -> bool:
        """Whether the sender of a request may send to a topic that the request does not name."""
        return self._may_too(connection, command, RequestCode.SEND_MESSAGE, topic)

    def _may_too(self, connection: Connection, command: Command, code: int, topic: str) -> bool:
        identity = self._identify(connection, command)
        return self._may(identity, code, connection, topic, part_of=int(command.code))

    def _may(self, identity: Identity, code: int, connection: Connection, topic: str, *, part_of: int = 0) -> bool:
        request = AccessRequest(code, {"topic": topic}, ip=connection.verified_ip, account=identity.account)
        return self._rules.may(identity, request, part_of=part_of)

    def check_account(self, code: int, ip: str, account: str) -> None:
        """Return when an account that nobody has to sign for may make a request that names nothing.

        Args:
            code: of the request.
            ip: where it comes from.
            account: that of a certificate.

        Raises:
            AccessDenied: it may not; counted.
        """
        try:
            self._rules.check(AccessRequest(code, {}, ip=ip, account=account))
        except AccessDenied:
            self._refusals.counts[COUNTED] += 1
            raise

    def inner(self, code: int, handle: Serve[Any], turns: Turns | None = None) -> Serve[Any]:
        """A handler that sees only requests whose decoded bodies name nothing the account may not use.

        Args:
            code: request code.
            handle: the handler.
            turns: allowance that large bodies, which have been decoded before, are looked at in; None looks at once.
        """
        if code not in self._by_body:
            return handle
        at_once = self._behind(self._check, handle)
        if turns is None:
            return at_once

        @wraps(handle)
        def serve(connection: Connection, command: Command) -> Any:
            if not hasattr(command.body, "value"):
                return at_once(connection, command)
            return self._in_turns(turns, connection, command, handle)

        return serve

    async def _in_turns(self, turns: Turns, connection: Connection, command: Command, handle: Serve[Any]) -> Any:
        request = access_request(connection, command)
        try:
            async with Pace(turns, behind=False) as pace:
                epoch: object = _NEVER
                while epoch != self._rules.epoch:  # rules that change in between count
                    epoch = self._rules.epoch
                    for _ in self._rules.check_parts(request, parts(request)):
                        await pace.rest()
        except AccessDenied as error:
            self.refused(connection, command, error)
            raise
        reply = handle(connection, command)
        if isinstance(reply, Generator):
            reply = turns.sliced(reply)
        return await reply if isinstance(reply, Awaitable) else reply

    def _check(self, connection: Connection, command: Command) -> None:
        self._rules.check(access_request(connection, command))

    def _identify(self, connection: Connection, command: Command) -> Identity:
        return self._rules.identify(access_request(connection, command))

    def _remember(self, connection: Connection, command: Command) -> None:
        connection.attributes[_IDENTITY] = self._identify(connection, command)

    def _behind_grants(self, code: int, handle: Serve[Reply]) -> Serve[Reply]:
        covers = self._grants.of(code)

        def check(connection: Connection, command: Command) -> None:
            account = self._rules.check(access_request(connection, command))
            self._grants.remember(connection.verified_ip, command, account)

        checked = self._behind(check, handle)

        @wraps(handle)
        def serve(connection: Connection, command: Command) -> Reply:
            return (handle if covers(connection.verified_ip, command) else checked)(connection, command)

        return serve

    def _behind(self, check: Callable[[Connection, Command], object], handle: Serve[Reply]) -> Serve[Reply]:
        @wraps(handle)
        def serve(connection: Connection, command: Command) -> Reply:
            try:
                check(connection, command)
            except AccessDenied as error:
                self.refused(connection, command, error)
                raise
            return handle(connection, command)

        return serve

    def refused(self, connection: Connection, command: Command, error: AccessDenied, about: str = "") -> None:
        """Count and log a refusal, and send it for the one-way requests of `ANSWERED_ONE_WAY`.

        Args:
            connection: of the peer.
            command: the refused request.
            error: the refusal.
            about: topic of the message that the request is about, where a handler has refused it.
        """
        self._refusals.counts[COUNTED] += 1
        code, signs = int(command.code), access_request(connection, command).fields.get(ACCESS_KEY, "")
        # Only names of accounts and topics that exist: a peer that makes names up writes one line.
        known = signs if self._rules.secret_of(signs) is not None else ""
        if self._once.first((connection.verified_ip, code, known, about)):
            _log.warning(
                "refused %s (%d) of %s: %s", request_name(command.code), command.code, connection, shown(error.remark)
            )
        if code in ANSWERED_ONE_WAY and command.flag & FLAG_ONEWAY and not connection.closed:
            connection.send(failure(command, error))
