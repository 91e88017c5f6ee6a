"""Every page for everybody: on a telephone, by the keyboard alone, in light and dark; and an open page is no use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote

import pytest
from console_site import Browser, Site
from page_measures import english, faint, not_reached, too_wide

from tianzhou import sync
from tianzhou.model import Message, TransactionState
from waiting import until

TELEPHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site(open_site: Callable[..., AbstractContextManager[Site]]) -> Iterator[Site]:
    """A cluster where every page has something to show: a member, dead letters, a trace, what waits."""

    def fail(_: object) -> None:
        raise ValueError("not today")

    with open_site() as found, sync.Admin(found.namesrv) as admin:
        admin.topics.create("refunds", read_queue_nums=1, write_queue_nums=1)
        consumer = sync.PushConsumer("careless", found.namesrv, max_reconsume_times=0)
        consumer.subscribe("refunds", handler=fail)
        producer = sync.TransactionProducer("shop", found.namesrv, check=lambda _: TransactionState.UNKNOWN, trace=True)
        with consumer, producer:
            producer.send(Message("refunds", b'{"id": 1}', keys="refund-1"))
            producer.send(Message("orders", b"later", delay_level=18))
            producer.send_in_transaction(Message("orders", b"half"), lambda *_: TransactionState.UNKNOWN)
            until(lambda: admin.dead_letters.count("careless"), within_s=30)
            yield found


@pytest.fixture(scope="module")
def addresses(site: Site) -> list[str]:
    """Addresses of all pages, with what makes each of them show something."""
    import tianzhou.console.pages  # noqa: F401 - registers the pages
    from tianzhou.console.layout import PAGES

    with sync.Admin(site.namesrv) as admin:
        member = admin.groups.connections("careless").connection_set[0].client_id
        message = admin.messages.by_key("refunds", "refund-1")[0].msg_id
    blanks = {"topic": "orders", "group": "careless", "broker": "broker-a", "member": member}
    queries = {
        "/messages": "?topic=orders", "/message": f"?topic=refunds&id={message}", "/dead-letters": "?group=careless",
        "/trace": f"?topic=refunds&id={message}", "/producers": "?group=shop", "/ops": "?namespace=shop",
        "/brokers/{broker}": "?id=0&key=fileReservedTime",
    }  # fmt: skip
    paths = {page.path: re.sub(r"{(\w+)}", lambda blank: quote(blanks[blank[1]], safe=""), page.path) for page in PAGES}
    return [path + queries.get(page, "") for page, path in paths.items()]


@pytest.fixture
def telephone(browser: Browser) -> Browser:
    """The browser, as narrow as a telephone."""
    browser.page.set_viewport_size(TELEPHONE)
    return browser


def opened(browser: Browser, path: str) -> Any:
    """A page, once it shows what it looked for."""
    page = browser.open(path)
    page.locator(".q-spinner >> visible=true").first.wait_for(state="detached")
    return page


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_page_is_wider_than_a_telephone(telephone: Browser, addresses: list[str], language: str) -> None:
    telephone.page.goto(f"{telephone.site.url}/language/{language}")
    wide = {path: too_wide(opened(telephone, path), TELEPHONE["width"]) for path in addresses}
    assert {path: found for path, found in wide.items() if found} == {}


def test_everything_on_a_page_is_reached_by_the_tabulator(telephone: Browser, addresses: list[str]) -> None:
    left = {path: not_reached(opened(telephone, path)) for path in addresses}
    assert {path: found for path, found in left.items() if found} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_text_is_faint(browser: Browser, addresses: list[str], scheme: str) -> None:
    browser.page.emulate_media(color_scheme=scheme)
    found = {path: faint(opened(browser, path)) for path in addresses}
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_chinese_pages_have_no_english(browser: Browser, addresses: list[str]) -> None:
    browser.page.goto(f"{browser.site.url}/language/zh")
    names = ("orders", "refunds", "billing", "careless", "shop", "broker-a", "DefaultCluster", "refund-1")
    paths = [
        *addresses, "/topics/nothing-like-it", "/messages?topic=nothing-like-it", "/groups/careless/members/nobody",
        "/brokers/nobody", "/messages?topic=orders&begin=tomorrow", "/doctor?group=careless",
        "/dead-letters?group=billing",
    ]  # fmt: skip
    found = {path: english(opened(browser, path), (*names, "nothing-like-it", "nobody")) for path in paths}
    assert {path: texts for path, texts in found.items() if texts} == {}


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
    page.wait_for_url("**/cluster")


def test_a_table_is_sorted_with_the_keyboard(browser: Browser) -> None:
    page = opened(browser, "/topics")
    heading = page.get_by_role("columnheader", name="Topic")
    assert heading.get_attribute("aria-sort") == "none"
    heading.focus()
    orders = {}
    for key, order in (("Enter", "ascending"), ("Space", "descending")):
        page.keyboard.press(key)
        page.locator(f"th[aria-sort={order}]:focus").wait_for()
        orders[order] = page.locator("tbody td:first-child").all_inner_texts()
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
