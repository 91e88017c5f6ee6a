"""Rules of RocketMQ 4.x: accounts with permissions, and white lists, checked in Apache's order (broker.md §22.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tianzhou.access.addresses import AddressPattern, parse_pattern
from tianzhou.access.plain_config import Account, PlainConfig, parse_permission, parse_resource_permission
from tianzhou.access.requests import AccessDenied, AccessRequest
from tianzhou.access.resources import Permission, PlainNeed
from tianzhou.access.signatures import ACCESS_KEY, is_signed
from tianzhou.escaping import shown
from tianzhou.model.names import RETRY_PREFIX
from tianzhou.wire.codes import ResponseCode

ADMIN_CODES: Final = frozenset({17, 25, 200, 207, 215})
"""Requests that RocketMQ 4.9 leaves to administrators, whatever else the needs say."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Topic of traces, which everybody who has an account may send to."""
_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
_CACHED_ADDRESSES: Final = 4096


class PlainRules:
    """Accounts of RocketMQ 4.x, compiled (`AccessRules`).

    Args:
        configs: of the files, in the order of their reading: an access key counts where it is first.
        needs: what a request needs of an account.

    Raises:
        ConfigError: a pattern or permission cannot be read.
    """

    def __init__(self, configs: Iterable[PlainConfig], needs: Callable[[AccessRequest], PlainNeed]) -> None:
        self._needs = needs
        white: list[AddressPattern] = []
        self._accounts: dict[str, _Compiled] = {}
        for config in configs:
            white += [parse_pattern(pattern) for pattern in config.global_white_remote_addresses]
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
        """These rules never change: other ones take their place."""
        return self

    def secret_of(self, account: str) -> str | None:
        """Secret of an account; None when there is none of that name."""
        found = self._accounts.get(account)
        return None if found is None else found.secret_key

    def is_admin(self, account: str) -> bool:
        """Whether an account, as `check` has returned it, is an administrator's; white-listed peers have none."""
        found = self._accounts.get(account)
        return found is not None and found.admin

    def identify(self, request: AccessRequest) -> str:
        """Account of a request whose signature is right; empty for peers of the global white list.

        Raises:
            AccessDenied: nobody of the accounts has signed it.
        """
        return self._identified(request)[0]

    def check(self, request: AccessRequest) -> str:
        """Account of an allowed request; empty for peers of the global white list (broker.md §22.1).

        Raises:
            AccessDenied: SYSTEM_ERROR with RocketMQ's text.
        """
        access_key, unchecked = self._identified(request)
        if not unchecked:
            self._allow(access_key, self._accounts[access_key], request)
        return access_key

    def check_parts(self, request: AccessRequest, parts: Iterable[AccessRequest]) -> Iterator[None]:
        """See `AccessRules.check_parts`."""
        access_key, unchecked = self._identified(request)
        if not unchecked:
            account = self._accounts[access_key]
            for part in parts:
                self._allow(access_key, account, part)
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

    def _identified(self, request: AccessRequest) -> tuple[str, bool]:
        """Account, and whether its permissions do not matter."""
        if request.account and not request.fields.get(ACCESS_KEY):
            # Who has shown a certificate is known; a white list would only widen what it may.
            if request.account not in self._accounts:
                raise _denied(f"No acl config for {shown(request.account)}")
            return request.account, False
        if self._white.matches(request.ip):
            return "", True
        access_key = request.fields.get(ACCESS_KEY)
        if access_key is None:
            raise _denied("No accessKey is configured")
        account = self._accounts.get(access_key)
        if account is None:
            raise _denied(f"No acl config for {shown(access_key)}")
        if account.white.matches(request.ip):
            return access_key, True
        if not is_signed(request, account.secret_key):
            raise _denied(f"Check signature failed for accessKey={shown(access_key)}")
        return access_key, False


class _Compiled:
    __slots__ = ("_group", "_listed", "_topic", "admin", "secret_key", "white")

    def __init__(self, account: Account) -> None:
        self.secret_key = account.secret_key
        self.admin = account.admin
        self.white = _Addresses([parse_pattern(account.white_remote_address)])
        self._topic = int(parse_permission(account.default_topic_perm))
        self._group = int(parse_permission(account.default_group_perm))
        # Numbers: operations of enumerations cost more than all the rest of a check.
        self._listed = {name: int(owned) for name, owned in map(parse_resource_permission, account.topic_perms)}
        for group, owned in map(parse_resource_permission, account.group_perms):
            self._listed[group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group] = int(owned)

    @property
    def listed(self) -> bool:
        """Whether it has permissions of its own, which bind an administrator, too."""
        return bool(self._listed)

    def may(self, resource: str, needed: int) -> bool:
        """Whether a permission on a resource is among its own."""
        owned = self._listed.get(resource)
        if owned is None:
            owned = self._group if resource.startswith(RETRY_PREFIX) else self._topic
        needed = int(needed)
        if owned & 1:
            return False
        return bool(owned & 12) if needed & 2 else bool(owned & needed)


class _Addresses:
    """Patterns together; what an address matched before is known, for as many addresses as are worth it."""

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
