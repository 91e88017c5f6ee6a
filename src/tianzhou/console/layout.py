"""The frame of every page, and the small parts that pages consist of."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from nicegui import ui

from tianzhou.console import texts
from tianzhou.console.actions import ActionOutcome
from tianzhou.console.console import Console
from tianzhou.console.display import zones
from tianzhou.console.display.frame_links import links_of_frame
from tianzhou.console.display.live_parts import read_at, state_line
from tianzhou.console.display.series import SeriesPoint
from tianzhou.console.display.zones import UTC_ZONE, Zone
from tianzhou.console.door import ENDED, LOGIN, STATE
from tianzhou.console.serving.content import Missing, show_content
from tianzhou.console.serving.open_pages import bound_waiting
from tianzhou.console.sessions import Visitor
from tianzhou.console.style import PRIMARY, SCRIPT, STYLE
from tianzhou.doctor.chinese.failures import failure_in_chinese

T = TypeVar("T")
_ADDRESS: Final = "/?&=%:+,;@~"
MAX_SUGGESTIONS: Final = 1_000
"""Maximum number of names that a field suggests. The page contains all of them."""
TIME_COLUMNS: Final = frozenset({"time", "stored", "born", "due", "next", "since", "seen", "last", "changed"})
"""Names of columns with times, which do not wrap."""
LIVE_S: Final = 5.0
"""Maximum seconds between two refreshes of the live parts of a page."""


@dataclass(slots=True)
class View:
    """One visit of a page.

    Attributes:
        console: shared state of the pages.
        visitor: the visitor.
        address: IP address of the visitor.
        language: language of the visitor.
        query: parameters of the page's address.
        path: values of the placeholders in the page's path.
        zone: time zone of displayed and typed times.
    """

    console: Console
    visitor: Visitor
    address: str
    language: str
    query: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)
    zone: Zone = UTC_ZONE

    def text(self, key: str, **values: object) -> str:
        """Return a text in the visitor's language (`texts.TEXTS`).

        A value `why` is an error, and is translated as well.
        """
        if "why" in values:
            values["why"] = self.failure(values["why"])
        return texts.text(self.language, key, **values)

    def failure(self, error: object) -> str:
        """Return the text of an error in the visitor's language."""
        words = str(error) or type(error).__name__
        return failure_in_chinese(words) if self.language == "zh" else words

    def time(self, timestamp_ms: int) -> str:
        """Return a time in the visitor's zone, to the second; empty for 0 or less, its number when it is no date."""
        return self.zone.text(timestamp_ms)

    async def act(
        self,
        action: str,
        subject: str,
        work: Callable[[], Awaitable[T]],
        done: str | None = "",
        details: Mapping[str, object] | None = None,
    ) -> ActionOutcome[T]:
        """Execute a change, and notify the visitor of its outcome (`Actions.run`).

        Args:
            action: name of the action, in English, for the audit log.
            subject: the object of the action.
            work: executes the action.
            done: text of the success notification; empty for the default text, None for no notification.
            details: JSON values for the audit log (`Actions.run`).
        """
        outcome = await self.console.actions.run(self.visitor, self.address, action, subject, work, details)
        if outcome.done and done is not None:
            ui.notify(done or self.text("done"), type="positive")
        elif not outcome.done:
            words = self.failure(outcome.error)
            ui.notify(words, type="negative", multi_line=True, timeout=0, close_button=True)
        return outcome


def missing(view: View, noun: str, name: str) -> Missing:
    """Return the error of a page about a topic or group that does not exist.

    Args:
        view: view of the visitor.
        noun: `topic` or `group`.
        name: name of the topic or group.
    """
    return Missing(view.text(f"{noun}.missing", name=name), f"/{noun}s", view.text(f"{noun}.missing.open"))


Show = Callable[[View], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    Attributes:
        path: path of its address; `{name}` is a placeholder.
        title: key of its title.
        icon: icon in the menu; empty for pages outside the menu.
        show: shows its content.
    """

    path: str
    title: str
    icon: str
    show: Show


PAGES: Final[list[Page]] = []
"""All pages, in the order of the menu."""


def page(path: str, title: str, icon: str = "") -> Callable[[Show], Show]:
    """Register a function that shows a page; see `Page`."""

    def register(show: Show) -> Show:
        PAGES.append(Page(path, title, icon, show))
        return show

    return register


def is_below(path: str, of_menu: str) -> bool:
    """Whether a page is the page of a menu entry or listed on it: `/topics/{topic}` is below `/topics`.

    Args:
        path: path of the page.
        of_menu: path of the menu entry.
    """
    listed = {
        "/message": "/messages",
        "/brokers/{broker}": "/cluster",
        "/half": "/transactions",
        "/delayed": "/delay",
    }.get(path, path)
    return listed == of_menu or (of_menu != "/" and listed.startswith(f"{of_menu}/"))


def view_of(console: Console, request: Request) -> View:
    """Return the view of a request."""
    language = texts.choose(request.cookies.get(texts.COOKIE), request.headers.get("accept-language", ""))
    visitor: Visitor = getattr(request.state, STATE)
    address = request.client.host if request.client is not None else ""
    zone = zones.choose(request.cookies.get(zones.COOKIE), console.zone_name)
    return View(console, visitor, address, language, dict(request.query_params), dict(request.path_params), zone)


async def show_page(console: Console, page: Page, request: Request) -> None:
    """Show a page: its frame and its content."""
    view = view_of(console, request)
    # All visits share a page object, but the language is that of the visitor.
    client = ui.context.client
    bound_waiting(console.waiting_pages, client, view.visitor.token)
    client.page = copy.copy(client.page)
    client.page.language = "zh-CN" if view.language == "zh" else "en-US"
    title = view.text(page.title, **view.path)
    ui.page_title(f"{title} · {view.text('title')}")
    ui.colors(primary=PRIMARY)
    ui.add_css(STYLE)
    ui.add_head_html(SCRIPT + zones.script(view.zone))
    with ui.header().classes("items-center gap-2 q-py-xs"):
        drawer_button = ui.button(icon="menu").props(f'flat round dense color=white aria-label="{view.text("menu")}"')
        ui.link(view.text("title"), "/").classes("text-white text-lg no-underline")
        ui.space()
        ui.label(console.settings.namesrv_addr).classes("text-sm gt-xs")
        links_of_frame(view, f"{request.url.path}{'?' if request.url.query else ''}{request.url.query}")
        if view.visitor.name:
            ui.label(view.visitor.name)
            with ui.element("form").props('method="post" action="/logout"'):
                ui.element("input").props(f'type="hidden" name="form" value="{view.visitor.form_token}"')
                ui.html(f'<button type="submit" class="text-white">{view.text("logout")}</button>', sanitize=False)
    # Without a value the toolkit asks the browser for one, and logs an error when the visitor leaves within a second.
    drawer = ui.left_drawer(value=False).props("show-if-above bordered breakpoint=900 width=220")
    with drawer, ui.list().classes("w-full"):
        for one in PAGES:
            if one.icon:
                # Use a plain link, because an additional handler would open the page twice.
                with ui.item().props(f'href="{one.path}"' + (" active" if is_below(page.path, one.path) else "")):
                    with ui.item_section().props("avatar"):
                        ui.icon(one.icon)
                    with ui.item_section():
                        ui.label(view.text(one.title))
    drawer_button.on_click(lambda: drawer.run_method("toggle"))
    content = ui.column().classes("w-full gap-4")
    if view.visitor.name:
        query = f"?{request.url.query}" if request.url.query else ""
        _leave_when_over(view, content, f"{request.url.path}{query}")
    with content:
        ui.label(title).classes("text-2xl").props('role="heading" aria-level="1"')
        watch_state = state_line(view)

        async def show(view: View) -> None:
            await page.show(view)
            read_at(view)

        await show_content(view, show)
        watch_state()


def _leave_when_over(view: View, content: ui.element, address: str) -> None:
    """Clear an open page when its visitor's session has ended, and lead to the log-in page, which leads back."""

    def look() -> None:
        if not view.console.is_open(view.visitor):
            timer.cancel()
            content.clear()
            # Logging out ends the session before the browser receives the reply. `leaveFor` lets the reply win.
            login = f"{LOGIN}?{ENDED}=1&to={quote(address, safe='')}"
            ui.run_javascript(f"leaveFor({json.dumps(login)})")

    timer = ui.timer(min(LIVE_S, view.console.settings.refresh_s), look, immediate=False)


def section(title: str, part: str = "") -> ui.card:
    """Return a context manager for a part of a page under a heading.

    Args:
        title: the heading.
        part: name of the part in the address' fragment; empty for no name.
    """
    found = ui.card().classes("w-full")
    if part:
        # Set no `id`: the browser would jump to this anchor after the page has loaded, and move the focus away.
        found.props(f'data-part="{part}" tabindex=-1')
    with found:
        ui.label(title).classes("text-lg").props('role="heading" aria-level="2"')
    return found


def missing_brokers(view: View, failures: Mapping[str, str]) -> None:
    """Show the brokers that have not answered, because their figures are missing in a part of a page.

    Args:
        view: view of the visitor.
        failures: reason by broker name.
    """
    for name, why in sorted(failures.items()):
        words = view.text("broker.missing", broker=name, why=why)
        ui.label(words).classes("text-negative break-words").props("role=alert")


def preformatted(text: str) -> ui.label:
    """Show a text in a monospace font with its spaces and line breaks. A long text scrolls."""
    found = ui.label(text).classes("w-full text-sm").props("tabindex=0")
    return found.style("font-family: monospace; white-space: pre-wrap; overflow-wrap: anywhere").style(
        "overflow: auto; max-height: 24rem"
    )


def chart_options(title: str, lines: Mapping[str, Sequence[SeriesPoint]], zone: Zone) -> dict[str, Any]:
    """Return the options of a line chart over time.

    Args:
        title: title of the chart.
        lines: points by the name of their line.
        zone: time zone of the axis.
    """
    series = [
        {"name": name, "type": "line", "showSymbol": False, "data": [list(one) for one in zone.clock_points(points)]}
        for name, points in lines.items()
    ]
    return {
        # The points are moved to the zone's clock, because ECharts supports only UTC and the browser's zone.
        "useUTC": True,
        "title": {"text": title, "textStyle": {"fontSize": 14}},
        "tooltip": {"trigger": "axis"},
        "grid": {"left": 60, "right": 24, "top": 40, "bottom": 24},
        "xAxis": {"type": "time", "axisLabel": {"hideOverlap": True}},
        "yAxis": {"type": "value", "min": 0},
        "animation": False,
        "series": series,
    }


class Chart:
    """A line chart over time.

    Args:
        title: title of the chart.
        lines: points by the name of their line.
        zone: time zone of the axis.
    """

    def __init__(self, title: str, lines: Mapping[str, Sequence[SeriesPoint]], zone: Zone) -> None:
        self._title = title
        self._zone = zone
        self._chart = ui.echart(chart_options(title, lines, zone)).classes("h-64 grow basis-80")

    def show(self, lines: Mapping[str, Sequence[SeriesPoint]]) -> None:
        """Replace the points of the chart."""
        self._chart.options.clear()
        self._chart.options.update(chart_options(self._title, lines, self._zone))
        self._chart.update()


def live(view: View, refresh: Callable[[], object], every_s: float = LIVE_S) -> None:
    """Call a function periodically while the page is open.

    Args:
        view: view of the visitor. A shorter `refresh_s` of the console shortens the interval.
        refresh: the function to call.
        every_s: maximum seconds between two calls.
    """
    ui.timer(min(every_s, view.console.settings.refresh_s), refresh, immediate=False)


def table(
    columns: Sequence[tuple[str, str]],
    rows: Iterable[dict[str, Any]],
    *,
    key: str,
    links: Mapping[str, str] | None = None,
    filter_text: str = "",
    kept_for: View | None = None,
) -> ui.table:
    """Show a table that the browser sorts and filters, twenty rows at a time.

    Args:
        columns: name of each column's value, and its heading.
        rows: the values.
        key: name of the column that identifies rows.
        links: address by column. The placeholder `{value}` is the cell's value and `{name}` another value of the row,
            both quoted for an address.
        filter_text: label of the filter's field; empty for no filter.
        kept_for: the view whose address stores the filter; only one table of a page may have it.
    """
    shown = [
        {
            "name": name,
            "label": label,
            "field": name,
            "sortable": bool(label),
            "align": "left",
            "classes": "time" if name in TIME_COLUMNS else "",
        }
        for name, label in columns
    ]
    found = ui.table(columns=shown, rows=list(rows), row_key=key, pagination=20).classes("w-full")
    found.props("dense wrap-cells flat bordered")
    for column, address in (links or {}).items():
        link = f'<a class="text-primary" :href="{cell_address(address)}">{{{{ props.value }}}}</a>'
        found.add_slot(f"body-cell-{column}", f'<q-td :props="props">{link}</q-td>')
    if filter_text:
        with found.add_slot("top-right"):
            before = kept_for.query.get("filter", "") if kept_for is not None else ""
            words = ui.input(placeholder=filter_text, value=before).bind_value_to(found, "filter")
            if kept_for is not None:
                words.on_value_change(lambda event: keep_in_address(kept_for, filter=event.value or ""))
            words.props(f'dense clearable debounce=200 type=search aria-label="{filter_text}"')
    return found


def cell_address(address: str) -> str:
    """Return the JavaScript expression of a cell's address, over `props` of the table's slot.

    It becomes part of the browser's program, so the address is quoted and cannot end a string literal.
    """
    parts = re.split(r"{(\w+)}", address)
    texts = (f"'{quote(part, safe=_ADDRESS)}'" for part in parts[::2])
    names = ("props.value" if name == "value" else f"props.row.{name}" for name in parts[1::2])
    values = (f"encodeURIComponent({name})" for name in names)
    return " + ".join(part for pair in zip_longest(texts, values) for part in pair if part)


def keep_in_address(view: View, **state: str) -> None:
    """Store the choices of a page in its address, so that a visitor can share it. Empty values are removed."""
    view.query = {name: value for name, value in {**view.query, **state}.items() if value}
    ui.run_javascript(f"history.replaceState(null, '', {json.dumps('?' + urlencode(view.query))} + location.hash)")


async def answer_of(dialog: ui.dialog) -> Any:
    """Open a dialog, and return its answer after it is closed; None when the visitor closes it or leaves the page."""
    answer = await dialog
    # The toolkit deletes the dialogs of a page that the visitor has left.
    if not dialog.is_deleted:
        dialog.delete()
    return answer


async def agreed(view: View, question: str, verb: str) -> bool:
    """Ask a visitor to confirm an action, and return whether they agree.

    Args:
        view: view of the visitor.
        question: text that describes the action.
        verb: label of the button that agrees.
    """
    with ui.dialog() as dialog, ui.card():
        ui.label(question)
        with ui.row():
            ui.button(view.text("cancel"), on_click=lambda: dialog.submit(False)).props("flat autofocus")
            ui.button(verb, on_click=lambda: dialog.submit(True)).props("color=negative")
    return bool(await answer_of(dialog))


async def confirmed(view: View, name: str, verb: str = "") -> bool:
    """Ask a visitor to type a name that confirms an irreversible action, and return whether they did.

    Args:
        view: view of the visitor.
        name: the name to type.
        verb: label of the button that confirms; empty for `delete`.
    """
    with ui.dialog() as dialog, ui.card():
        ui.label(view.text("confirm", name=name))
        typed = ui.input().props("autofocus outlined dense")
        with ui.row():
            ui.button(view.text("cancel"), on_click=lambda: dialog.submit(False)).props("flat")
            ui.button(verb or view.text("delete"), on_click=lambda: dialog.submit(True)).props(
                "color=negative"
            ).bind_enabled_from(typed, "value", lambda value: value == name)
    return bool(await answer_of(dialog))


async def delete_named(view: View, noun: str, name: str, delete: Callable[[str], Awaitable[object]]) -> bool:
    """Delete a topic or group after the visitor has typed its name, and return whether it is deleted.

    Args:
        view: view of the visitor.
        noun: `topic` or `group`, for the name of the action and for the text `NOUN.deleted`.
        name: name of the topic or group.
        delete: deletes the topic or group with this name.
    """
    if not await confirmed(view, name):
        return False
    outcome = await view.act(f"delete {noun}", name, lambda: delete(name), view.text(f"{noun}.deleted", name=name))
    if outcome.done:
        await view.console.watcher.look()
    return outcome.done


def deletion_button(view: View, noun: str, name: str, delete: Callable[[str], Awaitable[object]]) -> None:
    """Show a button that deletes the page's topic or group after its name was typed, and then opens the list.

    Args:
        view: view of the visitor.
        noun: `topic` or `group`, for the action, the texts `NOUN.delete` and `NOUN.deleted`, and the list's address.
        name: name of the topic or group.
        delete: deletes the topic or group with this name.
    """

    async def run() -> None:
        if await delete_named(view, noun, name, delete):
            ui.navigate.to(f"/{noun}s")

    ui.button(view.text(f"{noun}.delete"), icon="delete", on_click=run).props("color=negative outline")
