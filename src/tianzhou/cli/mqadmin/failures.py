"""Errors in the form of Apache's tools, whose scripts look for `CODE: 17  DESC:`. Pure."""

from __future__ import annotations

from tianzhou.cli.process import explain
from tianzhou.errors import BrokerError, OffsetOutsideQueue, TianzhouError, UnknownTopic


def failure(error: TianzhouError) -> str:
    """Return the text of an error: code and remark in the form of Apache's tools, then the remedy."""
    if isinstance(error, BrokerError):
        where = f" BROKER: {error.address}" if error.address else ""
        advice = explain(error).partition("\n")[2] or error.hint
        return f"CODE: {error.code}  DESC: {error.remark}{where}" + (f"\n{advice}" if advice else "")
    if isinstance(error, UnknownTopic | OffsetOutsideQueue):
        return f"CODE: {error.response_code}  DESC: {error}"
    return explain(error)
