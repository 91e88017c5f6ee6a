"""Rules of RocketMQ 5.3: the sender is a user, and its policies decide what it may do (broker.md §22.2)."""

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
"""Maximum number of cached decisions. All are dropped when one more arrives."""
LONGEST_NAME: Final = 255
"""Maximum length of a resource's name, in characters. A decision about a longer name is not cached."""

Needs = Callable[[AccessRequest], tuple[Need, ...]]


@dataclass(frozen=True, slots=True)
class AccessSwitches:
    """The enabled checks.

    Attributes:
        authentication: whether a user must sign each request.
        authorization: whether policies restrict users.
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
    """Decisions by users and their policies: the `AccessRules` of RocketMQ 5.3.

    RocketMQ trusts the user name in a request when only `authorizationEnabled` is set, or when the white list of
    authentication contains a code with policies. It also accepts requests without header fields. This class requires a
    signature for every request that policies decide.

    Args:
        switches: the enabled checks.
        needs: returns the resources and actions of a request.

    Attributes:
        epoch: an object that each change replaces (`AccessRules.epoch`).
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
        """Replace the users and policies."""
        before = self._acls
        self._users, self._acls = users, acls
        self._compiled = {name: made for name, made in self._compiled.items() if acls.get(name) is before.get(name)}
        self._decisions = {}
        self.epoch = object()

    def secret_of(self, account: str) -> str | None:
        """Return the password of a user; None when the user does not exist."""
        user = self._users.get(account)
        return None if user is None else user.password

    def identify(self, request: AccessRequest) -> Identity:
        """Return the user who has sent a request, or `NOBODY` where the code needs no signature.

        Raises:
            AccessDenied: no known user has signed the request, code 16.
        """
        user = self._authenticate(request)
        if user is None:
            return NOBODY
        return Identity(
            user.username, RequestProof.SIGNATURE if request.fields.get(ACCESS_KEY) else RequestProof.CERTIFICATE
        )

    def may(self, identity: Identity, request: AccessRequest, *, part_of: int = 0) -> bool:
        """Implement `AccessRules.may`.

        A code that needs no policy (`authorizationWhitelist`) needs none for its message.
        """
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
        """Return the name of the user who sent a request, if the user may make the request.

        Raises:
            AccessDenied: the user is unknown or lacks a permission, code 16.
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
        """Implement `AccessRules.check_parts`."""
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
        """Raise an error unless the policies of a user allow all needs.

        Args:
            username: an authenticated user.
            needs: the needs of its request.
            ip: the peer's address.

        Raises:
            AccessDenied: a policy denies a need, or none allows it; code 16.
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
    """Return the request codes of a white list, which is joined by commas.

    Raises:
        ValueError: a code is not a number.
    """
    codes = [part.strip() for part in text.split(",") if part.strip()]
    for code in codes:
        if not (code.isascii() and code.isdigit() and len(code) <= 9):
            raise ValueError(f"{shown(code)} is no request code; write numbers joined by commas, as in 105,34")
    return frozenset(map(int, codes))
