"""The element that shows one page of a long list, and its filter controls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from tianzhou.console.display.live_parts import seen_text
from tianzhou.console.layout import View, keep_in_address, live
from tianzhou.console.lists import PAGE_SIZES, ListPage, ListState, query_of, state_of
from tianzhou.errors import TianzhouError

TEXT: Final = "text"
NUMBER: Final = "number"
RATE: Final = "rate"
MENU: Final = "menu"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a list.

    Attributes:
        name: key of the column's value in a row.
        label: heading of the column.
        kind: `TEXT`, `NUMBER` or `RATE`. A `RATE` cell also draws the row's `line`.
        href: address that the cells link to. `{key}` is replaced by the row's key.
    """

    name: str
    label: str
    kind: str = TEXT
    href: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of a row's menu.

    Attributes:
        label: text of the entry.
        icon: name of a Material icon.
        href: address that the entry links to. `{key}` is replaced by the row's key. An entry without an address sends
            the event `chosen` to the page.
        is_grave: whether the operation deletes data.
        is_parted: whether a line separates the entry from the entries above.
    """

    label: str
    icon: str
    href: str = ""
    is_grave: bool = False
    is_parted: bool = False


class RowsTable(Element, component="rows_table.js"):
    """One page of a list.

    Args:
        columns: columns of the list.
        operations: entries of the rows' menus by name. A row's `operations` lists the names that its menu shows.
        menu_label: label of a menu's button. `{name}` is replaced by the row's key.
        nothing: text of an empty list.
    """

    def __init__(
        self, columns: Sequence[TableColumn], operations: Mapping[str, Operation], menu_label: str, nothing: str
    ) -> None:
        super().__init__()
        # The first click on a heading sorts texts upwards. It sorts figures downwards, because the largest ones matter.
        shown = [
            {
                "name": one.name, "label": one.label, "field": one.name, "kind": one.kind, "href": one.href,
                "sortable": True, "align": "left" if one.kind == TEXT else "right",
                "sortOrder": "ad" if one.kind == TEXT else "da",
            }
            for one in columns
        ]  # fmt: skip
        menu = {"name": MENU, "label": "", "field": "key", "kind": MENU, "align": "right", "sortable": False}
        self._props["columns"] = [*shown, menu]
        self._props["operations"] = {
            name: {
                "label": one.label, "icon": one.icon, "href": one.href, "grave": one.is_grave, "parted": one.is_parted
            }
            for name, one in operations.items()
        }  # fmt: skip
        self._props["menu_label"] = menu_label
        self._props["nothing"] = nothing
        self._props["sizes"] = list(PAGE_SIZES)
        self._props["rows"] = []
        self._props["pagination"] = {}
        self.classes("w-full")

    def show(self, rows: list[dict[str, Any]], state: ListState, found: ListPage) -> None:
        """Show a page of the list. Send nothing to the browser when it already shows this page.

        Args:
            rows: rows of the page.
            state: filter, order and page that the visitor chose.
            found: the page of the list.
        """
        pagination = {
            "sortBy": state.sort or None, "descending": state.descending, "page": found.page,
            "rowsPerPage": state.size, "rowsNumber": found.count,
        }  # fmt: skip
        if (rows, pagination) != (self._props["rows"], self._props["pagination"]):
            self._props["rows"], self._props["pagination"] = rows, pagination
            self.update()


@dataclass(frozen=True, slots=True)
class ListSource:
    """Source of a list's rows, columns and menus.

    Attributes:
        kinds: all kinds of the entries.
        default: the kind that the list shows at first.
        columns: columns of the list.
        operations: entries of the rows' menus by name.
        cut: returns the page for a state.
        row: returns the row of an entry.
        counts: returns the number of entries of each kind.
        noun: `topic` or `group`, the prefix of the list's texts.
    """

    kinds: Sequence[str]
    default: str
    columns: Sequence[TableColumn]
    operations: Mapping[str, Operation]
    cut: Callable[[ListState], ListPage]
    row: Callable[[Any], dict[str, Any]]
    counts: Callable[[], Mapping[str, int]]
    noun: str


class RowsList:
    """A list with its filter. The page's address stores the visitor's choices.

    Args:
        view: view of the visitor.
        source: source of the rows.
        choose: executes an operation of a row; called with the row's key and the operation's name.
    """

    def __init__(self, view: View, source: ListSource, choose: Callable[[str, str], Awaitable[None]]) -> None:
        self._view, self._source = view, source
        self._state = state_of(view.query, source.kinds, source.default, [one.name for one in source.columns])
        with ui.row().classes("w-full items-center gap-x-4 gap-y-1"):
            self._words()
            self._boxes = {kind: self._box(kind) for kind in source.kinds}
        self._table = RowsTable(
            source.columns, source.operations, view.text(f"{source.noun}.operations"), view.text("none")
        )

        async def chosen(event: GenericEventArguments) -> None:
            try:
                await choose(str(event.args["key"]), str(event.args["operation"]))
            except (TianzhouError, OSError) as error:
                ui.notify(view.text("failed", why=error), type="negative", timeout=0, close_button=True)

        self._seen = ui.label().classes("text-sm text-grey")
        self._table.on("turned", self._turn)
        self._table.on("chosen", chosen)
        self.refresh()
        live(view, self.refresh)

    def refresh(self) -> None:
        """Show the present page of the list and the number of entries of each kind."""
        found = self._source.cut(self._state)
        self._table.show([self._source.row(one) for one in found.entries], self._state, found)
        counts = self._source.counts()
        for kind, box in self._boxes.items():
            box.text = f"{self._view.text(f'{self._source.noun}.kind.{kind}')} {counts.get(kind, 0):,}"
        self._seen.text = seen_text(self._view, self._view.console.watcher.now)

    def _words(self) -> None:
        label = self._view.text("filter")
        words = ui.input(placeholder=label, value=self._state.words).classes("w-64")
        words.props(f'dense outlined clearable debounce=200 type=search aria-label="{label}"')
        with words.add_slot("prepend"):
            ui.icon("search")
        words.on_value_change(lambda event: self._change(words=event.value or ""))

    def _box(self, kind: str) -> ui.checkbox:
        def turn(shown: bool) -> None:
            kinds = {*self._state.kinds, kind} if shown else {*self._state.kinds} - {kind}
            self._change(kinds=tuple(one for one in self._source.kinds if one in kinds))

        box = ui.checkbox(value=kind in self._state.kinds, on_change=lambda event: turn(event.value))
        return box.props("dense").classes("text-sm")

    def _turn(self, event: GenericEventArguments) -> None:
        wanted = event.args
        self._change(
            sort=str(wanted.get("sortBy") or ""),
            descending=bool(wanted.get("descending")),
            page=max(int(wanted.get("page") or 1), 1),
            size=size if (size := wanted.get("rowsPerPage")) in PAGE_SIZES else PAGE_SIZES[0],
        )

    def _change(self, **values: Any) -> None:
        self._state = self._state.changed(**values)
        keep_in_address(self._view, **query_of(self._state, self._source.default))
        self.refresh()
