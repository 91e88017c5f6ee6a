"""Response codes of errors: the one place that decides them (wire.md §1.9)."""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable

from tianzhou.errors import BrokerError, LimitExceeded, TianzhouError
from tianzhou.limits import REPLY_BYTES
from tianzhou.wire.codes import ResponseCode, request_name, server_of
from tianzhou.wire.command import Command, encode

_log = logging.getLogger(__name__)


@runtime_checkable
class RefusalListener(Protocol):
    """Peer that is notified of requests refused because of a limit."""

    def refused(self, request: Command, error: LimitExceeded) -> None:
        """Note a refused request."""


def failure(request: Command, error: BaseException) -> Command:
    """Return the error reply to a request.

    A `BrokerError` keeps its code and remark. Any other `TianzhouError` gives its class's response code and its text.
    An unexpected exception becomes SYSTEM_ERROR with class and message.
    """
    if isinstance(error, BrokerError):
        return request.reply(error.code, error.remark)
    if isinstance(error, TianzhouError):
        return request.reply(error.response_code, str(error))
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def unsupported(request: Command, server: str = "", others: str = "", remedy: str = "") -> Command:
    """Return the reply to an unserved request code, with Apache's text and the kind of server that serves it.

    Args:
        request: the request.
        server: kind of this server, "broker" or "name server".
        others: addresses of the other kind, as far as this server has them.
        remedy: how to make the server serve the request.
    """
    text = f" request type {int(request.code)} not supported"
    wanted = server_of(request.code)
    if server and wanted and wanted != server:
        where = f", as {others}" if others else ""
        text += (
            f": this is a {server}, and {request_name(request.code)} is served by a {wanted}; give its address{where}"
        )
    elif remedy:
        text += f": {remedy}"
    return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)


def failed(peer: object, request: Command, error: BaseException) -> Command:
    """Return `failure`, and log defects; the log line names `peer`."""
    if isinstance(error, LimitExceeded) and isinstance(peer, RefusalListener):
        peer.refused(request, error)
    if not isinstance(error, TianzhouError):
        _log.error("request %d from %s failed", request.code, peer, exc_info=error)
    return failure(request, error)


def encoded(peer: object, request: Command, reply: Command) -> bytes:
    """Return the frame of a reply. A reply that cannot be encoded becomes a failure reply."""
    try:
        frame = encode(reply)
    except Exception as error:  # noqa: BLE001 - the peer waits for a reply, whatever the error is
        return encode(failed(peer, request, error))
    if len(frame) > REPLY_BYTES.default:
        # The peer would have to close the connection.
        too_large = REPLY_BYTES.error(len(frame), REPLY_BYTES.default, f"the reply to request {request.code}")
        return encode(failed(peer, request, too_large))
    return frame
