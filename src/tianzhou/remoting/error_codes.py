"""Response codes of errors: the one place where they are decided (wire.md §1.9)."""

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
    """Error reply to a request.

    A `BrokerError` keeps its code and remark, any other `TianzhouError` gives its class' response code and
    its text; an exception nobody expected becomes SYSTEM_ERROR with class and message.
    """
    if isinstance(error, BrokerError):
        return request.reply(error.code, error.remark)
    if isinstance(error, TianzhouError):
        return request.reply(error.response_code, str(error))
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def unsupported(request: Command, server: str = "", others: str = "", remedy: str = "") -> Command:
    """The reply to a request code nobody here serves, in Apache's words, and whom it should have been sent to.

    Args:
        request: the request.
        server: what this server is, "broker" or "name server".
        others: addresses of the other kind, as far as this server knows them.
        remedy: what has the server serve the request.
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
    """`failure`, with defects logged; `peer` is named in the log line."""
    if isinstance(error, LimitExceeded) and isinstance(peer, RefusalListener):
        peer.refused(request, error)
    if not isinstance(error, TianzhouError):
        _log.error("request %d from %s failed", request.code, peer, exc_info=error)
    return failure(request, error)


def encoded(peer: object, request: Command, reply: Command) -> bytes:
    """The frame of a reply; one that cannot be encoded is a failure of its handler."""
    try:
        frame = encode(reply)
    except Exception as error:  # noqa: BLE001 - the peer waits for an answer, whatever it was
        return encode(failed(peer, request, error))
    if len(frame) > REPLY_BYTES.default:
        # The peer would have to give the connection up.
        too_large = REPLY_BYTES.error(len(frame), REPLY_BYTES.default, f"the reply to request {request.code}")
        return encode(failed(peer, request, too_large))
    return frame
