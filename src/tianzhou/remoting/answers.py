"""The one place where errors become response codes (wire.md §1.9)."""

from __future__ import annotations

from tianzhou.errors import BrokerError, TianzhouError
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command


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


def unexpected(error: BaseException) -> bool:
    """Whether the error is a defect that belongs in the log, rather than an answer the peer asked for."""
    return not isinstance(error, TianzhouError)
