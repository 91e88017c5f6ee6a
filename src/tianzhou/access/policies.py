"""Policies of RocketMQ 5.3: entries of a user, and which of them decides about a resource (broker.md §22.2).

Entries that name the resource or a prefix of it decide first, else `Topic:*`, else `*`; of several in one of these
ranks, one that denies. RocketMQ 5.3.3 sorts the entries of the first rank by an order that contradicts itself: of a
literal name and a prefix the later entry wins, the shorter prefix goes before the longer one, and for one resource
Allow goes before Deny. These rules refuse every request that RocketMQ may refuse (docs/reference/access-matrix.md has
the table).
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
    """Decision of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.StrEnum):
    """Type of a policy; entries of `Default` count where none of `Custom` matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Pattern(enum.IntEnum):
    """Kind of a name in an entry."""

    LITERAL = 1
    PREFIX = 2
    ANY = 3


class ResourcePattern(NamedTuple):
    """Resources that an entry is for; `str` gives its text, such as `Topic:orders*`.

    Attributes:
        type: their type; `Any` stands for all.
        pattern: what the name is.
        name: the name or its beginning; empty for all.
    """

    type: ResourceType
    pattern: Pattern
    name: str = ""

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return "*"
        return f"{self.type}:{self.name}{'' if self.pattern is Pattern.LITERAL else '*'}"


class PolicyEntry(NamedTuple):
    """Entry of a policy.

    Attributes:
        resource: resources it is for.
        actions: actions it is for; `All` for every one.
        source_ips: addresses and CIDR ranges it is for; none for all.
        decision: whether they are allowed.
    """

    resource: ResourcePattern
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...]
    decision: Decision


Policies: TypeAlias = Mapping[PolicyType, tuple[PolicyEntry, ...]]
"""Entries of one user by the type of their policy; a type without entries is not there."""
Acls: TypeAlias = Mapping[str, Policies]
"""Policies by the name of their user. A change makes another mapping."""

EVERYTHING: Final = ResourcePattern(ResourceType.ANY, Pattern.ANY)


def parse_resource(text: str | None) -> ResourcePattern | None:
    """Pattern of a text such as `Topic:orders*`; None when it is none.

    RocketMQ cuts a name at its first star and takes `Any:x` for everything; such texts are none here.
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

    IPv4 addresses in the form of IPv6 are none: requests never come from them, so that a denial would deny nothing.
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
    """An entry, its ranges read."""

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
        # Where somebody is cannot be said: whatever is forbidden anywhere is forbidden.
        return self.denies and not _is_address(ip)


class _Policy:
    """Entries of one policy, to be found by the resource they are for."""

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
        """Matchers that name a resource or a prefix of it."""
        yield from self._literal.get((kind, name), ())
        for length, prefixes in self._prefixes.get(kind, {}).items():
            if length <= len(name):
                yield from prefixes.get(name[:length], ())

    def _ranks(self, resource: Resource) -> Iterator[Iterable[_Matcher]]:
        """Matchers for a resource, one rank after the other; a rank decides where one of its matchers matches."""
        kind = resource.type.value
        yield self._named(kind, resource.name)
        yield self._any.get(kind, ())
        if kind != ResourceType.ANY.value:
            yield self._any.get(ResourceType.ANY.value, ())

    def decide(self, need: Need, ip: str) -> bool | None:
        """Whether a need is allowed; None when no entry matches."""
        for rank in self._ranks(need.resource):
            decisions = [matcher.denies for matcher in rank if matcher.matches(need.actions, ip)]
            if decisions:
                return not any(decisions)
        return None


class UserPolicies:
    """What one user may do, ready to be looked up."""

    def __init__(self, policies: Policies) -> None:
        self._ordered = [_Policy(policies[kind]) for kind in PolicyType if policies.get(kind)]

    def refusal(self, need: Need, ip: str) -> str:
        """Why a need is refused, in RocketMQ's words; empty when it is allowed.

        Args:
            need: a resource, and actions of which one suffices.
            ip: where the request comes from; empty when that is not known.
        """
        for policy in self._ordered:
            decision = policy.decide(need, ip)
            if decision is not None:
                return "" if decision else DENIED
        return NO_POLICY
