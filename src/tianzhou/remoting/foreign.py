"""Peers of other protocols, recognised by their first bytes, and the remedies for them. Pure."""

from __future__ import annotations

from tianzhou.errors import ProtocolError

_TLS_HANDSHAKE = b"\x16\x03"
_HTTP2 = b"PRI * HTTP/2.0"
_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC")
_AMQP = b"AMQP"

_REMOTING = "use a remoting client (RocketMQ 4.x's Java, Go, C++ and Node clients, or this package's)"


def explain(error: ProtocolError, data: bytes) -> ProtocolError:
    """Return the error for bytes that are not a frame, with the protocol they most likely belong to.

    Args:
        error: the error of the frame decoder.
        data: the first bytes of the frame.
    """
    if data.startswith(_TLS_HANDSHAKE):
        return ProtocolError("a TLS handshake arrived, and TLS is not on here; connect without TLS")
    if data.startswith(_HTTP2[: max(len(data), 4)]):
        return ProtocolError(
            f"{error}: this is HTTP/2, most likely a RocketMQ 5 client over gRPC, which is not served; {_REMOTING}"
        )
    if data[:4] in _HTTP:
        return ProtocolError(f"{error}: this is HTTP, which is not served on this port")
    if data.startswith(_AMQP):
        return ProtocolError(f"{error}: this is AMQP, which is not served; {_REMOTING}")
    return error
