"""Faults of access control: servers without authentication, unencrypted connections, and readable secret files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.illnesses.broker import is_only_local
from tianzhou.doctor.observations import AddressSeen, BrokerSeen, ClusterSeen, SecretFileSeen

ADMIN_KEY: Final = "enableRemoteAdmin"
NO_KEY: Final = "no such key"
"""Evidence for a server of RocketMQ's, which has no such setting."""

BROKER_OPEN = Illness(
    "broker-open-to-all",
    Severity.error,
    "{broker} listens on {bind} without access control: whoever reaches it may send to and read every topic, make "
    "topics and groups, and reset the offsets of any group; with enableRemoteAdmin also delete topics and change its "
    "settings.",
    "Switch access control on (aclEnable=true, or authenticationEnabled and authorizationEnabled): "
    "docs/howto/access-control.md; or have it listen on its own machine only (bindAddress=127.0.0.1).",
)
NAME_SERVER_OPEN = Illness(
    "name-server-open-to-all",
    Severity.error,
    "Name server {address} listens on other addresses without access control: whoever reaches it may register a "
    "broker, under the name of one that is away too, and so get what is sent to it.",
    "Switch access control on at the name server, or let only brokers and clients reach its port: "
    "docs/howto/access-control.md",
)
REMOTE_ADMIN = Illness(
    "remote-admin-open",
    Severity.error,
    "{server} lets everybody delete topics, groups and messages, change its settings and take write permissions, as "
    "RocketMQ's servers do without access control and ours with enableRemoteAdmin=true.",
    "Set enableRemoteAdmin=false and administer from its own machine, or switch access control on.",
)
PLAIN = Illness(
    "connections-not-encrypted",
    Severity.warning,
    "{server} serves connections without TLS on {bind}: who is between can read and change messages.",
    "Set tls.server.mode=enforcing when all clients speak TLS: docs/howto/tls.md",
)
OPEN_HA = Illness(
    "replication-port-open",
    Severity.warning,
    "The port between brokers of {broker} serves everybody: who reaches it may read the whole log.",
    "List its peers: replicationAllowedAddresses, or close the port to others.",
)
SECRET_READABLE = Illness(
    "secret-file-readable",
    Severity.error,
    "Others on this machine can read {path}, which holds secrets.",
    "Let only its owner read it: chmod 600 {path}",
)

ILLNESSES: Final = (BROKER_OPEN, NAME_SERVER_OPEN, REMOTE_ADMIN, PLAIN, OPEN_HA, SECRET_READABLE)


def findings(
    seen: ClusterSeen, name_servers: Sequence[AddressSeen], secrets: Sequence[SecretFileSeen] = ()
) -> Iterator[Finding]:
    """Yield the faults of access control.

    Args:
        seen: the cluster.
        name_servers: results of connecting to the cluster's name servers.
        secrets: files with secrets on this machine.
    """
    for broker in seen.brokers:
        if broker.config is not None:
            yield from _broker(broker)
    configs = {one.address: one.config or {} for one in seen.name_servers}
    for address in name_servers:
        config = configs.get(address.address, {})
        bind = config.get("bindAddress", "0.0.0.0" if not is_only_local(address.address) else "127.0.0.1")
        subject = f"name server {address.address}"
        if not _open(bind):
            continue
        if address.unsigned:
            yield NAME_SERVER_OPEN.found(
                subject, {"bindAddress": bind, "unsigned_request": "served"}, address=address.address
            )
            if config.get(ADMIN_KEY, NO_KEY) != "false":
                opened = {ADMIN_KEY: config.get(ADMIN_KEY, NO_KEY), "bindAddress": bind}
                yield REMOTE_ADMIN.found(subject, opened, server=subject)
        if address.plain:
            yield PLAIN.found(subject, {"bindAddress": bind, "plain_request": "served"}, server=subject, bind=bind)
    for file in secrets:
        if file.mode & 0o077:
            yield SECRET_READABLE.found(f"file {file.path}", {"mode": f"{file.mode:04o}"}, path=file.path)


def _broker(broker: BrokerSeen) -> Iterator[Finding]:
    # RocketMQ's brokers listen on all addresses and have no such key.
    bind = broker.setting("bindAddress", "0.0.0.0")
    if not _open(bind):
        return
    access = broker.access
    if access is not None and access.unsigned:
        evidence = {"bindAddress": bind, "unsigned_request": "served"}
        yield BROKER_OPEN.found(broker.subject, evidence, broker=broker.subject, bind=bind)
        if broker.setting(ADMIN_KEY, NO_KEY) != "false":
            opened = {ADMIN_KEY: broker.setting(ADMIN_KEY, NO_KEY), "bindAddress": bind}
            yield REMOTE_ADMIN.found(broker.subject, opened, server=broker.subject)
    if access is not None and access.plain:
        evidence = {"bindAddress": bind, "plain_request": "served"}
        yield PLAIN.found(broker.subject, evidence, server=broker.subject, bind=bind)
    if "replicationAllowedAddresses" in (broker.config or {}) and not broker.setting("replicationAllowedAddresses"):
        evidence = {"bindAddress": bind, "replicationAllowedAddresses": ""}
        yield OPEN_HA.found(broker.subject, evidence, broker=broker.subject)


def _open(bind: str) -> bool:
    return not is_only_local(f"{bind}:0") or bind in {"0.0.0.0", "::", ""}
