"""SOCKS 5: connections to servers through a proxy, without login or with user and password (client.md §21). Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.errors import ConfigError, ConnectFailed
from tianzhou.model.server_addresses import address_fault

VERSION: Final = 5
LOGIN_VERSION: Final = 1
NO_LOGIN: Final = 0
BY_PASSWORD: Final = 2
CONNECT: Final = 1
IPV4, NAME, IPV6 = 1, 3, 4
LONGEST: Final = 255
"""Maximum bytes of a name, a user or a password: their lengths take one byte."""
EVERYWHERE: Final = "0.0.0.0/0"

_REFUSALS: Final = {
    1: "it failed",
    2: "its rules do not allow that",
    3: "the network cannot be reached",
    4: "the host cannot be reached",
    5: "the server refused the connection",
    6: "the time was up",
    7: "it cannot do that",
    8: "it does not know that kind of address",
}
_SHAPE: Final = '{"10.0.0.0/8": {"addr": "proxy:1080", "username": "", "password": ""}}'


@dataclass(frozen=True, slots=True)
class SocksProxy:
    """A SOCKS 5 proxy.

    Attributes:
        host: the proxy's host.
        port: the proxy's port.
        username: user for the login; empty for a proxy without login.
        password: the user's password.
    """

    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"SOCKS proxy {self.host}:{self.port}"


class SocksProxies:
    """Proxies by the network of the server.

    Args:
        config: proxies by network, as an object or as JSON text, see `socksProxyConfig` in client.md §1. The first
            network that contains a server's address decides. `0.0.0.0/0` contains every address and every name.

    Raises:
        ConfigError: the value has another form.
    """

    def __init__(self, config: str | Mapping[str, Mapping[str, str]]) -> None:
        proxies: Any = config
        if isinstance(config, str):
            try:
                proxies = json.loads(config)
            except ValueError as error:
                raise _wrong(f"it is no JSON ({error})") from None  # the text may contain a password, so do not show it
        if not isinstance(proxies, Mapping):
            raise _wrong(f"it is no object, but of type {type(proxies).__name__}")
        self._by_network = [(_network(network), _proxy(network, proxy)) for network, proxy in proxies.items()]

    def towards(self, host: str) -> SocksProxy | None:
        """Return the proxy for a server, None when the client connects to the server directly.

        Args:
            host: the server's address or name.
        """
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None
        for network, proxy in self._by_network:
            if network is None or (address is not None and address in network):
                return proxy
        return None


def handshake(proxy: SocksProxy, host: str, port: int) -> Generator[tuple[bytes, int], bytes, None]:
    """Run a sans-IO SOCKS 5 handshake until the proxy forwards bytes to a server.

    Yields the bytes to send and the number of reply bytes to read next. Send it exactly those reply bytes.

    Args:
        proxy: the proxy.
        host: the server's address, or a name that the proxy resolves.
        port: the server's port.

    Raises:
        ConnectFailed: the proxy refuses; the text has the reason and the remedy.
    """
    ways = bytes([NO_LOGIN, BY_PASSWORD] if proxy.username else [NO_LOGIN])
    version, way = yield bytes([VERSION, len(ways)]) + ways, 2
    if version != VERSION:
        raise ConnectFailed(f"{proxy} speaks no SOCKS 5 (its answer begins with byte {version}); is the port right?")
    if way == BY_PASSWORD and proxy.username:
        login = bytes([LOGIN_VERSION]) + _counted(proxy.username.encode()) + _counted(proxy.password.encode())
        _, refused = yield login, 2
        if refused:
            raise ConnectFailed(f"{proxy} does not take user {proxy.username!r} with this password")
    elif way != NO_LOGIN:
        hint = "none of its ways to log in is user and password" if proxy.username else "give username and password"
        raise ConnectFailed(f"{proxy} wants a log-in; {hint}")
    wanted = bytes([VERSION, CONNECT, 0]) + _destination(host) + port.to_bytes(2)
    _, refusal, _, kind = yield wanted, 4
    if refusal:
        reason = _REFUSALS.get(refusal, f"its code is {refusal}")
        raise ConnectFailed(f"{proxy} does not connect to {host}:{port}: {reason}")
    # Skip the proxy's own outgoing address: no caller uses it.
    size = {IPV4: 4, IPV6: 16}.get(kind)
    if size is None:
        (size,) = yield b"", 1
    yield b"", size + 2


def _destination(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes([NAME]) + _counted(host.encode("idna"))
    return bytes([IPV4 if address.version == 4 else IPV6]) + address.packed


def _counted(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if text == EVERYWHERE:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise _wrong(f"{text!r} is no network") from None


def _proxy(network: str, entry: Any) -> SocksProxy:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("addr"), str):
        shown = sorted(entry) if isinstance(entry, Mapping) else type(entry).__name__  # its values may be secret
        raise _wrong(f"the proxy of {network} is {shown}, without an addr")
    host, _, port = entry["addr"].rpartition(":")
    if fault := address_fault(entry["addr"]):
        raise _wrong(f"addr {entry['addr']!r} of {network} is no host:port: {fault}")
    if unknown := sorted(entry.keys() - {"addr", "username", "password"}):
        raise _wrong(f"the proxy of {network} has an unknown key {unknown[0]!r}")
    username, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if max(len(username.encode()), len(password.encode())) > LONGEST:
        raise _wrong(f"username or password of {network} has more than {LONGEST} bytes")
    return SocksProxy(host.strip("[]"), int(port), username, password)


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"socks_proxy_config: {what}; it looks like {_SHAPE}")
