"""The one place where errors become response codes (wire.md §1.9)."""

from __future__ import annotations

import logging

from tianzhou.errors import BrokerError, TianzhouError
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command, encode

_log = logging.getLogger(__name__)


def failure(request: Command, error: BaseException) -> Command:
    """The reply that tells the peer why its request failed.

    A `BrokerError` keeps its code and remark, any other `TianzhouError` gives its class' response code and
    its text; an exception nobody expected becomes SYSTEM_ERROR with class and message.
    """
    if isinstance(error, BrokerError):
        return request.reply(error.code, error.remark)
    if isinstance(error, TianzhouError):
        return request.reply(error.response_code, str(error))
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def unsupported(request: Command) -> Command:
    """The reply to a request code nobody here serves, in Apache's words."""
    return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {int(request.code)} not supported")


def failed(peer: object, request: Command, error: BaseException) -> Command:
    """`failure`, with a defect written to the log; `peer` says there whose request it was."""
    if not isinstance(error, TianzhouError):
        _log.error("request %d from %s failed", request.code, peer, exc_info=error)
    return failure(request, error)


def encoded(peer: object, request: Command, reply: Command) -> bytes:
    """The frame of a reply; one that cannot be encoded is a failure of its handler."""
    try:
        return encode(reply)
    except Exception as error:  # noqa: BLE001 - the peer waits for an answer, whatever it was
        return encode(failed(peer, request, error))
