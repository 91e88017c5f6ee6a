"""Policies of RocketMQ 5.3: a user's entries, and which entry decides about a resource (broker.md §22.2).

Entries that name the resource or a prefix of it decide first, then `Topic:*`, then `*`. Among several entries of one
rank, a denial decides. RocketMQ 5.3.3 sorts the entries of the first rank by a contradictory order: the later entry
wins between a literal name and a prefix, the shorter prefix precedes the longer one, and Allow precedes Deny for one
resource. These rules refuse every request that RocketMQ may refuse (docs/reference/access-matrix.md has the table).
"""

from __future__ import annotations

import enum
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from tianzhou.access.addresses import parse_network
from tianzhou.access.resources import Action, Need, Resource, ResourceType

NO_POLICY: Final = "no matched policies."
DENIED: Final = "the decision is deny."


class Decision(enum.StrEnum):
    """The decision of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.StrEnum):
    """Type of a policy. Entries of `Default` apply when no entry of `Custom` matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Pattern(enum.IntEnum):
    """Kind of the name in an entry."""

    LITERAL = 1
    PREFIX = 2
    ANY = 3


class ResourcePattern(NamedTuple):
    """The resources that an entry applies to. `str` returns its text, such as `Topic:orders*`.

    Attributes:
        type: type of the resources; `Any` means all types.
        pattern: kind of the name.
        name: the name or its prefix; empty for all names.
    """

    type: ResourceType
    pattern: Pattern
    name: str = ""

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return "*"
        return f"{self.type}:{self.name}{'' if self.pattern is Pattern.LITERAL else '*'}"


class PolicyEntry(NamedTuple):
    """An entry of a policy.

    Attributes:
        resource: resources that it applies to.
        actions: actions that it applies to; `All` means all actions.
        source_ips: client addresses and CIDR ranges that it applies to; empty means all addresses.
        decision: whether the actions are allowed.
    """

    resource: ResourcePattern
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...]
    decision: Decision


Policies: TypeAlias = Mapping[PolicyType, tuple[PolicyEntry, ...]]
"""Entries of one user by policy type. A type without entries is absent."""
Acls: TypeAlias = Mapping[str, Policies]
"""Policies by user name. A change creates another mapping."""

EVERYTHING: Final = ResourcePattern(ResourceType.ANY, Pattern.ANY)


def parse_resource(text: str | None) -> ResourcePattern | None:
    """Return the pattern of a text such as `Topic:orders*`; None when the text is invalid.

    RocketMQ cuts a name at its first star, and reads `Any:x` as everything. This function rejects such texts.
    """
    if not text:
        return None
    if text == "*":
        return EVERYTHING
    kind, _, name = text.partition(":")
    found = next((one for one in ResourceType if one.lower() == kind.lower()), None)
    if found is None or not name or "*" in name[:-1]:
        return None
    if found is ResourceType.ANY:
        return EVERYTHING if name == "*" else None
    if name == "*":
        return ResourcePattern(found, Pattern.ANY)
    if name.endswith("*"):
        return ResourcePattern(found, Pattern.PREFIX, name[:-1])
    return ResourcePattern(found, Pattern.LITERAL, name)


def is_source(text: str) -> bool:
    """Whether a text is an address such as `10.1.2.3` or a range such as `10.0.0.0/8`.

    IPv4 addresses in IPv6 notation are rejected. Requests never come from them, so a denial would have no effect.
    """
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None
    return "%" not in text and not mapped


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


class _Matcher:
    """A compiled entry of a policy."""

    __slots__ = ("_actions", "_sources", "denies")

    def __init__(self, entry: PolicyEntry) -> None:
        self.denies = entry.decision is Decision.DENY
        self._actions = None if Action.ALL in entry.actions else frozenset(entry.actions)
        self._sources = [parse_network(text) for text in entry.source_ips]

    def matches(self, actions: tuple[Action, ...], ip: str) -> bool:
        if self._actions is not None and Action.ANY not in actions and self._actions.isdisjoint(actions):
            return False
        if not self._sources or any(source.matches(ip) for source in self._sources):
            return True
        # The peer's address is unknown, so a denial for any address applies.
        return self.denies and not _is_address(ip)


class _Policy:
    """Entries of one policy, indexed by their resources."""

    def __init__(self, entries: Iterable[PolicyEntry]) -> None:
        self._literal: defaultdict[tuple[str, str], list[_Matcher]] = defaultdict(list)
        self._prefixes: defaultdict[str, defaultdict[int, dict[str, list[_Matcher]]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._any: defaultdict[str, list[_Matcher]] = defaultdict(list)
        for entry in entries:
            kind, pattern, name = entry.resource
            if pattern is Pattern.LITERAL:
                found = self._literal[kind.value, name]
            elif pattern is Pattern.PREFIX:
                found = self._prefixes[kind.value][len(name)].setdefault(name, [])
            else:
                found = self._any[kind.value]
            found.append(_Matcher(entry))

    def _named(self, kind: str, name: str) -> Iterator[_Matcher]:
        """Yield the matchers that name a resource or a prefix of it."""
        yield from self._literal.get((kind, name), ())
        for length, prefixes in self._prefixes.get(kind, {}).items():
            if length <= len(name):
                yield from prefixes.get(name[:length], ())

    def _ranks(self, resource: Resource) -> Iterator[Iterable[_Matcher]]:
        """Yield the matchers for a resource, rank by rank. The first rank with a matching matcher decides."""
        kind = resource.type.value
        yield self._named(kind, resource.name)
        yield self._any.get(kind, ())
        if kind != ResourceType.ANY.value:
            yield self._any.get(ResourceType.ANY.value, ())

    def decide(self, need: Need, ip: str) -> bool | None:
        """Return whether a need is allowed; None when no entry matches."""
        for rank in self._ranks(need.resource):
            decisions = [matcher.denies for matcher in rank if matcher.matches(need.actions, ip)]
            if decisions:
                return not any(decisions)
        return None


class UserPolicies:
    """The compiled policies of one user."""

    def __init__(self, policies: Policies) -> None:
        self._ordered = [_Policy(policies[kind]) for kind in PolicyType if policies.get(kind)]

    def refusal(self, need: Need, ip: str) -> str:
        """Return why a need is refused, in RocketMQ's words; empty when it is allowed.

        Args:
            need: a resource, and the actions of which one suffices.
            ip: the peer's address; empty when it is unknown.
        """
        for policy in self._ordered:
            decision = policy.decide(need, ip)
            if decision is not None:
                return "" if decision else DENIED
        return NO_POLICY
