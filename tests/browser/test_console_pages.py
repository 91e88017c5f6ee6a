"""Topics and groups in a real browser: the actions of a page change the cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

import httpx
from console_site import Site

from tianzhou import sync
from tianzhou.model import Message, MessageQueue
from waiting import until


def described(browser: Any, topic: str) -> dict[str, Any]:
    """Return the command line's description of a topic on the only broker."""
    with browser.site.tianzhou("topic", "describe", topic, "-o", "json") as command:
        assert command.wait() == 0, command.err
        found: dict[str, Any] = json.loads(command.out)["brokers"]["broker-a"]
    return found


def cells(page: Any, part: str) -> list[list[str]]:
    """Return the texts of a table's rows."""
    rows = page.locator(f"[data-part={part}] tbody tr")
    rows.first.wait_for()
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def test_a_topic_is_added_and_a_name_that_exists_is_refused(browser: Any) -> None:
    page = browser.open("/topics")
    page.get_by_role("button", name="Add a topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topic", exact=True).fill("%RETRY%mine")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_text("Brokers create the topics that begin with %RETRY% themselves; choose another name.").wait_for()
    dialog.get_by_label("Topic", exact=True).fill("invoices")
    problem = dialog.get_by_text("Give a whole number from 1 to 65,535.")
    for number in ("99999999", ""):
        dialog.get_by_label("Read queues").fill(number)
        problem.wait_for()
        dialog.get_by_role("button", name="Create").click()
        assert dialog.get_by_label("Read queues").input_value() == number, "no bound replaces what was typed"
    dialog.get_by_label("Read queues").fill("3")
    problem.wait_for(state="detached")
    dialog.get_by_label("Write queues").fill("3")
    for field, option in (("Where", "broker broker-a"), ("Message type", "ordered")):
        dialog.get_by_label(field).click()
        page.get_by_role("option", name=option).click()
    dialog.get_by_role("button", name="Create").click()
    page.get_by_text("Topic invoices is there.").wait_for()
    page.get_by_role("button", name="Add a topic").click()
    dialog.get_by_label("Topic", exact=True).fill("invoices")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_text("Topic invoices exists already. Nothing was changed.").wait_for()
    dialog.get_by_role("link", name="Open topic invoices").click()
    browser.arrives("/topics/invoices")
    assert described(browser, "invoices") == {
        "read_queue_nums": 3, "write_queue_nums": 3, "perm": 6, "order": False, "attributes": {"message.type": "FIFO"},
    }  # fmt: skip
    audit = browser.open("/audit?filter=create topic")
    audit.get_by_role("cell", name="invoices: read_queue_nums 3").first.wait_for()


def test_fewer_queues_are_read_once_the_group_has_consumed_them(browser: Any) -> None:
    with sync.Admin(browser.site.namesrv) as admin, sync.Producer("shop", browser.site.namesrv) as producer:
        admin.topics.create("parcels", read_queue_nums=4, write_queue_nums=4)
        admin.groups.create("carrier")
        for queue_id in range(4):
            producer.send(Message("parcels", b"x"), MessageQueue("parcels", "broker-a", queue_id))
        admin.groups.reset("carrier", "parcels", to_earliest=True)
        page = browser.open("/topics")
        page.get_by_role("button", name="Update a topic").click()
        page.get_by_role("dialog").get_by_label("Topic").fill("parcels")
        page.get_by_role("dialog").get_by_role("button", name="Open its settings").click()
        browser.arrives("/topics/parcels#configuration")
        page.get_by_label("Read queues").fill("2")
        page.get_by_label("Write queues").fill("2")
        page.get_by_role("button", name="Show what would change").click()
        assert cells(page, "change") == [
            ["broker-a", "Read queues", "4", "2"],
            ["broker-a", "Write queues", "4", "2"],
        ]
        assert cells(page, "dropped") == [
            ["broker-a:2", "1", "carrier: 1"],
            ["broker-a:3", "1", "carrier: 1"],
        ]
        page.get_by_text("1. Write 2 queues on broker-a.").wait_for()
        page.get_by_text("2. Read 2 queues on broker-a, once every group has consumed the queues that go.").wait_for()
        (config,) = admin.topics.config("parcels").values()
        assert config.write_queue_nums == 4, "a preview changes nothing"
        page.get_by_role("button", name="Apply").click()
        page.get_by_text("Topic parcels still reads the queues that go. Unread: carrier: 2").wait_for()
        (config,) = admin.topics.config("parcels").values()
        assert (config.read_queue_nums, config.write_queue_nums) == (4, 2)
        assert admin.groups.lag("carrier", "parcels").total == 4, "no message is out of sight"
        page = browser.open("/topics/parcels")
        page.get_by_text("broker-a reads queues that are not written any more: 2-3.").wait_for()
        admin.groups.reset("carrier", "parcels", to_latest=True)
        page.get_by_label("Read queues").fill("2")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_role("button", name="Apply").click()
        page.get_by_text("broker-a reads queues").wait_for(state="detached")
        found = described(browser, "parcels")
        assert (found["read_queue_nums"], found["write_queue_nums"]) == (2, 2)


def test_a_group_is_added_and_one_that_exists_keeps_its_retries(browser: Any) -> None:
    with sync.Admin(browser.site.namesrv) as admin:
        admin.groups.create("couriers", retry_max_times=1)
        page = browser.open("/groups")
        page.get_by_role("button", name="Add a consumer group").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Consumer group").fill("couriers")
        dialog.get_by_role("button", name="Create").click()
        dialog.get_by_role("link", name="Open group couriers").wait_for()
        (config,) = admin.groups.config("couriers").values()
        assert config.retry_max_times == 1
        dialog.get_by_role("link", name="Open group couriers").click()
        browser.arrives("/groups/couriers")
        page.get_by_label("Deliveries before it is a dead letter").fill("")
        page.get_by_text("Give a whole number from -1 to 1,000.").wait_for()
        page.get_by_label("Deliveries before it is a dead letter").fill("5")
        page.get_by_role("button", name="Show what would change").click()
        assert cells(page, "change") == [["broker-a", "Deliveries before it is a dead letter", "1", "5"]]
        page.get_by_role("button", name="Apply").click()
        until(lambda: [one.retry_max_times for one in admin.groups.config("couriers").values()] == [5])


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
    # The console may take 4.5 s; the rest is for a busy machine.
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


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/topics/nope", "There is no topic nope."),
        (f"/topics/{quote('%RETRY%nope', safe='')}", "There is no topic %RETRY%nope."),
        (f"/topics/{quote('two words')}", "There is no topic two words."),
        ("/groups/nope", "No broker knows consumer group nope."),
        ("/groups/nope/members/somebody", "No broker knows consumer group nope."),
    ],
)
def test_a_missing_topic_or_group_is_a_404_in_the_frame(site: Site, path: str, said: str) -> None:
    page = httpx.get(f"{site.url}{path}", trust_env=False, timeout=30)
    assert (page.status_code, said in page.text) == (404, True)
    assert "Dashboard" in page.text, "the menu of the frame"
    operations = ("Delete the", "Reset offsets", "Send a message", "Show what would change")
    assert [text for text in operations if text in page.text] == []


def test_a_page_that_exists_offers_operations(browser: Any) -> None:
    for path in ("/topics/orders", "/groups/billing"):
        assert httpx.get(f"{browser.site.url}{path}", trust_env=False, timeout=30).status_code == 200
        browser.open(path).get_by_role("button", name="Show what would change").wait_for()


def test_a_missing_topic_leads_to_the_others(browser: Any) -> None:
    browser.page.goto(f"{browser.site.url}/language/zh")
    page = browser.open("/topics/nothing-like-it")
    page.get_by_text("没有主题 nothing-like-it").wait_for()
    page.get_by_role("link", name="所有主题").click()
    browser.arrives("/topics")
    # Chromium logs an error for each page with status 404.
    complaints, browser.complaints[:] = list(browser.complaints), []
    assert [re.findall("status of (\\d+)", one) for one in complaints] == [["404"]]
