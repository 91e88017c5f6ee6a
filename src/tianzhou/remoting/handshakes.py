"""Reasons why a TLS connection failed, as texts with a remedy for the user (wire.md §1.10)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

OF_ANOTHER_HOST: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate of another host name or address; Python has no constants for them."""
NAMES_TIMEOUT_S: Final = 2.0
"""Seconds for reading the host names of a certificate that is for another host."""
_ENDED: Final = (
    "the other side ended the connection in the TLS handshake; it speaks no TLS here, or refuses our certificate or"
    " version of TLS (1.2 at least is needed)"
)
_MEANINGS: Final = {
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS here",
    "HTTP_REQUEST": "the other side speaks HTTP here",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust who signed our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "the other side wants a certificate and we show none; give tls.client.certPath and tls.client.keyPath"
    ),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side shows no certificate, and one is required",
    "NO_SHARED_CIPHER": "both sides have no cipher in common",
    "UNSUPPORTED_PROTOCOL": "the other side only speaks a version of TLS that is too old",
    "TLSV1_ALERT_PROTOCOL_VERSION": "both sides have no version of TLS in common",
}


ContextT = TypeVar("ContextT", bound=ssl.SSLContext)


class KeyedContext(ssl.SSLContext):
    """A context made from `tls.client.*` keys, so that errors can name the keys.

    Attributes:
        present: returns a context of the present certificate files; None where there are no files.
    """

    present: Callable[[], ssl.SSLContext] | None = None


def for_new_connection(context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the context to connect with. A keyed context is re-read from its present files."""
    if isinstance(context, KeyedContext) and context.present is not None:
        return context.present()
    return context


def hardened(context: ContextT) -> ContextT:
    """Return the same context, restricted to TLS 1.2 or later, without compression and renegotiation.

    Most Python builds do so by default, but a system's OpenSSL configuration can override it.
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def reason_of(error: BaseException) -> str:
    """Return why a handshake failed; never empty."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate shown is not trusted ({error.verify_message})"
    text = str(error)
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"{_MEANINGS[error.reason]} ({error.reason})" if error.reason in _MEANINGS else text
    if isinstance(error, ConnectionResetError | EOFError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return f"{_ENDED} ({type(error).__name__})"
    return text or type(error).__name__


def words_of_loss(error: Exception | None) -> str:
    """Return the suffix for a text about a lost connection: a colon and the reason, or nothing without a reason."""
    if error is None:
        return ""
    return f": {reason_of(error) if isinstance(error, ssl.SSLError) else error}"


REFUSES_TLS_WITHIN_MS: Final = 1_000
"""Maximum ms after which a server closes a connection because it requires TLS or another certificate."""


def why_unanswered(after_ms: float = 0.0, *, by_tls: bool) -> str:
    """Return the probable cause when a server closes a connection before it sends a reply.

    A server that refuses a connection because of TLS closes it at the first bytes. A server that closes it later was
    hanging or was stopped, and advice on TLS would be wrong.

    Args:
        after_ms: ms between the request and the end of the connection.
        by_tls: whether the connection used TLS.
    """
    if after_ms > REFUSES_TLS_WITHIN_MS:
        return f"the server sent nothing for {after_ms:.0f} ms before; see whether its process hangs or was stopped"
    if by_tls:
        return (
            "the log there says why; where certificates are wanted (tls.server.need.client.auth), tls.client.certPath"
            " has to be one that is trusted there"
        )
    return "the log there says why; if it takes TLS only (tls.server.mode=enforcing), set tls.enable=true here"


async def first_byte(accepted: socket.socket, limit_s: float | None) -> bytes | None:
    """Return a peer's first byte without consuming it; empty when the peer closes, None when the time is over.

    Args:
        accepted: the peer's non-blocking connection.
        limit_s: seconds to wait; None waits for ever.
    """
    try:
        return accepted.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        pass
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(accepted, ready.set)
    try:
        async with asyncio.timeout(limit_s):
            await ready.wait()
        return accepted.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return None
    finally:
        loop.remove_reader(accepted)


async def why_refused(
    error: OSError, host: str, port: int, context: ssl.SSLContext | None, *, direct: bool = True
) -> str:
    """Return why a TLS connection to a server failed, and the remedy; empty when TLS is not the cause.

    Args:
        error: the error of the connection attempt.
        host: the server's host, as the client connects to it.
        port: the server's port.
        context: the TLS context of the attempt; None for a plain connection.
        direct: whether the server is reachable without a proxy, to read which hosts its certificate is for.
    """
    if context is None:
        return ""
    if isinstance(error, ssl.SSLCertVerificationError):
        mismatch = error.verify_code in OF_ANOTHER_HOST and direct
        names = await names_shown(host, port, NAMES_TIMEOUT_S) if mismatch else []
        return f"its certificate is not trusted ({error.verify_message}){advice(error, context, names)}"
    if isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError):
        return f"{reason_of(error)}; does the server speak TLS?"
    return ""


def advice(error: ssl.SSLCertVerificationError, context: ssl.SSLContext | None, names: list[str]) -> str:
    """Return the remedy for a certificate that is not trusted.

    Args:
        error: the verification error.
        context: the TLS context of the connection attempt.
        names: hosts that the certificate is for, where known.
    """
    keyed = isinstance(context, KeyedContext)
    if error.verify_code in OF_ANOTHER_HOST:
        known = f"; it is for {', '.join(names)}" if names else ""
        switch = (
            "tls.client.checkHostName=false" if keyed else "check_hostname=False at the ssl.SSLContext given as tls"
        )
        return f"{known}; connect by a name the certificate is for, or set {switch}"
    if keyed:
        return "; give tls.client.trustCertPath the certificate that signed it"
    return "; have the ssl.SSLContext given as tls trust who signed it (load_verify_locations)"


async def names_shown(host: str, port: int, timeout_s: float) -> list[str]:
    """Return the hosts of a server's certificate; empty when it cannot be read. Sends no request to the server."""
    context = hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
        try:
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.transport.abort()
        return _names_in(shown)
    except (OSError, ValueError, AttributeError):  # the names only add detail to an error
        return []


def _names_in(certificate: bytes) -> list[str]:
    from cryptography import x509

    parsed = x509.load_der_x509_certificate(certificate)
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
