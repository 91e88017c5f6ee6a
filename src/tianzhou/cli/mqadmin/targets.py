"""Options that several families have, and the brokers that two of them select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tianzhou.cli.mqadmin.subcommand import Option, Values

if TYPE_CHECKING:
    from tianzhou.admin import Admin

TOPIC: Final = Option("t", "topic", "The topic.", required=True)
GROUP: Final = Option("g", "groupName", "The consumer group.", required=True)
BROKER: Final = Option("b", "brokerAddr", "One broker, host:port.")
CLUSTER: Final = Option("c", "clusterName", "All masters of a cluster.")
NAME_SERVERS: Final = Option("", "nameserverAddr", "The same as --namesrvAddr; Apache's tool has both names.")
TARGET: Final = (BROKER, CLUSTER)
ONE_TARGET: Final = ("brokerAddr", "clusterName")


async def addresses(admin: Admin, values: Values, *, slaves: bool = False) -> list[str]:
    """Return the addresses of the brokers that `-b` or `-c` select.

    Args:
        admin: the client.
        values: values of the options.
        slaves: whether to include a cluster's slaves.

    Raises:
        ClientError: the cluster does not exist.
    """
    address = values.optional("brokerAddr")
    if address is not None:
        return [address]
    cluster = values.optional("clusterName") or values.optional("cluster")
    if not slaves:
        return sorted((await admin.cluster.masters(cluster)).values())
    info, found = await admin.cluster.info(), await admin.cluster.masters(cluster)
    return [one for name in sorted(found) for _, one in sorted(info.broker_addr_table[name].broker_addrs.items())]
