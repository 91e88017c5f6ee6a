"""Rules of RocketMQ 4.x: accounts with permissions, and white lists, checked in Apache's order (broker.md §22.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tianzhou.access.addresses import AddressPattern, read_pattern
from tianzhou.access.plain_config import Account, PlainConfig, parse_permission, parse_resource_permission
from tianzhou.access.requests import NOBODY, AccessDenied, AccessRequest, Identity, RequestProof
from tianzhou.access.resources import Permission, PlainNeed
from tianzhou.access.signatures import ACCESS_KEY, is_signed
from tianzhou.escaping import shown
from tianzhou.model.names import RETRY_PREFIX
from tianzhou.wire.codes import ResponseCode

ADMIN_CODES: Final = frozenset({17, 25, 200, 207, 215})
"""Request codes that RocketMQ 4.9 reserves for administrators, whatever the needs are."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Topic of traces. Every account may send to it."""
_BOUND: Final = frozenset({RequestProof.SIGNATURE, RequestProof.CERTIFICATE})
"""Proofs of an account whose permissions are checked. Requests from white-listed addresses need no permissions."""
_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
_CACHED_ADDRESSES: Final = 4096


class PlainRules:
    """Compiled accounts of RocketMQ 4.x (an implementation of `AccessRules`).

    Args:
        configs: contents of the files in reading order; the first listing of an access key counts.
        needs: returns the needs of a request from an account.

    Raises:
        ConfigError: a pattern or permission is invalid.
    """

    def __init__(self, configs: Iterable[PlainConfig], needs: Callable[[AccessRequest], PlainNeed]) -> None:
        self._needs = needs
        white: list[AddressPattern] = []
        self._accounts: dict[str, _Compiled] = {}
        for config in configs:
            white += [read_pattern(pattern).addresses for pattern in config.global_white_remote_addresses]
            for account in config.accounts:
                if account.access_key not in self._accounts:
                    self._accounts[account.access_key] = _Compiled(account)
        self._white = _Addresses(white)

    @property
    def accounts(self) -> frozenset[str]:
        """Access keys of all accounts."""
        return frozenset(self._accounts)

    @property
    def epoch(self) -> object:
        """The rules object itself. It never changes; a reload creates another object."""
        return self

    def secret_of(self, account: str) -> str | None:
        """Return the secret key of an account; None when the account does not exist."""
        found = self._accounts.get(account)
        return None if found is None else found.secret_key

    def is_admin(self, account: str) -> bool:
        """Whether an account that `check` has returned is an administrator. White-listed peers have no account."""
        found = self._accounts.get(account)
        return found is not None and found.admin

    def identify(self, request: AccessRequest) -> Identity:
        """Return the account of a request, or `NOBODY` for peers of the global white list.

        Raises:
            AccessDenied: the request names no account, or does not have the signature of its account.
        """
        if request.account and not request.fields.get(ACCESS_KEY):
            # The certificate names the account. A white list would only add permissions.
            if request.account not in self._accounts:
                raise _denied(f"No acl config for {shown(request.account)}")
            return Identity(request.account, RequestProof.CERTIFICATE)
        if self._white.matches(request.ip):
            return NOBODY
        access_key = request.fields.get(ACCESS_KEY)
        if access_key is None:
            raise _denied("No accessKey is configured")
        account = self._accounts.get(access_key)
        if account is None:
            raise _denied(f"No acl config for {shown(access_key)}")
        if account.white.matches(request.ip):
            return Identity(access_key, RequestProof.ADDRESS)
        if not is_signed(request, account.secret_key):
            raise _denied(f"Check signature failed for accessKey={shown(access_key)}")
        return Identity(access_key, RequestProof.SIGNATURE)

    def may(self, identity: Identity, request: AccessRequest, *, part_of: int = 0) -> bool:
        """Implement `AccessRules.may`.

        An address in a present white list is allowed everything, as with its own requests.
        """
        account = self._accounts.get(identity.account)
        if identity.proof is not RequestProof.CERTIFICATE:
            if self._white.matches(request.ip) or (account is not None and account.white.matches(request.ip)):
                return True
            if identity.proof is not RequestProof.SIGNATURE:
                return False  # the white list that admitted the peer has changed
        if account is None:
            return False
        try:
            self._allow(identity.account, account, request)
        except AccessDenied:
            return False
        return True

    def check(self, request: AccessRequest) -> str:
        """Return the account of an allowed request; empty for peers of the global white list (broker.md §22.1).

        Raises:
            AccessDenied: SYSTEM_ERROR with RocketMQ's text.
        """
        name, proof = self.identify(request)
        if proof in _BOUND:
            self._allow(name, self._accounts[name], request)
        return name

    def check_parts(self, request: AccessRequest, parts: Iterable[AccessRequest]) -> Iterator[None]:
        """Implement `AccessRules.check_parts`."""
        name, proof = self.identify(request)
        if proof in _BOUND:
            account = self._accounts[name]
            for part in parts:
                self._allow(name, account, part)
                yield

    def _allow(self, access_key: str, account: _Compiled, request: AccessRequest) -> None:
        need = self._needs(request)
        permissions = need.permissions
        if not account.admin and (need.admin or request.code in ADMIN_CODES):
            raise _denied(f"Need admin permission for request code={request.code}, but accessKey={access_key} is not")
        if account.admin and (need.unless_admin or not account.listed):
            return
        for resource, needed in permissions.items():
            if not account.may(resource, needed) and not (resource == TRACE_TOPIC and needed == Permission.PUB):
                raise _denied(f"No default permission for {_printed(resource)}")


class _Compiled:
    __slots__ = ("_group", "_listed", "_topic", "admin", "secret_key", "white")

    def __init__(self, account: Account) -> None:
        self.secret_key = account.secret_key
        self.admin = account.admin
        self.white = _Addresses([read_pattern(account.white_remote_address).addresses])
        self._topic = int(parse_permission(account.default_topic_perm))
        self._group = int(parse_permission(account.default_group_perm))
        # Permissions are stored as numbers, because operations on enums would cost more than the rest of the check.
        # As RocketMQ does, read a group's name literally, and let topics overwrite groups.
        groups = map(parse_resource_permission, account.group_perms)
        self._listed = {RETRY_PREFIX + name: int(owned) for name, owned in groups}
        self._listed |= {name: int(owned) for name, owned in map(parse_resource_permission, account.topic_perms)}

    @property
    def listed(self) -> bool:
        """Whether the account has permissions on single resources, which restrict an administrator, too."""
        return bool(self._listed)

    def may(self, resource: str, needed: int) -> bool:
        """Whether the account has a permission on a resource."""
        owned = self._listed.get(resource)
        if owned is None:
            owned = self._group if resource.startswith(RETRY_PREFIX) else self._topic
        needed = int(needed)
        if owned & 1:
            return False
        return bool(owned & 12) if needed & 2 else bool(owned & needed)


class _Addresses:
    """A set of patterns, which caches the results for recent addresses."""

    def __init__(self, patterns: list[AddressPattern]) -> None:
        self._patterns = patterns
        self._known: dict[str, bool] = {}

    def matches(self, ip: str) -> bool:
        known = self._known.get(ip)
        if known is None:
            known = any(pattern.matches(ip) for pattern in self._patterns)
            if len(self._known) >= _CACHED_ADDRESSES:
                self._known.clear()
            self._known[ip] = known
        return known


def _printed(resource: str) -> str:
    if resource.startswith(RETRY_PREFIX):
        return f"group:{shown(resource[len(RETRY_PREFIX) :])}"
    return f"topic:{shown(resource)}"


def _denied(text: str) -> AccessDenied:
    return AccessDenied(ResponseCode.SYSTEM_ERROR, _EXCEPTION + text)
