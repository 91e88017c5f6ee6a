"""Topics and groups in a real browser: the actions of a page change the cluster."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

from tianzhou import sync
from waiting import until


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


def test_a_message_is_sent_from_a_topics_page(browser: Any) -> None:
    page = browser.open("/topics/orders")
    page.get_by_label("Keys").fill("from-the-console")
    page.get_by_label("Body").fill("hello")
    page.get_by_role("button", name="Send a message").click()
    page.get_by_text(re.compile("SEND_OK in queue")).wait_for()
    with sync.Admin(browser.site.namesrv) as admin:
        (found,) = until(lambda: admin.messages.by_key("orders", "from-the-console"))
    assert found.body == b"hello"


def test_offsets_of_a_group_are_reset(browser: Any) -> None:
    with sync.PullConsumer("billing", browser.site.namesrv) as consumer:
        consumer.subscribe("orders")
        until(lambda: [consumer.poll(timeout_ms=200)], within_s=20)
        consumer.commit()
    page = browser.open("/groups/billing")
    page.get_by_label("To", exact=True).click()
    page.get_by_role("option", name="the first message").click()
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset offsets").click()
    page.get_by_text("2 queues of orders are reset.").wait_for()
    with sync.Admin(browser.site.namesrv) as admin:
        assert {one.consumer_offset for one in admin.groups.lag("billing", "orders").queues} == {0}


def test_a_topic_is_deleted_once_its_name_is_typed(browser: Any) -> None:
    with sync.Admin(browser.site.namesrv) as admin:
        admin.topics.create("temporary")
        page = browser.open("/topics/temporary")
        page.get_by_role("button", name="Delete the topic").click()
        dialog = page.get_by_role("dialog")
        assert dialog.get_by_role("button", name="Delete").is_disabled()
        dialog.get_by_role("textbox").fill("temporary")
        dialog.get_by_role("button", name="Delete").click()
        browser.arrives("/topics")
        until(lambda: not admin.topics.exists("temporary"))


def test_what_is_not_there_is_said(browser: Any) -> None:
    browser.open("/topics/nothing-like-it").get_by_text("nothing-like-it does not exist").wait_for()


def test_an_open_page_shows_a_member_that_joins_and_one_that_leaves(browser: Any) -> None:
    with sync.Admin(browser.site.namesrv) as admin:
        admin.groups.create("joiners")
    page = browser.open("/groups/joiners")
    page.get_by_text("No member is connected.").wait_for()
    consumer = sync.PushConsumer("joiners", browser.site.namesrv)
    consumer.subscribe("orders", handler=lambda _: None)
    with consumer:
        page.locator("a[href^='/groups/joiners/members/']").first.wait_for()
    page.get_by_text("No member is connected.").wait_for()


def test_an_open_page_says_within_seconds_that_servers_hang(browser: Any) -> None:
    page = browser.open("/")
    page.get_by_role("link", name="broker-a").wait_for()
    state = page.locator("[data-test=state]")
    assert not state.is_visible()
    os.kill(browser.site.server_pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        state.get_by_text("cannot be read").wait_for()
        took_s = time.monotonic() - began_s
        state.get_by_text("broker-a 0").wait_for()
    finally:
        os.kill(browser.site.server_pid, signal.SIGCONT)
    # The console may take 4.5 s; the rest is for a machine with other work.
    assert took_s < 8
    state.wait_for(state="hidden")


def test_the_browsers_zone_is_used_and_links_of_the_head_come_back(browser: Any) -> None:
    session = browser.page.context.new_cdp_session(browser.page)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    page = browser.open("/audit")
    page.get_by_role("link", name="Asia/Tokyo UTC+09:00").wait_for()
    browser.connects()
    page.evaluate("history.replaceState(null, '', '?filter=orders#status')")
    page.locator("[data-test=language]").click()
    browser.arrives("/audit?filter=orders#status")
    assert browser.heading == "操作记录"
