"""Access control in front of a server's handlers: every request passes it first (docs/adr/0017)."""

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
"""Name of the refusal counter: `refused_access` in the runtime figures."""

ANSWERED_ONE_WAY: Final = frozenset({int(RequestCode.END_TRANSACTION)})
"""Codes whose refusal is sent to the peer although the request is one-way. A transaction that is not ended is a message
that is not delivered. Clients log a reply that no caller waits for."""
_IDENTITY: Final = "access.identity"
_NEVER: Final = object()
Reply = TypeVar("Reply")
Serve = Callable[[Connection, Command], Reply]
_log = logging.getLogger(__name__)


def access_request(connection: Connection, command: Command) -> AccessRequest:
    """Return the parts of a connection's request that access control checks."""
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
    """Gate that passes a request to its handler only if the rules allow it.

    Args:
        rules: decide on each request.
        refusals: counts refused requests.
        by_body: request codes whose required resources are in the body. The gate only verifies the signature of such a
            request before decoding; `inner` checks the permissions once the body is decoded.
    """

    def __init__(self, rules: AccessRules, refusals: Refusals, by_body: frozenset[int] = frozenset()) -> None:
        self._rules = rules
        self._refusals = refusals
        self._by_body = by_body
        self._once = Once()
        self._grants = Grants(rules)

    def door(self, code: int, handle: Serve[Reply]) -> Serve[Reply]:
        """Return a handler that serves only authenticated and allowed requests."""
        if code == RequestCode.HEART_BEAT:
            return self._behind(self._remember, handle)
        if code in self._by_body:
            return self._behind(self._identify, handle)
        return self._behind_grants(code, handle) if code in HOT_CODES else self._behind(self._check, handle)

    def guarded(self, serve: Serve[Reply]) -> Serve[Reply]:
        """Return a handler that checks every request of a port; no request code there is in `by_body`."""
        return self._behind(self._check, serve)

    def signed(self, serve: Serve[Reply]) -> Serve[Reply]:
        """Return a handler that serves requests of every authenticated account, without a permission check."""
        return self._behind(self._identify, serve)

    @staticmethod
    def account_of(connection: Connection) -> str:
        """Return the account of a connection's last heartbeat; empty for a peer that need not authenticate."""
        identity: Identity = connection.attributes.get(_IDENTITY, NOBODY)
        return identity.account

    def allow(self, request: AccessRequest) -> None:
        """Check a request of another protocol.

        Raises:
            AccessDenied: the rules do not allow the request.
        """
        self._rules.check(request)

    def may_send(self, connection: Connection, topic: str) -> bool:
        """Whether the account of a connection's last heartbeat may send to a topic."""
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
        """Check whether an account without a signature may make a request that names no resource.

        Args:
            code: request code.
            ip: address of the peer.
            account: account of the peer's certificate.

        Raises:
            AccessDenied: the account may not make the request; the refusal is counted.
        """
        try:
            self._rules.check(AccessRequest(code, {}, ip=ip, account=account))
        except AccessDenied:
            self._refusals.counts[COUNTED] += 1
            raise

    def inner(self, code: int, handle: Serve[Any], turns: Turns | None = None) -> Serve[Any]:
        """Return a handler that serves a request only if the account may use all resources in its decoded body.

        Args:
            code: request code.
            handle: the handler.
            turns: time allowance for checking large bodies that are decoded already; None checks them at once.
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
                while epoch != self._rules.epoch:  # check again if the rules changed during the check
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
        """Count and log a refusal. Send it to the peer for the one-way requests of `ANSWERED_ONE_WAY`.

        Args:
            connection: connection of the peer.
            command: the refused request.
            error: the refusal.
            about: topic of the message concerned, where a handler has refused the request.
        """
        self._refusals.counts[COUNTED] += 1
        code, signs = int(command.code), access_request(connection, command).fields.get(ACCESS_KEY, "")
        # Only existing accounts and topics enter the log key, so a peer that invents names writes one line.
        known = signs if self._rules.secret_of(signs) is not None else ""
        if self._once.first((connection.verified_ip, code, known, about)):
            _log.warning(
                "refused %s (%d) of %s: %s", request_name(command.code), command.code, connection, shown(error.remark)
            )
        if code in ANSWERED_ONE_WAY and command.flag & FLAG_ONEWAY and not connection.closed:
            connection.send(failure(command, error))
