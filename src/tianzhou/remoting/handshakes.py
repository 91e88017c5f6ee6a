"""Why a TLS connection could not be made, in words a user can act on (wire.md §1.10)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

OF_ANOTHER_HOST: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate of another name or address, which Python does not name."""
NAMES_TIMEOUT_S: Final = 2.0
"""Time limit of reading the host names of a certificate that is for another host."""
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
    """A context made of `tls.client.*` keys, so that errors name the keys; others are their owners' business.

    Attributes:
        present: gives the context of the files as they are now; None where there are no files.
    """

    present: Callable[[], ssl.SSLContext] | None = None


def for_new_connection(context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The context to connect with: of a keyed one, that of its files as they are now."""
    if isinstance(context, KeyedContext) and context.present is not None:
        return context.present()
    return context


def hardened(context: ContextT) -> ContextT:
    """The same context, with TLS 1.2 at least, without compression and renegotiation.

    That is what Python's builds mostly have by themselves; but OpenSSL's configuration of a system can say otherwise.
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def reason_of(error: BaseException) -> str:
    """Why a handshake failed; never empty."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate shown is not trusted ({error.verify_message})"
    text = str(error)
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"{_MEANINGS[error.reason]} ({error.reason})" if error.reason in _MEANINGS else text
    if isinstance(error, ConnectionResetError | EOFError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return f"{_ENDED} ({type(error).__name__})"
    return text or type(error).__name__


def words_of_loss(error: Exception | None) -> str:
    """What a text about a lost connection ends with: the reason behind a colon, nothing where there is none."""
    if error is None:
        return ""
    return f": {reason_of(error) if isinstance(error, ssl.SSLError) else error}"


REFUSES_TLS_WITHIN_MS: Final = 1_000
"""Maximum ms after which a server ends a connection because it wants TLS, or another certificate."""


def why_unanswered(after_ms: float = 0.0, *, by_tls: bool) -> str:
    """Return what may be wrong where a server ends a connection before it sends a reply.

    A server that refuses a connection because of TLS ends it at the first bytes. A server that ends it later has hung
    or was stopped, and advice on TLS would be wrong.

    Args:
        after_ms: ms between the request and the end of the connection.
        by_tls: whether the connection was one of TLS.
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
    """The first byte a peer sends, which stays to be read; empty when it ends, None when it sends nothing in time.

    Args:
        accepted: the peer's connection; does not block.
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
    """Why TLS could not be begun with a server, and what to do about it; empty when the error has other reasons.

    Args:
        error: of the attempt to connect.
        host: the server's, as it was to be connected to.
        port: likewise.
        context: what the connection was to be made with; None for a plain one.
        direct: whether the server can be connected to without a proxy, to ask which hosts its certificate is for.
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
    """What to do about a certificate that is not trusted.

    Args:
        error: why it is not.
        context: what the connection was to be made with.
        names: the hosts the certificate is for, where they are known.
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
    """The hosts a server's certificate is for; empty when that cannot be learnt. Nothing is sent to that server."""
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
    except (OSError, ValueError, AttributeError):  # it is only to say more
        return []


def _names_in(certificate: bytes) -> list[str]:
    from cryptography import x509

    parsed = x509.load_der_x509_certificate(certificate)
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
