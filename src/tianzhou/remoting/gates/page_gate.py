"""Access to a server's metrics page: by the same rules as requests, or by named addresses.

With access control the page is a request like GET_BROKER_RUNTIME_INFO (28): it needs an account that may view the
cluster. `metricsAllowedAddresses` opens it to the listed addresses only.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Final

from tianzhou.access.requests import AccessDenied, AccessRequest
from tianzhou.access.signatures import ACCESS_KEY, SIGNATURE, signature
from tianzhou.errors import ConfigError
from tianzhou.limits import Refusals
from tianzhou.remoting.gates.access_gate import COUNTED, AccessGate
from tianzhou.remoting.gates.locality import is_loopback
from tianzhou.repeats import Once
from tianzhou.wire.codes import RequestCode

KEY: Final = "metricsAllowedAddresses"
MOST: Final = 1_000
_log = logging.getLogger(__name__)
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_addresses(text: str) -> list[_Network]:
    """Parse addresses and CIDR ranges, joined by commas.

    Raises:
        ConfigError: an entry is neither, or there are too many.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) > MOST:
        raise ConfigError(f"{KEY}: {len(entries)} entries, at most {MOST} are allowed; give ranges such as 10.0.0.0/24")
    try:
        return [ipaddress.ip_network(entry) for entry in entries]
    except ValueError as error:
        raise ConfigError(f"{KEY}: {str(error)[:100]}; give for example 10.0.0.7 or 10.0.0.0/24") from error


class PageGate:
    """Decides which peers may see the metrics page.

    Args:
        addresses: value of `metricsAllowedAddresses`.
        access: access control; None without.
        refusals: counts refused peers.

    Raises:
        ConfigError: the setting cannot be parsed.
    """

    def __init__(self, addresses: str, access: AccessGate | None, refusals: Refusals) -> None:
        self._networks = parse_addresses(addresses)
        self._access = access
        self._refusals = refusals
        self._once = Once()

    def allowed(self, ip: str, credentials: tuple[str, str] | None) -> int:
        """Return the HTTP status for a peer: 200, 401 when it needs credentials and sent none, or 403.

        Args:
            ip: address of its socket.
            credentials: user and password; None without.
        """
        if self._networks:
            return 200 if self._named(ip) else self._refused(ip, "its address is not among " + KEY)
        if self._access is None:
            return 200
        fields: dict[str, str] = {}
        if credentials is not None:
            user, password = credentials
            fields[ACCESS_KEY] = user
            fields[SIGNATURE] = signature(fields, b"", password)
        try:
            self._access.allow(AccessRequest(RequestCode.GET_BROKER_RUNTIME_INFO, fields, ip=ip))
        except AccessDenied as error:
            # Addresses on white lists need no credentials; the server asks other addresses for them.
            return 401 if credentials is None else self._refused(ip, error.remark)
        return 200

    def warning(self, server: str, host: str) -> str:
        """Return a warning about a page that other machines can read unchecked; empty when they cannot.

        Args:
            server: "broker" or "name server".
            host: the address that the page listens on.
        """
        if self._networks or self._access is not None or is_loopback(host):
            return ""
        return (
            f"the {server}'s metrics are shown on {host} to whoever reaches it, names of topics and groups among them; "
            f"name the addresses of Prometheus in {KEY}, or set metricsPromExporterHost=127.0.0.1"
        )

    def _named(self, ip: str) -> bool:
        try:
            address = ipaddress.ip_address(ip.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def _refused(self, ip: str, why: str) -> int:
        self._refusals.counts[COUNTED] += 1
        if self._once.first(ip):
            _log.warning("the page of metrics is refused to %s: %s", ip, why)
        return 403
