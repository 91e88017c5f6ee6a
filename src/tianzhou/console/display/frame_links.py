"""Links in every page's head that return to the page: language and time zone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from nicegui import ui

from tianzhou.console import texts

if TYPE_CHECKING:
    from tianzhou.console.layout import View

ZONE_PAGE: Final = "/time-zone"


def other_language(language: str) -> tuple[str, str]:
    """Return the language that a page's link selects, and its name in that language."""
    other = next(one for one in texts.LANGUAGES if one != language)
    return other, {"en": "English", "zh": "中文"}[other]


def way_back(address: str, to: str) -> str:
    """Return an address with a parameter that leads back to another page.

    Args:
        address: the address, without a query.
        to: address to return to, with its query and fragment.
    """
    return f"{address}?to={quote(to, safe='')}"


def links_of_frame(view: View, here: str) -> None:
    """Show the links for the time zone and for the language.

    An open page can change the query of its address, and the server does not know the fragment. The script
    `style.SCRIPT` therefore completes a link with `data-back` when the visitor follows it.

    Args:
        view: view of the visitor.
        here: address of the page, with its query.
    """
    is_zone_page = here.partition("?")[0] == ZONE_PAGE
    zone, offset = view.zone.name, view.zone.offset_text(time.time_ns() // 1_000_000)
    to = view.query.get("to", "/") if is_zone_page else here
    # A phone's screen has no room for the longest names.
    for shown, width in ((zone if zone == offset else f"{zone} {offset}", "gt-xs"), (offset, "lt-sm")):
        link = ui.link(shown, way_back(ZONE_PAGE, to)).classes(f"text-white {width}")
        link.props(f'aria-label="{view.text("zone.link", zone=shown)}"')
        if not is_zone_page:
            link.props(f'data-back="{ZONE_PAGE}"')
    other, name = other_language(view.language)
    address = f"/language/{other}"
    ui.link(name, way_back(address, here)).classes("text-white").props(f'data-test="language" data-back="{address}"')
