"""Addresses: whether a port is free, and whether clients can reach a server at its advertised address."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tianzhou.cli.output import print_note
from tianzhou.errors import TianzhouError

if TYPE_CHECKING:
    import asyncio

    from tianzhou.remoting.client import RpcHook
    from tianzhou.remoting.tls import TlsSettings

CHECK_TIMEOUT_MS = 2_000


def is_free(host: str, port: int) -> bool:
    """Whether a server can listen on the address now."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            # Set the same option as servers do, so that lingering connections of an earlier server do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError:
        return False
    return True


def check_address(address: str, key: str, tls: TlsSettings, hooks: Iterable[RpcHook] = ()) -> asyncio.Task[None]:
    """Start a task that prints the warning of `unreachable` on stderr. Cancel it if the server stops earlier."""
    from tianzhou.supervision import start_owned

    async def check() -> None:
        if warning := await unreachable(address, key, tls=tls.server_mode.lower() == "enforcing", hooks=hooks):
            print_note(warning)

    return start_owned(check(), "server")


async def unreachable(address: str, key: str, *, tls: bool = False, hooks: Iterable[RpcHook] = ()) -> str | None:
    """Return a warning if no server answers at the address that a broker advertises; None if one does.

    The address may be right nevertheless: the outside address of a container often cannot be reached from inside.

    Args:
        address: `host:port`.
        key: the flag or key that sets the address.
        tls: whether the server accepts only TLS. Its certificate is not checked, because only the reply matters.
        hooks: sign the request, so that a server with access control does not count and log a rejection. Requests to an
            address of another machine or of a NAT are not signed, because an unknown server there could reuse the
            signature.
    """
    from tianzhou.remoting.client import RemotingClient
    from tianzhou.remoting.tls import TlsSettings, client_context
    from tianzhou.wire.codes import RequestCode
    from tianzhou.wire.command import Command

    context = client_context(TlsSettings()) if tls else None
    signs = hooks if is_free(address.rpartition(":")[0].strip("[]"), 0) else ()
    async with RemotingClient(connect_timeout_ms=CHECK_TIMEOUT_MS, hooks=signs, tls=context) as client:
        try:
            # Any reply proves that a server of this protocol listens there.
            await client.invoke(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), CHECK_TIMEOUT_MS)
        except TianzhouError as error:
            return (
                f"warning: the advertised address is {address}, and from here no server answers there ({error}). "
                f"Right for the outside address of a container or NAT; else give {key} an address of "
                f"{socket.gethostname()} that clients can reach"
            )
    return None
