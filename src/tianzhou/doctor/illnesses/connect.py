"""Faults that prevent a client's connection: names, addresses, ports, TLS, signatures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.illnesses.broker import is_only_local
from tianzhou.doctor.observations import AddressSeen, BrokerSeen, Failure, PortKind
from tianzhou.store.settings import parse_peers

NAME_UNKNOWN = Illness(
    "host-name-unknown",
    Severity.error,
    "The host name in {address} cannot be resolved on this machine.",
    "Correct the name, or have DNS or /etc/hosts know it; a broker tells clients its brokerIP1.",
)
NO_ADDRESS = Illness(
    "no-address",
    Severity.error,
    "{address} is no address.",
    "Write host:port, as 127.0.0.1:9876.",
)
PORT_CLOSED = Illness(
    "port-closed",
    Severity.error,
    "Nothing listens at {address}.",
    "Start the {expected}, correct the port, or have it listen on more than its own machine (bindAddress, "
    "tianzhou serve --host 0.0.0.0).",
)
HOST_SILENT = Illness(
    "host-unreachable",
    Severity.error,
    "{address} cannot be reached from this machine.",
    "A firewall drops it, or the address is one of another network (of a container, of a NAT): open the port, or set "
    "brokerIP1 to an address that clients reach.",
)
TLS_WANTED = Illness(
    "tls-required",
    Severity.error,
    "{address} speaks TLS only, and this client does not.",
    "Give --tls or TIANZHOU_TLS_ENABLE=true (clients: tls=True); see docs/howto/tls.md",
)
NO_TLS = Illness(
    "tls-not-spoken",
    Severity.error,
    "{address} speaks no TLS, and this client asks for it.",
    "Give --no-tls, or set tls.server.mode=permissive or enforcing at the server.",
)
CERTIFICATE = Illness(
    "certificate-not-trusted",
    Severity.error,
    "The certificate that {address} shows is not trusted.",
    "Trust its issuer (tls.client.trustCertPath), or use the host name that it is for: docs/howto/tls.md",
)
NOT_ROCKETMQ = Illness(
    "not-rocketmq",
    Severity.error,
    "Something listens at {address} and does not speak RocketMQ's protocol.",
    "Correct the port: name servers listen on 9876, brokers on 10911.",
)
HA_PORT = Illness(
    "ha-port",
    Severity.error,
    "{address} is a port between brokers (haListenPort, dLegerPeers) and not for clients.",
    "Use the broker's own port: {right}",
)
FAST_PORT = Illness(
    "fast-port",
    Severity.warning,
    "{address} is the second port of a broker (listenPort minus 2), which gives no messages to consumers.",
    "Use the broker's own port: {right}",
)
WRONG_SERVER = Illness(
    "wrong-server",
    Severity.error,
    "{address} is a {kind}, and a {expected} is asked for.",
    "Name servers are what clients get as namesrv_addr (-n), usually with port 9876; brokers are found by them.",
)
UNSIGNED = Illness(
    "signature-missing",
    Severity.error,
    "{address} serves only requests that are signed, and this client signs nothing.",
    "Set TIANZHOU_ACCESS_KEY and TIANZHOU_SECRET_KEY (clients: access_key, secret_key): docs/howto/access-control.md",
)
REFUSED = Illness(
    "signature-refused",
    Severity.error,
    "{address} refuses what this client signs: it knows no such account, its secret is another one, or it may not ask.",
    "Compare access key and secret with the server's accounts: docs/howto/access-control.md",
)
IS_SLOW = Illness(
    "server-does-not-answer",
    Severity.error,
    "{address} takes connections and does not answer: its process hangs, or the port is not for clients.",
    "Look at its log and processor, and whether the port is the right one.",
)

ILLNESSES: Final = (
    NAME_UNKNOWN, NO_ADDRESS, PORT_CLOSED, HOST_SILENT, TLS_WANTED, NO_TLS, CERTIFICATE, NOT_ROCKETMQ, HA_PORT,
    FAST_PORT, WRONG_SERVER, UNSIGNED, REFUSED, IS_SLOW,
)  # fmt: skip

_BY_FAILURE: Final = {
    Failure.NAME_UNKNOWN: NAME_UNKNOWN,
    Failure.NO_ADDRESS: NO_ADDRESS,
    Failure.REFUSED: PORT_CLOSED,
    Failure.NO_ROUTE: HOST_SILENT,
    Failure.SILENT: IS_SLOW,
    Failure.CLOSED: NOT_ROCKETMQ,
    Failure.TLS_ONLY: TLS_WANTED,
    Failure.NO_TLS: NO_TLS,
    Failure.CERTIFICATE: CERTIFICATE,
}
FAST_PORT_BELOW: Final = 2
HA_PORT_ABOVE: Final = 1
"""Distance of a broker's other ports from its own port, in RocketMQ's defaults."""
DEFAULT_HA_PORT: Final = "10912"
"""Value of `haListenPort` when it is not set. It then means the port above the broker's own."""


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def findings(seen: AddressSeen, brokers: Collection[str] = (), between: Mapping[str, str] = _NONE) -> Iterator[Finding]:
    """Yield the reasons why an address cannot be used.

    Args:
        seen: the result of connecting to it.
        brokers: addresses of brokers that name servers know.
        between: see `ports_between`.
    """
    subject = f"address {seen.address}"
    words = {"address": seen.address, "expected": seen.expected.value, "kind": seen.kind.value}
    evidence = {"expected": seen.expected.value, "found": seen.kind.value, "error": seen.why or seen.refusal}
    # An HA port closes the connection or sends nothing. The port of DLedger members refuses unknown requests.
    served = seen.failure is Failure.NONE and seen.kind is not PortKind.NOT_ROCKETMQ and seen.unsigned
    right = _named(seen.address, between) or _neighbour(seen.address, -HA_PORT_ABOVE, brokers)
    if right and not served and seen.failure in (Failure.NONE, Failure.SILENT, Failure.CLOSED):
        yield HA_PORT.found(subject, evidence, right=right, **words)
    elif seen.failure is not Failure.NONE:
        yield _BY_FAILURE[seen.failure].found(subject, evidence, **words)
    elif seen.kind is PortKind.NOT_ROCKETMQ:
        yield NOT_ROCKETMQ.found(subject, evidence, **words)
    elif seen.unsigned is False and seen.signed is None:
        yield UNSIGNED.found(subject, evidence, **words)
    elif seen.signed is False:
        yield REFUSED.found(subject, evidence, **words)
    elif seen.kind is not seen.expected:
        yield WRONG_SERVER.found(subject, evidence, **words)
    elif right := _neighbour(seen.address, FAST_PORT_BELOW, brokers):
        yield FAST_PORT.found(subject, evidence, right=right, **words)


def ports_between(brokers: Iterable[BrokerSeen]) -> dict[str, str]:
    """Return the addresses at which brokers connect to each other, mapped to the addresses for clients.

    Args:
        brokers: all brokers; those without a reported configuration contribute no port.
    """
    found: dict[str, str] = {}
    for one in brokers:
        address = one.status.address
        port = one.setting("haListenPort")
        if port not in {"", DEFAULT_HA_PORT}:
            found[f"{address.rpartition(':')[0]}:{port}"] = address
        if one.setting("enableDLegerCommitLog") == "true":
            try:
                peers = parse_peers(one.setting("dLegerPeers"))
            except ValueError:
                continue
            if member := peers.get(one.setting("dLegerSelfId")):
                found[member] = address
    return {between: own for between, own in found.items() if between != own}


def _named(address: str, between: Mapping[str, str]) -> str:
    """Return the broker that uses an address as its port between brokers; empty when no broker does."""
    port = address.rpartition(":")[2]
    for one, own in between.items():
        # The broker's own machine may reach it by a loopback address.
        if one == address or (is_only_local(address) and one.rpartition(":")[2] == port):
            return own
    return ""


def _neighbour(address: str, by: int, brokers: Collection[str]) -> str:
    """Return the broker whose port exceeds an address' port by `by` on the same host; empty when there is none."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or address in brokers:
        return ""
    for broker in brokers:
        of_broker, _, its_port = broker.rpartition(":")
        # A broker on this machine is registered with an address other than loopback.
        if its_port == str(int(port) + by) and (of_broker == host or is_only_local(address)):
            return broker
    return ""
