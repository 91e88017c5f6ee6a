"""Name servers: settings, KV entries, write permission of brokers (client.md §23.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin.answers import Answer, done
from tianzhou.cli.mqadmin.families.brokers import settings_text
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values

if TYPE_CHECKING:
    from tianzhou.admin import Admin


async def get_namesrv_config(admin: Admin, values: Values) -> Answer:
    """Show the settings of name servers."""
    del values
    found = await admin.cluster.namesrv_config()
    blocks = [f"============{address}============\n{settings_text(one)}" for address, one in found.items()]
    return Answer("\n".join(blocks), found)


async def update_namesrv_config(admin: Admin, values: Values) -> Answer:
    """Change a setting of name servers."""
    key, value = values.get("key"), values.get("value")
    await admin.cluster.update_namesrv_config({key: value})
    servers = admin.cluster.name_servers
    text = f"update name server config success![{', '.join(servers)}]\n{key} : {value}"
    return done(text, name_servers=servers, changed={key: value})


async def update_kv_config(admin: Admin, values: Values) -> Answer:
    """Store a KV entry."""
    namespace, key, value = values.get("namespace"), values.get("key"), values.get("value")
    await admin.cluster.put_kv(namespace, key, value)
    return done("create or update kv config to namespace success.", namespace=namespace, key=key, value=value)


async def delete_kv_config(admin: Admin, values: Values) -> Answer:
    """Remove a KV entry."""
    namespace, key = values.get("namespace"), values.get("key")
    await admin.cluster.delete_kv(namespace, key)
    return done("delete kv config from namespace success.", namespace=namespace, key=key)


def _write_perm(what: str) -> Any:
    async def work(admin: Admin, values: Values) -> Answer:
        broker = values.get("brokerName")
        method = admin.cluster.wipe_write_perm if what == "wipe" else admin.cluster.add_write_perm
        found = await method(broker)
        lines = [
            f"{what} write perm of broker[{broker}] in name server[{address}] OK, {count}"
            for address, count in found.items()
        ]
        return done("\n".join(lines), broker_name=broker, topics=found)

    return work


_KEY = (Option("k", "key", "The key.", required=True),)
_VALUE = Option("v", "value", "The value.", required=True)
_SPACE = Option("s", "namespace", "The namespace.", required=True)
_BROKER = (Option("b", "brokerName", "Name of the broker.", required=True),)
COMMANDS = (
    Subcommand("getNamesrvConfig", "Show the settings of all name servers.", "-n 127.0.0.1:9876", get_namesrv_config),
    Subcommand(
        "updateNamesrvConfig",
        "Change a setting of all name servers.",
        "-k scanNotActiveBrokerInterval -v 5000",
        update_namesrv_config,
        (*_KEY, _VALUE),
    ),
    Subcommand(
        "updateKvConfig",
        "Store a KV entry at all name servers.",
        "-s SPACE -k one -v 1",
        update_kv_config,
        (_SPACE, *_KEY, _VALUE),
    ),
    Subcommand(
        "deleteKvConfig",
        "Remove a KV entry from all name servers.",
        "-s SPACE -k one",
        delete_kv_config,
        (_SPACE, *_KEY),
    ),
    Subcommand(
        "wipeWritePerm",
        "Have producers leave a broker alone, before it is stopped.",
        "-b broker-a",
        _write_perm("wipe"),
        _BROKER,
    ),
    Subcommand("addWritePerm", "Have producers come back to a broker.", "-b broker-a", _write_perm("add"), _BROKER),
)
