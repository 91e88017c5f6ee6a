"""Accessibility of every page: on a telephone, by the keyboard alone, in light and dark; and an open page alone does
not extend a session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from console_site import Browser, Site
from page_measures import english, faint, not_reached, tables_cut, too_wide

from tianzhou import sync
from tianzhou.model import Message, TransactionState
from waiting import until

DESK = {"width": 1280, "height": 800}
AT_ONCE = "*, *::before, *::after { transition: none !important }"
"""Style without transitions, so that colours change at once."""
LONG_TOPIC, LONG_GROUP = "n" * 127, "g" * 240
TELEPHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def filled(site: Site) -> Iterator[Site]:
    """Yield the cluster with content for every page: a member, dead letters, a trace, waiting messages."""

    def fail(_: object) -> None:
        raise ValueError("not today")

    with sync.Admin(site.namesrv) as admin:
        admin.topics.create("returns", read_queue_nums=1, write_queue_nums=1)
        admin.topics.create(LONG_TOPIC, read_queue_nums=1, write_queue_nums=1)
        admin.groups.create(LONG_GROUP)
        consumer = sync.PushConsumer("hasty", site.namesrv, max_reconsume_times=0)
        consumer.subscribe("returns", handler=fail)
        producer = sync.TransactionProducer("shop", site.namesrv, check=lambda _: TransactionState.UNKNOWN, trace=True)
        with consumer, producer:
            producer.send(Message("returns", b'{"id": 1}', keys="return-1"))
            producer.send(Message("orders", b"wide", tags="t" * 255, keys="k" * 255))
            producer.send(Message("orders", b"later", delay_level=18))
            producer.send_in_transaction(Message("orders", b"half"), lambda *_: TransactionState.UNKNOWN)
            until(lambda: admin.dead_letters.count("hasty"), within_s=30)
            yield site


@pytest.fixture(scope="module")
def addresses(filled: Site) -> list[str]:
    """Return the addresses of all pages, each with data to display."""
    import tianzhou.console.pages  # noqa: F401 - registers the pages
    from tianzhou.console.layout import PAGES

    with sync.Admin(filled.namesrv) as admin:
        member = admin.groups.connections("hasty").connection_set[0].client_id
        message = admin.messages.by_key("returns", "return-1")[0].msg_id
        half = admin.transactions.open()[0].halves[-1].queue_offset
        later = next(one for one in admin.delays.levels() if one.level == 18).next[-1].queue_offset
    blanks = {"topic": "orders", "group": "hasty", "broker": "broker-a", "member": member}
    queries = {
        "/messages": "?topic=orders", "/message": f"?topic=returns&id={message}", "/dead-letters": "?group=hasty",
        "/trace": f"?topic=returns&id={message}", "/producers": "?group=shop", "/ops": "?namespace=shop",
        "/brokers/{broker}": "?id=0&key=fileReservedTime", "/half": f"?broker=broker-a&offset={half}",
        "/delayed": f"?broker=broker-a&level=18&offset={later}",
    }  # fmt: skip
    paths = {page.path: re.sub(r"{(\w+)}", lambda blank: quote(blanks[blank[1]], safe=""), page.path) for page in PAGES}
    return [*(path + queries.get(page, "") for page, path in paths.items()), "/doctor?topic=orders"]


@pytest.fixture
def telephone(browser: Browser) -> Browser:
    """The browser, as narrow as a telephone."""
    browser.page.set_viewport_size(TELEPHONE)
    return browser


def opened(browser: Browser, path: str) -> Any:
    """Return a page, once it shows the data of its query."""
    page = browser.open(path)
    page.locator(".q-spinner >> visible=true").first.wait_for(state="detached")
    return page


@dataclass
class Seen:
    """Headings and faults of one page.

    Attributes:
        headings: heading of the page, by language.
        wide: elements wider than a telephone, by language.
        cut: tables wider than their place on a desk.
        unreached: actions that the tabulator does not reach.
        faint: texts with little contrast, by colour scheme.
        english: English texts on the Chinese page.
        complaints: errors that the browser reports.
    """

    headings: dict[str, str] = field(default_factory=dict)
    wide: dict[str, list[str]] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    faint: dict[str, list[str]] = field(default_factory=dict)
    english: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


NAMES = ("orders", "returns", "billing", "hasty", "shop", "broker-a", "DefaultCluster", "return-1")
MISSING = "/topics/nothing-like-it"
"""Page of a topic that does not exist. Chromium reports its status as an error."""
ONLY_IN_CHINESE = (
    MISSING, "/messages?topic=nothing-like-it", "/groups/hasty/members/nobody", "/brokers/nobody",
    "/messages?topic=orders&begin=tomorrow", "/doctor?group=hasty", "/dead-letters?group=billing",
)  # fmt: skip


@pytest.fixture(scope="module", params=[3, pytest.param(1, marks=pytest.mark.slow)], ids=["some Chinese", "all"])
def seen(request: pytest.FixtureRequest, chromium: Any, filled: Site, addresses: list[str]) -> dict[str, Seen]:
    """Open every page once in English and every n-th in Chinese, run all checks on each, and return the results."""
    paths = (*addresses, *ONLY_IN_CHINESE)
    by_language = {"en": addresses, "zh": paths[:: request.param]}
    page = chromium.new_page()
    page.set_default_timeout(30_000)
    browser = Browser(page, filled)
    page.on("console", lambda line: browser.complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: browser.complaints.append(str(error)))
    found: dict[str, Seen] = {path: Seen() for path in paths}
    for language, opened_paths in by_language.items():
        page.goto(f"{filled.url}/language/{language}")
        for path in opened_paths:
            one = found[path]
            page.set_viewport_size(TELEPHONE)
            opened(browser, path)
            one.headings[language] = browser.heading
            one.wide[language] = too_wide(page, TELEPHONE["width"])
            if language == "en":
                one.unreached = not_reached(page)
            page.set_viewport_size(DESK)
            if language == "en":
                one.cut = tables_cut(page)
                page.add_style_tag(content=AT_ONCE)
                for scheme in ("dark", "light"):
                    page.emulate_media(color_scheme=scheme)
                    page.locator("body.body--dark" if scheme == "dark" else "body.body--light").wait_for()
                    one.faint[scheme] = faint(page)
            else:
                one.english = english(page, (*NAMES, "nothing-like-it", "nobody"))
            one.complaints += [
                text for text in browser.complaints if path != MISSING or not text.endswith("404 (Not Found)")
            ]
            browser.complaints = []
    page.close()
    chromium.clear_cookies()
    return found


def bad(found: dict[str, Seen], what: Callable[[Seen], Any]) -> dict[str, Any]:
    """Return the faults of each page by address, without pages that have none."""
    return {path: there for path, one in found.items() if (there := what(one))}


def test_every_page_opens_in_both_languages(seen: dict[str, Seen], addresses: list[str]) -> None:
    complaints = bad(seen, lambda one: one.complaints)
    missing = complaints.pop(MISSING, [])
    assert [one.endswith("404 (Not Found)") for one in missing] == [True] * len(seen[MISSING].headings)
    assert complaints == {}
    headings = {path: seen[path].headings for path in addresses}
    assert all(one["en"] for one in headings.values())
    both = {path: one for path, one in headings.items() if "zh" in one}
    assert len(both) >= len(addresses) // 3
    assert [path for path, one in both.items() if one["en"] == one["zh"]] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_page_is_wider_than_a_telephone(seen: dict[str, Seen], language: str) -> None:
    assert bad(seen, lambda one: one.wide.get(language)) == {}


def test_tables_with_the_longest_names_and_tags_fit_on_a_desk(seen: dict[str, Seen]) -> None:
    assert bad(seen, lambda one: one.cut) == {}


def test_everything_on_a_page_is_reached_by_the_tabulator(seen: dict[str, Seen]) -> None:
    assert bad(seen, lambda one: one.unreached) == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_text_is_faint(seen: dict[str, Seen], addresses: list[str], scheme: str) -> None:
    assert bad(seen, lambda one: one.faint.get(scheme)) == {}
    assert all(scheme in seen[path].faint for path in addresses)


def test_chinese_pages_have_no_english(seen: dict[str, Seen]) -> None:
    assert bad(seen, lambda one: one.english) == {}


def test_why_a_query_is_refused_is_chinese(browser: Browser) -> None:
    browser.page.goto(f"{browser.site.url}/language/zh")
    page = opened(browser, "/sql?sql=DROP+TABLE+orders")
    page.get_by_role("button", name="执行").click()
    page.get_by_text("只能使用 SELECT").wait_for()


def test_the_menu_of_a_telephone_is_worked_with_the_keyboard(telephone: Browser) -> None:
    page = opened(telephone, "/topics")
    page.get_by_role("button", name="menu").focus()
    page.keyboard.press("Enter")
    page.locator(".q-drawer a[href='/cluster']").wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == "/cluster":
            break
    page.keyboard.press("Enter")
    telephone.arrives("/cluster")


def test_a_table_is_sorted_with_the_keyboard(browser: Browser) -> None:
    page = opened(browser, "/ops?filter=return")
    heading = page.get_by_role("columnheader", name="Key", exact=True).first
    assert heading.get_attribute("aria-sort") == "none"
    heading.focus()
    orders = {}
    for key, order in (("Enter", "ascending"), ("Space", "descending")):
        page.keyboard.press(key)
        page.locator(f"th[aria-sort={order}]:focus").wait_for()
        orders[order] = page.locator("table >> nth=0 >> tbody td:first-child").all_inner_texts()
    assert orders["ascending"] == sorted(orders["descending"])
    assert orders["descending"] == orders["ascending"][::-1]


def test_who_is_on_a_link_of_a_live_table_stays_there(browser: Browser) -> None:
    page = opened(browser, "/")
    page.get_by_role("link", name="broker-a").focus()
    page.evaluate("window.link = document.activeElement")
    page.wait_for_function("() => !window.link.isConnected")
    page.locator("a[href^='/brokers/broker-a']:focus").wait_for()
    page.evaluate("document.activeElement.blur(); window.link = document.querySelector('td a')")
    page.wait_for_function("() => !window.link.isConnected")
    assert page.evaluate("document.activeElement === document.body")


def test_the_forms_of_a_body_are_chosen_with_arrows(browser: Browser, addresses: list[str]) -> None:
    page = opened(browser, next(path for path in addresses if path.startswith("/message?")))
    page.get_by_role("tab", selected=True).focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        if page.get_by_role("tab", name="Hex", selected=True).count():
            break
    page.get_by_text("7b 22 69 64 22").wait_for()


def test_an_open_page_does_nothing_by_itself(browser: Browser) -> None:
    sent: list[str] = []
    received: list[str] = []

    def watch(socket: Any) -> None:
        socket.on("framesent", lambda frame: sent.append(str(frame)))
        socket.on("framereceived", lambda frame: received.append(str(frame)))

    browser.page.on("websocket", watch)
    page = opened(browser, "/")
    sent.clear()
    received.clear()
    for _ in range(60):
        page.wait_for_timeout(250)
        if any('"update"' in frame for frame in received):
            break
    assert any('"update"' in frame for frame in received), "the page is live"
    from tianzhou.console.door import is_deed

    assert [one for one in sent if is_deed({"type": "websocket.receive", "text": one})] == []
    page.get_by_role("button", name="menu").click()
    until(lambda: page.wait_for_timeout(50) or any(is_deed({"type": "websocket.receive", "text": x}) for x in sent))
