"""Accounts of RocketMQ 4.x, from whose tools these sub-commands come (broker.md §22.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin.answers import Answer, Table, done, moment, pairs
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import ONE_TARGET, TARGET, addresses

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.wire.bodies.access import PlainAccountInfo


async def update_acl_config(admin: Admin, values: Values) -> Answer:
    """Create or change an account."""
    changed, admin_flag = await addresses(admin, values, slaves=True), values.optional("admin")
    for address in changed:
        await admin.accounts.put(
            address,
            values.get("accessKey"),
            secret_key=values.optional("secretKey"),
            admin=None if admin_flag is None else values.truth("admin"),
            white_remote_address=values.optional("whiteRemoteAddress"),
            default_topic_perm=values.optional("defaultTopicPerm"),
            default_group_perm=values.optional("defaultGroupPerm"),
            topic_perms=values.listed("topicPerms"),
            group_perms=values.listed("groupPerms"),
        )
    lines = [f"create or update plain access config to {address} success." for address in changed]
    return done("\n".join(lines), brokers=changed, access_key=values.get("accessKey"))


async def delete_acl_config(admin: Admin, values: Values) -> Answer:
    """Delete an account."""
    changed = await addresses(admin, values, slaves=True)
    for address in changed:
        await admin.accounts.delete(address, values.get("accessKey"))
    lines = [f"delete plain access config account from {address} success." for address in changed]
    lines.append(f"account's accesskey is:{values.get('accessKey')}")
    return done("\n".join(lines), brokers=changed, access_key=values.get("accessKey"))


async def update_global_white_addr(admin: Admin, values: Values) -> Answer:
    """Set the addresses that need no signature."""
    changed = await addresses(admin, values, slaves=True)
    for address in changed:
        await admin.accounts.set_white_addresses(
            address, values.get("globalWhiteRemoteAddresses"), values.optional("aclFileFullPath")
        )
    lines = [f"update global white remote addresses to {address} success." for address in changed]
    return done("\n".join(lines), brokers=changed)


_FILES = Table(
    "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s",
    "#Cluster Name|#Broker Name|#Broker Addr|#AclFilePath|#AclConfigVersionNum|#AclLastUpdateTime",
)


async def cluster_acl_config_version(admin: Admin, values: Values) -> Answer:
    """Show the versions of account files."""
    rows = []
    for address in await addresses(admin, values, slaves=True):
        found = await admin.accounts.files(address)
        rows += [
            (found.cluster, found.broker_name, found.address, path, counter, moment(timestamp_ms))
            for path, (counter, timestamp_ms) in found.versions.items()
        ]
    if values.optional("brokerAddr"):
        lines = [*map(_FILES.row, rows), "get broker's plain access config version success."]
        return Answer("\n".join(lines), _FILES.objects(rows))
    return _FILES.answer(rows, after="get cluster's plain access config version success.")


async def get_acl_config(admin: Admin, values: Values) -> Answer:
    """Show accounts, without their secrets."""
    texts, value = [], {}
    for address in await addresses(admin, values):
        found = await admin.accounts.all(address)
        lines = [f"globalWhiteRemoteAddresses: [{', '.join(found.global_white_addrs)}]", "", "accounts:"]
        shown = [_fields(one) for one in found.plain_access_configs]
        for fields in shown:
            lines += [*(f"  {line}" for line in pairs(fields.items(), 18, ": ")), ""]
        texts.append("\n".join(lines))
        value[address] = {"globalWhiteRemoteAddresses": found.global_white_addrs, "accounts": shown}
    return Answer("\n".join(texts), value)


def _fields(one: PlainAccountInfo) -> dict[str, Any]:
    return {
        "accessKey": one.access_key or "",
        "secretKey": "******",
        "whiteRemoteAddress": one.white_remote_address or "",
        "admin": str(one.admin).lower(),
        "defaultTopicPerm": one.default_topic_perm or "",
        "defaultGroupPerm": one.default_group_perm or "",
        "topicPerms": f"[{', '.join(one.topic_perms)}]" if one.topic_perms else "",
        "groupPerms": f"[{', '.join(one.group_perms)}]" if one.group_perms else "",
    }


_KEY = Option("a", "accessKey", "The account.", required=True)
COMMANDS = (
    Subcommand(
        "updateAclConfig",
        "Create or change an account of plain_acl.yml; what is not given stays, but for --admin.",
        "-c DefaultCluster -a alice -s secret123 -i 'orders=PUB|SUB'",
        update_acl_config,
        (
            *TARGET,
            _KEY,
            Option("s", "secretKey", "What it signs with."),
            Option("m", "admin", "true: it may administer."),
            Option("w", "whiteRemoteAddress", "Addresses that need no signature."),
            Option("i", "defaultTopicPerm", "What it may do with topics: DENY, PUB, SUB or PUB|SUB."),
            Option("u", "defaultGroupPerm", "The same with groups."),
            Option("t", "topicPerms", "Exceptions: orders=PUB|SUB, joined by commas."),
            Option("g", "groupPerms", "Exceptions: billing=SUB, joined by commas."),
        ),
        one_of=ONE_TARGET,
    ),
    Subcommand(
        "deleteAclConfig",
        "Delete an account of plain_acl.yml.",
        "-c DefaultCluster -a alice",
        delete_acl_config,
        (*TARGET, _KEY),
        one_of=ONE_TARGET,
    ),
    Subcommand(
        "updateGlobalWhiteAddr",
        "Set which addresses need no signature whoever signs.",
        "-c DefaultCluster -g 10.0.0.0/8",
        update_global_white_addr,
        (
            *TARGET,
            Option("g", "globalWhiteRemoteAddresses", "Addresses and ranges, joined by commas.", required=True),
            Option("p", "aclFileFullPath", "The file they are written to, where there are several."),
        ),
        one_of=ONE_TARGET,
    ),
    Subcommand(
        "getAclConfig",
        "Show the accounts of plain_acl.yml, without their secrets.",
        "-c DefaultCluster",
        get_acl_config,
        TARGET,
        one_of=ONE_TARGET,
        remark="Secrets are never shown, where Apache's tool shows those of 4.9.",
    ),
    Subcommand(
        "clusterAclConfigVersion",
        "Show the versions of brokers' account files.",
        "-c DefaultCluster",
        cluster_acl_config_version,
        TARGET,
        one_of=ONE_TARGET,
    ),
)
