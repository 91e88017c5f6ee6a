"""A look at an address: does its name resolve, does anything listen, what is it, does it want TLS or signatures."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace

from tianzhou.client.cluster.tls import context_of
from tianzhou.client.instance import ClientInstance
from tianzhou.doctor.observations import AddressSeen, Failure, PortKind
from tianzhou.errors import ConfigError, ConnectFailed, ProtocolError, RemotingError, RequestTimeout, TianzhouError
from tianzhou.remoting.client import RemotingClient, parse_address
from tianzhou.remoting.tls import TlsSettings, client_context
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command


async def see_address(
    instance: ClientInstance, address: str, expected: PortKind, timeout_ms: float, *, both: bool = False
) -> AddressSeen:
    """Connect to an address, as the client would and without what makes it trusted.

    Args:
        instance: the client: whether it speaks TLS, and what it signs with.
        address: `host:port`.
        expected: what should be there.
        timeout_ms: limit of each step.
        both: whether to try it both with and without TLS when the first way leads there.
    """
    try:
        host, port = parse_address(address)
    except ConfigError as error:
        return AddressSeen(address, expected, failure=Failure.NO_ADDRESS, why=str(error))
    if (why := await _unresolved(host, port, timeout_ms)) is not None:
        return AddressSeen(address, expected, failure=Failure.NAME_UNKNOWN, why=why)
    own = context_of(instance.options.tls)
    first = await _ask(instance, address, timeout_ms, tls=own is not None)
    second: Command | TianzhouError | None = None
    dead = isinstance(first, ConnectFailed) and own is None
    if both or (not isinstance(first, Command) and not dead):
        second = await _ask(instance, address, timeout_ms, tls=own is None)
    plain, encrypted = (second, first) if own is not None else (first, second)
    reply = first if isinstance(first, Command) else second
    seen = AddressSeen(
        address,
        expected,
        plain=None if plain is None else isinstance(plain, Command),
        tls=None if encrypted is None else isinstance(encrypted, Command),
    )
    if not isinstance(first, Command):
        failure = Failure.NO_TLS if own is not None else Failure.TLS_ONLY
        if not isinstance(reply, Command):
            failure = _failure_of(first)
        return replace(seen, failure=failure, why=str(first))
    if own is not None and (refused := await _own_refusal(instance, address, timeout_ms)) is not None:
        return replace(seen, failure=_failure_of(refused), why=str(refused))
    kind, unsigned, refusal = await _judge(instance, address, first, timeout_ms, tls=own is not None)
    signed: bool | None = None
    if instance.remoting.hooks:
        signed, refusal = await _as_itself(instance, address, timeout_ms)
    if not unsigned and kind is PortKind.NOTHING:
        kind = expected  # who is refused learns nothing more
    return replace(seen, kind=kind, refusal=refusal, unsigned=unsigned, signed=signed)


async def _unresolved(host: str, port: int, timeout_ms: float) -> str | None:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
        return None
    except OSError:
        pass
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        return f"{host}: {error or 'no answer in time'}"
    return None


async def _ask(
    instance: ClientInstance,
    address: str,
    timeout_ms: float,
    *,
    tls: bool,
    code: int = RequestCode.GET_BROKER_RUNTIME_INFO,
) -> Command | TianzhouError:
    """What a stranger gets: one who signs nothing, shows no certificate and believes every server."""
    context = client_context(TlsSettings()) if tls else None
    async with RemotingClient(connect_timeout_ms=timeout_ms, clock=instance.clock, tls=context) as client:
        try:
            return await client.invoke(address, Command(code), timeout_ms)
        except TianzhouError as error:
            return error


async def _own_refusal(instance: ClientInstance, address: str, timeout_ms: float) -> TianzhouError | None:
    """Why the client itself gets no connection, which judges certificates."""
    try:
        await instance.remoting.connect(address, timeout_ms)
    except TianzhouError as error:
        return error
    return None


async def _judge(
    instance: ClientInstance, address: str, reply: Command, timeout_ms: float, *, tls: bool
) -> tuple[PortKind, bool, str]:
    """What is there, whether it serves strangers, and what it says to one that it refuses."""
    if reply.code == ResponseCode.SUCCESS:
        return PortKind.BROKER, True, ""
    if reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return PortKind.NOTHING, False, reply.remark or f"code {reply.code}"
    answer = await _ask(instance, address, timeout_ms, tls=tls, code=RequestCode.GET_BROKER_CLUSTER_INFO)
    if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
        return PortKind.NAME_SERVER, True, ""
    return PortKind.NOT_ROCKETMQ, True, ""


async def _as_itself(instance: ClientInstance, address: str, timeout_ms: float) -> tuple[bool, str]:
    try:
        reply = await instance.remoting.invoke(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), timeout_ms)
    except TianzhouError as error:
        return False, str(error)
    served = reply.code in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    return served, "" if served else reply.remark or f"code {reply.code}"


def _failure_of(error: TianzhouError) -> Failure:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Failure.CERTIFICATE
    if isinstance(cause, ConnectionRefusedError):
        return Failure.REFUSED
    if isinstance(error, RequestTimeout):
        return Failure.SILENT
    if isinstance(error, ConnectFailed):
        in_handshake = isinstance(cause, ssl.SSLError | ConnectionResetError | ConnectionAbortedError)
        return Failure.CLOSED if in_handshake else Failure.NO_ROUTE
    return Failure.CLOSED if isinstance(error, ProtocolError | RemotingError) else Failure.SILENT
