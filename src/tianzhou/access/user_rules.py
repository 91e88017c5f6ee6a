"""Rules of RocketMQ 5.3: who asks is a user, and may do what its policies allow (broker.md §22.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tianzhou.access.policies import NO_POLICY, Acls, UserPolicies
from tianzhou.access.requests import NOBODY, AccessDenied, AccessRequest, Identity, RequestProof
from tianzhou.access.resources import Need
from tianzhou.access.signatures import ACCESS_KEY
from tianzhou.access.users import User, Users, UserStatus, authenticated
from tianzhou.escaping import shown
from tianzhou.wire.codes import ResponseCode

MOST_DECISIONS: Final = 16_384
"""Decisions that are remembered; above it all are forgotten."""
LONGEST_NAME: Final = 255
"""Characters of a resource's name, above which a decision about it is not remembered."""

Needs = Callable[[AccessRequest], tuple[Need, ...]]


@dataclass(frozen=True, slots=True)
class AccessSwitches:
    """What is checked at all.

    Attributes:
        authentication: requests have to be signed by a user.
        authorization: users may do only what policies allow.
        unsigned_codes: request codes that need no signature (`authenticationWhitelist`).
        unrestricted_codes: request codes that need no policy (`authorizationWhitelist`).
    """

    authentication: bool = False
    authorization: bool = False
    unsigned_codes: frozenset[int] = frozenset()
    unrestricted_codes: frozenset[int] = frozenset()

    @property
    def any(self) -> bool:
        """Whether anything is checked."""
        return self.authentication or self.authorization


class UserRules:
    """Decides about requests by users and their policies; `AccessRules` of RocketMQ 5.3.

    RocketMQ believes whatever user a request names where only `authorizationEnabled` is set, or where the white list
    of authentication has a code that policies are for, and lets requests without header fields pass. Here whatever
    policies decide has to be signed.

    Args:
        switches: what is checked.
        needs: resources and actions of a request.

    Attributes:
        epoch: another object after each change (`AccessRules.epoch`).
    """

    def __init__(self, switches: AccessSwitches, needs: Needs) -> None:
        self.switches = switches
        self._needs = needs
        self._users: Users = MappingProxyType({})
        self._acls: Acls = MappingProxyType({})
        self._compiled: dict[str, UserPolicies] = {}
        self._decisions: dict[tuple[str, str, Need], str] = {}
        self.epoch: object = object()

    def replace(self, users: Users, acls: Acls) -> None:
        """Decide by other users and policies from now on."""
        before = self._acls
        self._users, self._acls = users, acls
        self._compiled = {name: made for name, made in self._compiled.items() if acls.get(name) is before.get(name)}
        self._decisions = {}
        self.epoch = object()

    def secret_of(self, account: str) -> str | None:
        """Password of a user; None when there is none of that name."""
        user = self._users.get(account)
        return None if user is None else user.password

    def identify(self, request: AccessRequest) -> Identity:
        """Return the user who has sent a request, or `NOBODY` where the code needs no signature.

        Raises:
            AccessDenied: the request is not signed by a known user, code 16.
        """
        user = self._authenticate(request)
        if user is None:
            return NOBODY
        return Identity(
            user.username, RequestProof.SIGNATURE if request.fields.get(ACCESS_KEY) else RequestProof.CERTIFICATE
        )

    def may(self, identity: Identity, request: AccessRequest, *, part_of: int = 0) -> bool:
        """See `AccessRules.may`: a code that needs no policy (`authorizationWhitelist`) needs none for its message."""
        if identity.proof is RequestProof.NONE:
            # Only codes without authentication and policies are served to peers that name no user.
            return bool(part_of) or not self.switches.any
        user = self._users.get(identity.account)
        if user is None or user.status is not UserStatus.ENABLE:
            return False
        unrestricted = not self.switches.authorization or part_of in self.switches.unrestricted_codes
        if unrestricted or user.is_super:
            return True
        try:
            self.authorize(user.username, self._needs(request), request.ip)
        except AccessDenied:
            return False
        return True

    def check(self, request: AccessRequest) -> str:
        """Return the name of the user who has sent a request, when it may do all that the request needs.

        Raises:
            AccessDenied: the user is not known or may not, code 16.
        """
        user = self._authenticate(request)
        if not self._restricts(request):
            return "" if user is None else user.username
        if user is None:
            raise AccessDenied(ResponseCode.NO_PERMISSION, "username cannot be null.")
        if not user.is_super:
            self.authorize(user.username, self._needs(request), request.ip)
        return user.username

    def check_parts(self, request: AccessRequest, parts: Iterable[AccessRequest]) -> Iterator[None]:
        """See `AccessRules.check_parts`."""
        user = self._authenticate(request)
        if not self._restricts(request):
            return
        if user is None:
            raise AccessDenied(ResponseCode.NO_PERMISSION, "username cannot be null.")
        if not user.is_super:
            for part in parts:
                self.authorize(user.username, self._needs(part), request.ip)
                yield

    def is_admin(self, account: str) -> bool:
        """Whether an account is an enabled super user."""
        user = self._users.get(account)
        return user is not None and user.is_super

    def authorize(self, username: str, needs: tuple[Need, ...], ip: str) -> None:
        """Return when the policies of a user allow all needs.

        Args:
            username: a user that has been identified.
            needs: what it wants.
            ip: where from.

        Raises:
            AccessDenied: they do not, code 16.
        """
        decisions = self._decisions
        for need in needs:
            refusal = decisions.get((username, ip, need))
            if refusal is None:
                refusal = self._decide(username, need, ip)
            if refusal and not self._is_allowed_instead(username, need, ip):
                raise AccessDenied(
                    ResponseCode.NO_PERMISSION,
                    f"User:{shown(username)} has no permission to access {shown(str(need.resource))} from {ip}, "
                    f"{refusal}",
                )

    def _is_allowed_instead(self, username: str, need: Need, ip: str) -> bool:
        other = need.instead
        while other is not None:
            if not self._decide(username, other, ip):
                return True
            other = other.instead
        return False

    def _decide(self, username: str, need: Need, ip: str) -> str:
        policies = self._compiled.get(username)
        if policies is None:
            acl = self._acls.get(username)
            if acl is None:
                return NO_POLICY
            policies = self._compiled[username] = UserPolicies(acl)
        refusal = policies.refusal(need, ip)
        if len(need.resource.name) <= LONGEST_NAME:
            if len(self._decisions) >= MOST_DECISIONS:
                self._decisions.clear()
            self._decisions[username, ip, need] = refusal
        return refusal

    def _restricts(self, request: AccessRequest) -> bool:
        return self.switches.authorization and request.code not in self.switches.unrestricted_codes

    def _authenticate(self, request: AccessRequest) -> User | None:
        switches = self.switches
        if (switches.authentication and request.code not in switches.unsigned_codes) or self._restricts(request):
            return authenticated(self._users, request)
        return None


def read_codes(text: str) -> frozenset[int]:
    """Request codes of a white list, joined by commas.

    Raises:
        ValueError: one is no number.
    """
    codes = [part.strip() for part in text.split(",") if part.strip()]
    for code in codes:
        if not (code.isascii() and code.isdigit() and len(code) <= 9):
            raise ValueError(f"{shown(code)} is no request code; write numbers joined by commas, as in 105,34")
    return frozenset(map(int, codes))
