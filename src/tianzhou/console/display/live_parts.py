"""Parts of pages that refresh themselves and show the age of their figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from nicegui import ui

from tianzhou.console.display.freshness import Freshness, State, freshness, silent_brokers
from tianzhou.console.measures import GroupFigures, TopicFigures
from tianzhou.console.snapshot import ClusterSnapshot
from tianzhou.errors import TianzhouError

if TYPE_CHECKING:
    from tianzhou.console.layout import View

T = TypeVar("T")
CHECK_EVERY_S: Final = 1.0
"""Seconds between two checks of an open page for servers that do not answer."""
READ_EVERY_S: Final = 5.0
"""Maximum seconds between two reads of a part that sends its own requests."""
READ_WITHIN_S: Final = 4.0
"""Maximum seconds for one read of such a part."""


def warnings(view: View, now: ClusterSnapshot, found: Freshness) -> list[str]:
    """Return the warnings of a page about servers that do not answer, in the visitor's language.

    Args:
        view: view of the visitor.
        now: the last snapshot.
        found: age of the snapshot.
    """
    lines = []
    if found.state is State.FAILED:
        lines.append(view.text("unseen", why=found.failure))
    if found.is_old and now.at_ms:
        lines.append(view.text("old", time=view.time(now.at_ms), age=found.age_s))
    lines += [view.text("silent", broker=broker, why=why) for broker, why in silent_brokers(now.brokers)]
    return lines


def state_line(view: View) -> Callable[[], None]:
    """Show a red text while a server does not answer, or while the figures are old.

    Returns:
        A function that starts to refresh the text. Call it when the page is complete: the toolkit sends a page to the
        browser when the first timer starts.
    """
    line = ui.label().classes("text-negative whitespace-pre-line break-words").props('role=alert data-test="state"')

    def refresh() -> None:
        now = view.console.watcher.now
        found = freshness(now.at_ms, time.time_ns() // 1_000_000, now.error)
        line.text = "\n".join(warnings(view, now, found))
        line.set_visibility(bool(line.text))

    def start() -> None:
        ui.timer(CHECK_EVERY_S, refresh, immediate=False)

    refresh()
    return start


def read_at(view: View) -> None:
    """Show the time when the page was read, for the parts that do not refresh, and a button that reads it again."""
    with ui.row().classes("items-center gap-2"):
        ui.label(view.text("read.at", time=view.time(time.time_ns() // 1_000_000))).classes("text-sm text-grey")
        ui.button(view.text("read.again"), icon="refresh", on_click=ui.navigate.reload).props("flat dense size=sm")


def seen_text(view: View, now: ClusterSnapshot) -> str:
    """Return a text with the time of a snapshot's figures, in the visitor's language."""
    return view.text("seen.at", time=view.time(now.at_ms)) if now.at_ms else view.text("not.yet")


def measured_text(view: View, figures: TopicFigures | GroupFigures | None) -> str:
    """Return a text with the time of old figures in a list's row, in the visitor's language; empty for new figures.

    Args:
        view: view of the visitor.
        figures: measurements of the row; None before the first measurement.
    """
    return view.text("seen.at", time=view.time(figures.answered_ms)) if figures is not None and figures.is_old else ""


def live_part(view: View, read: Callable[[], Awaitable[T]], show: Callable[[T], object]) -> None:
    """Read and show a part of a page periodically while the page is open, with the time of the last answer.

    The page has just shown the part, so the first read happens after one interval.

    Args:
        view: view of the visitor.
        read: reads the part from servers.
        show: shows an answer.
    """
    answered_ms, failure = time.time_ns() // 1_000_000, ""
    line = ui.label().classes("text-sm break-words").props("role=status")

    def date() -> None:
        found = freshness(answered_ms, time.time_ns() // 1_000_000, failure)
        at = view.time(answered_ms)
        failed = found.state is State.FAILED
        line.text = view.text("part.old", time=at, why=failure) if failed else view.text("seen.at", time=at)
        line.classes(add="text-negative" if failed else "text-grey", remove="text-grey" if failed else "text-negative")

    async def refresh() -> None:
        nonlocal answered_ms, failure
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                found = await read()
        except TimeoutError:
            failure = view.text("part.silent", seconds=f"{READ_WITHIN_S:g}")
        except (TianzhouError, OSError) as error:
            failure = view.failure(error)
        else:
            answered_ms, failure = time.time_ns() // 1_000_000, ""
            show(found)
        date()

    date()
    ui.timer(min(READ_EVERY_S, view.console.settings.refresh_s), refresh, immediate=False)
