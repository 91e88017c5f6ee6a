"""Changes of policies by requests: validation with RocketMQ 5.3's error texts, and the resulting policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tianzhou.access.policies import (
    Acls,
    Decision,
    Policies,
    PolicyEntry,
    PolicyType,
    ResourcePattern,
    is_source,
    parse_resource,
)
from tianzhou.access.resources import Action
from tianzhou.access.users import Users, invalid, named, refused
from tianzhou.escaping import shown
from tianzhou.limits import POLICY_ENTRIES, SOURCE_IPS, Bounds
from tianzhou.wire.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

USER_PREFIX: Final = "User:"


def subject_name(subject: str | None) -> str | None:
    """Return the user name of a subject such as `User:alice`; None when the subject names no user."""
    kind, colon, name = (subject or "").partition(":")
    return name if colon and name and kind.lower() == "user" else None


def read_policies(infos: Iterable[PolicyInfo]) -> Policies:
    """Return the policies in a request's body.

    RocketMQ ignores unknown actions and reads an unknown type as `Custom`. A misspelt denial would then deny less than
    intended, so this function refuses both.

    Raises:
        BrokerError: a value is missing or invalid; code 16 with RocketMQ's text, or 29.
        LimitExceeded: an entry has too many addresses.
    """
    found: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
    for info in infos:
        kind = named(PolicyType, info.policy_type, "policyType") or PolicyType.CUSTOM
        entries = tuple(_read_entry(entry) for entry in info.entries or ())
        if entries:
            found[kind] = found.get(kind, ()) + entries
    if not found:
        raise refused("The policies is empty.")
    return found


def _read_entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = parse_resource(info.resource)
    if resource is None:
        raise refused("The resource is null.")
    if not info.actions:
        raise refused("The actions is empty.")
    actions = tuple(dict.fromkeys(_read_action(text) for text in info.actions))
    if Action.ANY in actions:
        raise refused("The actions can not be Any.")
    sources = tuple(dict.fromkeys(info.source_ips or ()))
    if len(sources) > SOURCE_IPS.default:
        raise SOURCE_IPS.error(len(sources), SOURCE_IPS.default, f"policy entry {resource}")
    for text in sources:
        if not text.strip():
            raise refused("The source ip is empty.")
        if not is_source(text):
            raise refused("The source ip is invalid.")
    decision = next((one for one in Decision if one.lower() == (info.decision or "").lower()), None)
    if decision is None:
        raise refused("The decision is null or illegal.")
    return PolicyEntry(resource, actions, sources, decision)


def _read_action(text: str) -> Action:
    action = named(Action, text, "action")
    if action is None:
        raise invalid(f"action is empty: expected {' or '.join(Action)}")
    return action


def shown_acl(username: str, policies: Policies) -> AclInfo:
    """Return a user's policies in the form of a server's reply."""
    return AclInfo(USER_PREFIX + username, [_shown_policy(kind, policies[kind]) for kind in policies])


def _shown_policy(kind: PolicyType, entries: Iterable[PolicyEntry]) -> PolicyInfo:
    return PolicyInfo(
        kind.value,
        [
            PolicyEntryInfo(
                str(entry.resource),
                [action.value for action in entry.actions],
                list(entry.source_ips) or None,
                entry.decision.value,
            )
            for entry in entries
        ],
    )


def entry_count(acls: Acls) -> int:
    """Return the number of entries in all policies."""
    return sum(len(entries) for policies in acls.values() for entries in policies.values())


def put(acls: Acls, users: Users, username: str, policies: Policies, bounds: Bounds) -> Acls:
    """Return the acls with a user's entries added. They replace the user's entries for the same resources.

    Raises:
        BrokerError: the user does not exist.
        LimitExceeded: there are too many entries (`maxPolicyEntries`).
    """
    if username not in users:
        raise refused(f"The subject of {USER_PREFIX}{shown(username)} is not exist.")
    merged = dict(acls.get(username, {}))
    for kind, entries in policies.items():
        replaced = {entry.resource for entry in entries}
        merged[kind] = tuple(entry for entry in merged.get(kind, ()) if entry.resource not in replaced) + entries
    result = {**acls, username: merged}
    count = entry_count(result)
    if count > entry_count(acls):
        bounds.check(POLICY_ENTRIES, count, f"policies of user {username}")
    return result


def removed(
    acls: Acls,
    users: Users,
    username: str,
    kind: PolicyType = PolicyType.CUSTOM,
    resource: ResourcePattern | None = None,
) -> Acls:
    """Return the acls without some or all entries of a user.

    Args:
        acls: policies by user.
        users: all users.
        username: name of the user.
        kind: type of the policy that loses the entries, when `resource` is given.
        resource: resource of the entries; None removes all policies of the user.

    Raises:
        BrokerError: the user does not exist, or has no policies.
    """
    if username not in users:
        raise refused("The subject is not exist.")
    if username not in acls:
        raise refused("The acl is not exist.")
    left: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
    if resource is not None:
        left = dict(acls[username])
        left[kind] = tuple(entry for entry in left.get(kind, ()) if entry.resource != resource)
        left = {kind: entries for kind, entries in left.items() if entries}
    return without(acls, username) if not left else {**acls, username: left}


def without(acls: Acls, username: str) -> Acls:
    """Return the acls without a user; unchanged when the user has no policies."""
    return {name: policies for name, policies in acls.items() if name != username}


def listed(acls: Acls, subject_filter: str, resource_filter: str) -> Iterator[AclInfo]:
    """Yield the policies whose subjects and resources contain two texts, in the order of users.

    As in RocketMQ, all entries are listed when the subject contains the text for resources.

    Args:
        acls: policies by user.
        subject_filter: substring of `User:` and the name; blank matches all.
        resource_filter: substring of a resource's text; blank matches all.
    """
    for username in sorted(acls):
        subject = USER_PREFIX + username
        if subject_filter.strip() and subject_filter not in subject:
            continue
        policies = acls[username]
        if resource_filter.strip() and resource_filter not in subject:
            policies = {
                kind: found
                for kind, entries in policies.items()
                if (found := tuple(entry for entry in entries if resource_filter in str(entry.resource)))
            }
        if policies:
            yield shown_acl(username, policies)
