"""Content of pages that follows their frame. The browser receives the frame at once, with a spinner in it.

A page's content waits for servers. Quick content is part of the first response. Slow content is sent over the page's
web socket, part by part. A failure becomes a text in the frame, in the console's own words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from nicegui import ui

from tianzhou.console.actions import DEFECT
from tianzhou.errors import TianzhouError
from tianzhou.supervision import start_awaited

if TYPE_CHECKING:
    from tianzhou.console.layout import View

FRAME_WITHIN_S: Final = 0.3
"""Seconds that the first response waits for the content. Slower content follows over the web socket."""
MISSING_WITHIN_S: Final = 2.0
"""Seconds that the first response waits when the page's topic or group may not exist, because it has the status."""
CONTENT_WITHIN_S: Final = 60.0
"""Seconds after which a page reports missing content. Each request to a server has a shorter timeout."""
_log = logging.getLogger(__name__)


class Missing(Exception):
    """The topic or group of a page does not exist. The response has status 404, in the console's frame.

    Args:
        text: sentence about the missing topic or group, in the visitor's language.
        href: address of the list of existing topics or groups.
        link: text of the link to the list.
    """

    def __init__(self, text: str, href: str, link: str) -> None:
        super().__init__(text)
        self.href, self.link = href, link


def status_of(error: Exception) -> HTTPStatus:
    """Return the status of a response whose content failed: 404 for a missing topic or group, 500 for a defect.

    The status is 200 when servers do not answer, because the page reports this and shows the rest of the cluster.
    """
    if isinstance(error, Missing):
        return HTTPStatus.NOT_FOUND
    known = isinstance(error, TianzhouError | OSError)
    return HTTPStatus.OK if known else HTTPStatus.INTERNAL_SERVER_ERROR


async def show_content(view: View, show: Callable[[View], Awaitable[None]]) -> None:
    """Show the content of a page. Return when it is complete, or after `FRAME_WITHIN_S`; slow content continues.

    Args:
        view: view of the visitor.
        show: shows the content.
    """
    client = ui.context.client
    place = ui.column().classes("w-full gap-4")
    is_sent = False

    async def work() -> None:
        with place:
            try:
                async with asyncio.timeout(CONTENT_WITHIN_S):
                    await show(view)
            except Exception as error:  # noqa: BLE001 - a defect of a page becomes a text in its frame as well
                status = status_of(error)
                if status is HTTPStatus.INTERNAL_SERVER_ERROR:
                    _log.exception("page %s failed", client.page.path)
                if not is_sent:
                    client.status_code = status
                if isinstance(error, Missing):
                    ui.label(str(error))
                    ui.link(error.link, error.href)
                else:
                    ui.label(_words(view, error)).classes("text-negative").props("role=alert")

    task = start_awaited(work())
    client.on_delete(lambda: _cancel(task))
    await asyncio.wait([task], timeout=MISSING_WITHIN_S if _may_be_missing(view) else FRAME_WITHIN_S)
    is_sent = True
    if not task.done():
        waiting = ui.row().classes("items-center").props("data-test=loading")
        with waiting:
            ui.spinner()
            ui.label(view.text("loading")).props("role=status")
        task.add_done_callback(lambda _: None if client.is_deleted else waiting.delete())


def _may_be_missing(view: View) -> bool:
    """Whether the page's address names a topic or group that is not in the last snapshot."""
    now, topic, group = view.console.watcher.now, view.path.get("topic"), view.path.get("group")
    has_topic = topic is None or topic in now.topics or topic in now.system_topics
    return not has_topic or (group is not None and group not in now.groups)


def _words(view: View, error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return view.text("failed", why=view.text("too.slow", seconds=f"{CONTENT_WITHIN_S:g}"))
    known = isinstance(error, TianzhouError | OSError)
    return view.text("failed", why=error if known else DEFECT)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
