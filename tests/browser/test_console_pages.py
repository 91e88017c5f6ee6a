"""The console in a real browser: every page opens without an error, and what is done there is done."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tianzhou import sync
from waiting import until


def paths() -> list[str]:
    """Addresses of all pages, their blanks filled in with what the cluster has."""
    pytest.importorskip("nicegui")
    import tianzhou.console.pages  # noqa: F401
    from tianzhou.console.layout import PAGES

    names = {"topic": "orders", "group": "billing", "broker": "broker-a"}
    return [re.sub(r"{(\w+)}", lambda blank: names[blank[1]], page.path) for page in PAGES]


def test_every_page_opens_in_both_languages(browser: Any) -> None:
    headings: dict[str, list[str]] = {}
    for language in ("en", "zh"):
        browser.page.goto(f"{browser.site.url}/language/{language}")
        for path in paths():
            browser.open(path)
            headings.setdefault(path, []).append(browser.heading)
    assert all(english and chinese for english, chinese in headings.values())
    assert all(english != chinese for english, chinese in headings.values())


def test_a_topic_is_made(browser: Any) -> None:
    page = browser.open("/topics")
    page.get_by_label("Topic").last.fill("invoices")
    page.get_by_label("Queues").fill("3")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("Topic invoices is there.").wait_for()
    with sync.Admin(browser.site.namesrv) as admin:
        (config,) = until(lambda: admin.topics.config("invoices")).values()
    assert (config.read_queue_nums, config.write_queue_nums) == (3, 3)
    browser.open("/audit")
    browser.page.get_by_text("create topic").first.wait_for()
