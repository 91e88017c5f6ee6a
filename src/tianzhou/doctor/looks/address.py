"""Observation of an address: name resolution, port, kind of server, TLS and signatures."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from typing import Final

from tianzhou.client.cluster.tls import context_of
from tianzhou.client.instance import ClientInstance
from tianzhou.doctor.observations import AddressSeen, Failure, PortKind
from tianzhou.errors import ConfigError, ConnectFailed, ProtocolError, RemotingError, RequestTimeout, TianzhouError
from tianzhou.remoting.client import parse_address
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

_QUESTIONS: Final = {
    PortKind.BROKER: RequestCode.GET_BROKER_RUNTIME_INFO,
    PortKind.NAME_SERVER: RequestCode.GET_BROKER_CLUSTER_INFO,
}
"""Requests that only a server of this kind answers."""
_QUESTIONS_OF_STRANGERS: Final = {**_QUESTIONS, PortKind.NAME_SERVER: RequestCode.GET_NAMESRV_CONFIG}
"""Requests that a server with access control answers only to accounts. A name server lists its brokers to every
peer."""


async def see_address(
    instance: ClientInstance, address: str, expected: PortKind, timeout_ms: float, *, both: bool = False
) -> AddressSeen:
    """Connect to an address with the client's TLS setting, but without its certificate and signature.

    Args:
        instance: the client, which has the TLS setting and the credentials.
        address: `host:port`.
        expected: kind of the server that should listen there.
        timeout_ms: limit of each step, in ms.
        both: whether to try both with and without TLS when the first attempt succeeds.
    """
    try:
        host, port = parse_address(address)
    except ConfigError as error:
        return AddressSeen(address, expected, failure=Failure.NO_ADDRESS, why=str(error))
    if (why := await _unresolved(host, port, timeout_ms)) is not None:
        return AddressSeen(address, expected, failure=Failure.NAME_UNKNOWN, why=why)
    question = _QUESTIONS.get(expected, RequestCode.GET_BROKER_RUNTIME_INFO)
    stranger = _Stranger(instance, address, timeout_ms, _QUESTIONS_OF_STRANGERS.get(expected, question))
    own = context_of(instance.options.tls)
    first = await stranger.ask(tls=own is not None)
    second: Command | TianzhouError | None = None
    dead = isinstance(first, ConnectFailed) and own is None
    if both or (not isinstance(first, Command) and not dead):
        second = await stranger.ask(tls=own is None)
    plain, encrypted = (second, first) if own is not None else (first, second)
    seen = AddressSeen(
        address,
        expected,
        plain=None if plain is None else isinstance(plain, Command),
        tls=None if encrypted is None else isinstance(encrypted, Command),
    )
    if not isinstance(first, Command):
        if own is not None and await _own_refusal(instance, address, timeout_ms) is None:
            # The client shows a certificate, which the server requires.
            served, why = await _as_itself(instance, address, question, timeout_ms)
            return replace(seen, kind=expected, refusal=why, unsigned=False, signed=served)
        failure = Failure.NO_TLS if own is not None else Failure.TLS_ONLY
        if not isinstance(second, Command):
            failure = _failure_of(first)
            if failure is Failure.NO_ROUTE and isinstance(second, RequestTimeout):
                # The connection without TLS was accepted, so the address is reachable and its process hangs.
                failure = Failure.SILENT
                first = second
        return replace(seen, failure=failure, why=str(first))
    if own is not None and (refused := await _own_refusal(instance, address, timeout_ms)) is not None:
        return replace(seen, failure=_failure_of(refused), why=str(refused))
    kind, unsigned, refusal = await _judge(stranger, expected, first, tls=own is not None)
    signed: bool | None = None
    if instance.remoting.hooks:
        signed, refusal = await _as_itself(instance, address, question, timeout_ms)
    return replace(seen, kind=kind, refusal=refusal, unsigned=unsigned, signed=signed)


class _Stranger:
    """A client that signs no request, shows no certificate and trusts every server."""

    def __init__(self, instance: ClientInstance, address: str, timeout_ms: float, question: int) -> None:
        self.question = question
        self._instance = instance
        self._address = address
        self._timeout_ms = timeout_ms

    async def ask(self, question: int | None = None, *, tls: bool) -> Command | TianzhouError:
        """Return the server's reply, whatever its code, or the error."""
        async with self._instance.stranger(tls=tls, connect_timeout_ms=self._timeout_ms) as client:
            try:
                return await client.invoke(self._address, Command(question or self.question), self._timeout_ms)
            except TianzhouError as error:
                return error


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


async def _own_refusal(instance: ClientInstance, address: str, timeout_ms: float) -> TianzhouError | None:
    """Return why the client itself, which verifies certificates, gets no connection; None when it gets one."""
    try:
        await instance.remoting.connect(address, timeout_ms)
    except TianzhouError as error:
        return error
    return None


async def _judge(stranger: _Stranger, expected: PortKind, reply: Command, *, tls: bool) -> tuple[PortKind, bool, str]:
    """Return the kind of server, whether it serves unsigned requests, and the remark with which it refuses one."""
    if reply.code == ResponseCode.SUCCESS:
        return expected, True, ""
    if reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        # A refused client learns nothing more.
        return expected, False, reply.remark or f"code {reply.code}"
    for kind, question in _QUESTIONS.items():
        if kind is not expected:
            answer = await stranger.ask(question, tls=tls)
            if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
                return kind, True, ""
    return PortKind.NOT_ROCKETMQ, True, ""


async def _as_itself(instance: ClientInstance, address: str, question: int, timeout_ms: float) -> tuple[bool, str]:
    try:
        reply = await instance.remoting.invoke(address, Command(question), timeout_ms)
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
