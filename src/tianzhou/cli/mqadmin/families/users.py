"""Users and policies of RocketMQ 5.3 (client.md §23.7, broker.md §22.2)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin.answers import Answer, NotFoundError, Table, done
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import ONE_TARGET, TARGET, addresses
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.wire.bodies.access import AclInfo, UserInfo

PASSWORD = "TIANZHOU_PASSWORD"


async def _done(what: str, values: Values, change: Callable[..., Awaitable[list[str]]]) -> Answer:
    """Apply a change at the given broker, or at all brokers of a cluster, because each has its own users."""
    changed = await change(cluster=values.optional("clusterName"), broker_addr=values.optional("brokerAddr"))
    return done("\n".join(f"{what} {address} success." for address in changed), servers=changed)


def _password(values: Values) -> str | None:
    # Arguments of commands are visible to all users of the machine, so the environment may contain the password.
    return values.optional("password") or os.environ.get(PASSWORD) or None


async def create_user(admin: Admin, values: Values) -> Answer:
    """Create a user."""
    name, password = values.get("username"), _password(values)
    if password is None:
        raise ConfigError(f"createUser: no password: give -p, or set {PASSWORD}, which others do not see")
    kind = values.get("userType") or "Normal"
    return await _done("create user to", values, partial(admin.access.create_user, name, password, user_type=kind))


async def update_user(admin: Admin, values: Values) -> Answer:
    """Change a user."""
    name, password = values.get("username"), values.optional("password")
    kind, status = values.optional("userType"), values.optional("userStatus")
    if password is None and kind is None and status is None:
        password = _password(values)
    if password is None and kind is None and status is None:
        raise ConfigError("updateUser: nothing is to be changed: give -p, -t or -s")
    change = partial(admin.access.update_user, name, password=password, user_type=kind, status=status)
    return await _done("update user to", values, change)


async def delete_user(admin: Admin, values: Values) -> Answer:
    """Delete a user."""
    name = values.get("username")
    return await _done("delete user to", values, partial(admin.access.delete_user, name))


_USERS = Table("%-16s  %-22s  %-22s  %-22s", "#UserName|#Password|#UserType|#UserStatus")


def _users(found: Iterable[UserInfo]) -> Answer:
    # Servers of Tianzhou return no passwords, and this tool hides those that other servers return.
    rows = [(one.username, "******", one.user_type, one.user_status) for one in found]
    return _USERS.answer(rows) if rows else Answer("", [])


async def get_user(admin: Admin, values: Values) -> Answer:
    """Show a user."""
    name = values.get("username")
    found = await admin.access.user(name, broker_addr=(await addresses(admin, values))[0])
    if found is None:
        raise NotFoundError(3001, f"No user with name {name} was found")
    return _users([found])


async def list_user(admin: Admin, values: Values) -> Answer:
    """List users."""
    address = (await addresses(admin, values))[0]
    answer = _users(await admin.access.users(values.get("filter"), broker_addr=address))
    if answer.text and values.optional("brokerAddr") is None:
        return Answer(f"{answer.text}\nget user from {address} success.", answer.value)
    return answer


async def copy_user(admin: Admin, values: Values) -> Answer:
    """Copy users from one broker to another."""
    source, target, wanted = values.get("fromBroker"), values.get("toBroker"), values.listed("usernames")
    secrets = await admin.access.users_with_passwords(source)
    chosen = [one for one in secrets if not wanted or one.username in wanted]
    lines, copied = [], []
    for one in chosen:
        name = one.username or ""
        if one.password is None:
            raise NotFoundError(
                3001, f"{source} does not tell passwords, so user {name} cannot be copied; create it anew"
            )
        there = await admin.access.user(name, broker_addr=target)
        if there is None:
            await admin.access.create_user(name, one.password, user_type=one.user_type or "Normal", broker_addr=target)
        else:
            await admin.access.update_user(
                name, password=one.password, user_type=one.user_type, status=one.user_status, broker_addr=target
            )
        lines.append(f"copy user of {name} from {source} to {target} success.")
        copied.append(name)
    return done("\n".join(lines), source=source, target=target, users=copied)


# --- policies ------------------------------------------------------------------------------------------------


def _user_of(values: Values) -> str:
    subject = values.get("subject")
    kind, colon, name = subject.partition(":")
    if not colon or kind != "User":
        raise ConfigError(f"--subject {subject}: write it as User:NAME")
    return name


def _set_acl(what: str) -> Callable[[Admin, Values], Awaitable[Answer]]:
    async def work(admin: Admin, values: Values) -> Answer:
        change = partial(
            admin.access.set_acl,
            _user_of(values),
            values.listed("resources"),
            values.listed("actions"),
            decision=values.get("decision").capitalize(),
            source_ips=values.listed("sourceIp"),
        )
        return await _done(f"{what} acl to", values, change)

    return work


async def delete_acl(admin: Admin, values: Values) -> Answer:
    """Remove the policy of a user for a resource, or all policies of the user."""
    name, resource = _user_of(values), values.optional("resources")
    return await _done("delete acl to", values, partial(admin.access.delete_acl, name, resource))


_ACLS = Table("%-16s  %-10s  %-22s  %-20s  %-24s  %-10s", "#Subject|#PolicyType|#Resource|#Actions|#SourceIp|#Decision")


def _acls(found: Iterable[AclInfo]) -> Answer:
    rows = [
        (
            acl.subject,
            policy.policy_type,
            entry.resource,
            _listed(entry.actions),
            _listed(entry.source_ips),
            entry.decision,
        )
        for acl in found
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]
    return _ACLS.answer(rows) if rows else Answer("", [])


def _listed(words: Sequence[str] | None) -> str:
    return "null" if words is None else f"[{', '.join(words)}]"


async def get_acl(admin: Admin, values: Values) -> Answer:
    """Show the policies of a user."""
    found = await admin.access.acl(_user_of(values), broker_addr=(await addresses(admin, values))[0])
    if found is None:
        raise NotFoundError(3002, f"No acl with subject {values.get('subject')} was found")
    return _acls([found])


async def list_acl(admin: Admin, values: Values) -> Answer:
    """List policies."""
    address = (await addresses(admin, values))[0]
    return _acls(await admin.access.acls(values.get("subject"), values.get("resource"), broker_addr=address))


async def copy_acl(admin: Admin, values: Values) -> Answer:
    """Copy policies from one broker to another."""
    source, target, wanted = values.get("fromBroker"), values.get("toBroker"), values.listed("subjects")
    lines, copied = [], []
    if wanted:
        named = [await admin.access.acl(subject.removeprefix("User:"), broker_addr=source) for subject in wanted]
        found = [acl for acl in named if acl is not None]
    else:
        found = await admin.access.acls(broker_addr=source)
    for acl in found:
        subject = acl.subject or ""
        for policy in acl.policies or ():
            for entry in policy.entries or ():
                await admin.access.set_acl(
                    subject.partition(":")[2],
                    [entry.resource or "*"],
                    entry.actions or [],
                    decision=entry.decision or "Allow",
                    source_ips=entry.source_ips or (),
                    policy_type=policy.policy_type or "Custom",
                    broker_addr=target,
                )
        lines.append(f"copy acl of {subject} from {source} to {target} success.")
        copied.append(subject)
    return done("\n".join(lines), source=source, target=target, subjects=copied)


_USER = Option("u", "username", "Its name, the access key of its clients.", required=True)
_SUBJECT = Option("s", "subject", "The user, as User:NAME.", required=True)
_FROM = Option("f", "fromBroker", "The broker they are copied from, host:port.", required=True)
_TO = Option("t", "toBroker", "The broker they are copied to, host:port.", required=True)
_KIND = Option("t", "userType", "Super for one that may do everything; Normal.")
_ENTRY = (
    *TARGET,
    _SUBJECT,
    Option("r", "resources", "As Topic:orders, Topic:orders*, Group:* or *; joined by commas.", required=True),
    Option("a", "actions", "Pub, Sub, Create, Update, Delete, Get, List or All; joined by commas.", required=True),
    Option("d", "decision", "Allow or Deny.", required=True),
    Option("i", "sourceIp", "Addresses and ranges it holds for; all when not given."),
)
_SAYS = "-c DefaultCluster -s User:alice -r Topic:orders -a Pub,Sub -d Allow"


def _of_brokers(name: str, summary: str, example: str, work: Any, *options: Option, remark: str = "") -> Subcommand:
    given = options if options[:1] == _ENTRY[:1] else (*TARGET, *options)
    return Subcommand(name, summary, example, work, given, one_of=ONE_TARGET, remark=remark)


COMMANDS = (
    _of_brokers(
        "createUser",
        "Create a user.",
        "-c DefaultCluster -u alice -t Normal",
        create_user,
        _USER,
        Option("p", "password", f"Its secret key; better in {PASSWORD}, as arguments are seen by everybody."),
        _KIND,
    ),
    _of_brokers(
        "updateUser",
        "Change a user's password, type or state; what is not given stays.",
        "-c DefaultCluster -u alice -s disable",
        update_user,
        _USER,
        Option("p", "password", f"Its new secret key; better in {PASSWORD}."),
        _KIND,
        Option("s", "userStatus", "enable or disable."),
    ),
    _of_brokers("deleteUser", "Delete a user.", "-c DefaultCluster -u alice", delete_user, _USER),
    _of_brokers(
        "getUser",
        "Show a user.",
        "-b 127.0.0.1:10911 -u alice",
        get_user,
        _USER,
        remark="Passwords are never shown, where Apache's tool shows them.",
    ),
    _of_brokers(
        "listUser",
        "List users.",
        "-b 127.0.0.1:10911",
        list_user,
        Option("f", "filter", "What their names contain."),
        remark="Passwords are never shown, where Apache's tool shows them.",
    ),
    Subcommand(
        "copyUser",
        "Copy users from a broker to another.",
        "-f 10.0.0.1:10911 -t 10.0.0.2:10911 -u alice",
        copy_user,
        (_FROM, _TO, Option("u", "usernames", "Their names, joined by commas; all when not given.")),
        remark="Brokers of Tianzhou never show a password, so users are copied from Apache's brokers only.",
    ),
    _of_brokers("createAcl", "Allow or deny a user actions on resources.", _SAYS, _set_acl("create"), *_ENTRY),
    _of_brokers("updateAcl", "Change what a user may do with resources.", _SAYS, _set_acl("update"), *_ENTRY),
    _of_brokers(
        "deleteAcl",
        "Remove what was said about a resource, or all policies of a user.",
        "-c DefaultCluster -s User:alice -r Topic:orders",
        delete_acl,
        _SUBJECT,
        Option("r", "resources", "The resource; all policies when not given."),
    ),
    _of_brokers("getAcl", "Show what a user may do.", "-b 127.0.0.1:10911 -s User:alice", get_acl, _SUBJECT),
    _of_brokers(
        "listAcl",
        "List what users may do.",
        "-b 127.0.0.1:10911 -s alice",
        list_acl,
        Option("s", "subject", "What the subjects contain."),
        Option("r", "resource", "What the resources contain."),
    ),
    Subcommand(
        "copyAcl",
        "Copy what users may do from a broker to another.",
        "-f 10.0.0.1:10911 -t 10.0.0.2:10911 -s User:alice",
        copy_acl,
        (_FROM, _TO, Option("s", "subjects", "Users, joined by commas; all when not given.")),
    ),
)
