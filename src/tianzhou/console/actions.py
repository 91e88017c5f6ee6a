"""Changes of a cluster by visitors: authorized, recorded in the audit log, executed, and answered with a text."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tianzhou.console.audit import AuditLog
from tianzhou.console.sessions import Visitor
from tianzhou.errors import TianzhouError
from tianzhou.escaping import shown

VIEWER: Final = "viewers may not change anything; ask for the role admin"
OVER: Final = "the session has ended; log in again"
DEFECT: Final = "this is a defect of the console; its log has the details"
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActionOutcome(Generic[T]):
    """The outcome of an action.

    Attributes:
        error: why it failed, in words; empty when it succeeded.
        value: the result of the action.
    """

    error: str = ""
    value: T | None = None

    @property
    def done(self) -> bool:
        """Whether the action succeeded."""
        return not self.error


class Actions:
    """Executor of visitors' actions.

    Args:
        audit: audit log that records the begin and the end of each action.
        is_open: returns whether a visitor's session is still open.
        now: returns the current time with its zone.
    """

    def __init__(self, audit: AuditLog, is_open: Callable[[Visitor], bool], now: Callable[[], dt.datetime]) -> None:
        self._audit = audit
        self._is_open = is_open
        self._now = now

    async def run(
        self,
        visitor: Visitor,
        address: str,
        action: str,
        subject: str,
        work: Callable[[], Awaitable[T]],
        details: Mapping[str, object] | None = None,
    ) -> ActionOutcome[T]:
        """Execute an action for a visitor.

        Args:
            visitor: the visitor.
            address: IP address of the visitor.
            action: name of the action, such as `delete topic`.
            subject: the object of the action.
            work: executes the action.
            details: JSON values for the first line of the audit log. Their `id`, if any, is also in the last line.
        """
        refusal = OVER if not self._is_open(visitor) else "" if visitor.may_change else VIEWER
        first = f"refused: {refusal}" if refusal else "begun"
        begun = await self._write(visitor, address, action, subject, first, None if refusal else details)
        if refusal or begun:
            return ActionOutcome(refusal or begun)
        end = {"id": details["id"]} if details and "id" in details else None
        try:
            value = await work()
        except (TianzhouError, ValueError, OSError) as error:
            text = str(error) or type(error).__name__
            await self._write(visitor, address, action, subject, f"failed: {text}", end)
            return ActionOutcome(text)
        except Exception:  # noqa: BLE001 - a defect of a page must not end without a word to the visitor
            _log.exception("%s of %s", action, shown(subject))
            await self._write(visitor, address, action, subject, f"failed: {DEFECT}", end)
            return ActionOutcome(DEFECT)
        await self._write(visitor, address, action, subject, "done", end)
        return ActionOutcome(value=value)

    async def _write(
        self,
        visitor: Visitor,
        address: str,
        action: str,
        subject: str,
        outcome: str,
        details: Mapping[str, object] | None = None,
    ) -> str:
        """Write an entry to the audit log, and return why that failed; empty when it succeeded."""
        time = self._now().isoformat(timespec="milliseconds")
        try:
            await asyncio.to_thread(self._audit.write, time, visitor.name, address, action, subject, outcome, details)
        except OSError as error:
            _log.error("the audit log cannot be written: %s", shown(str(error)))
            return f"nothing is changed without its line in the audit log, which cannot be written: {error}"
        return ""
