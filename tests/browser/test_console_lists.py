"""The lists of topics and groups in a real browser: figures, order, filter, and the operations of a row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from console_site import Browser, Site

from tianzhou import sync
from tianzhou.model import Message
from waiting import until

TOPICS = {"list-a": (3, 7), "list-b": (1, 30), "list-c": (12, 0)}
"""Numbers of queues and messages, by topic."""


@pytest.fixture(scope="module")
def filled(site: Site) -> Iterator[Site]:
    """Yield the cluster with the topics of `TOPICS`, and with a group whose member has consumed one of these topics."""
    with sync.Admin(site.namesrv) as admin, sync.Producer("lister", site.namesrv) as producer:
        for topic, (queues, messages) in TOPICS.items():
            admin.topics.create(topic, read_queue_nums=queues, write_queue_nums=queues)
            for number in range(messages):
                producer.send(Message(topic, b"%d" % number))
        consumer = sync.PushConsumer("list-readers", site.namesrv, orderly=True)
        consumer.subscribe("list-a", handler=lambda _: None)
        with consumer:
            until(lambda: (found := admin.groups.lag("list-readers", "list-a")).queues and found.total == 0)
            yield site


def column(page: Any, number: int) -> list[str]:
    found: list[str] = page.locator(f"tbody tr td:nth-child({number})").all_inner_texts()
    return [text.strip() for text in found]


def shows(page: Any, number: int, *texts: str) -> None:
    """Wait until a column has exactly these texts."""
    try:
        until(lambda: page.wait_for_timeout(50) or column(page, number) == [*texts], within_s=30)
    except AssertionError:
        assert column(page, number) == [*texts]


def row(page: Any, name: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def choose(page: Any, menu: str, operation: str) -> None:
    page.get_by_role("button", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=operation).click()


def test_topics_are_shown_with_their_figures_and_sorted_by_each(browser: Browser, filled: Site) -> None:
    page = browser.open("/topics?filter=list-")
    shows(page, 1, "list-a", "list-b", "list-c")
    shows(page, 4, "7", "30", "0")
    assert (column(page, 2), column(page, 3)) == (["normal"] * 3, ["3", "1", "12"])
    assert re.fullmatch(r"\d+ (s|min) ago", row(page, "list-a").locator("td").nth(6).inner_text())
    until(lambda: page.wait_for_timeout(50) or column(page, 6) == ["1", "0", "0"])
    for heading, down in (("Queues", "cab"), ("Messages", "bac"), ("Groups", "abc"), ("Topic", "abc")):
        page.get_by_role("columnheader", name=heading, exact=True).click()
        shows(page, 1, *(f"list-{one}" for one in down))
    page.get_by_role("columnheader", name="Queues", exact=True).click()
    page.get_by_role("columnheader", name="Queues", exact=True).click()
    shows(page, 1, "list-b", "list-a", "list-c")
    browser.arrives("/topics?filter=list-&sort=queues")
    page.reload()
    shows(page, 1, "list-b", "list-a", "list-c")


def test_the_rate_and_its_line_follow_what_is_sent(browser: Browser, filled: Site) -> None:
    page = browser.open("/topics?filter=list-b")
    with sync.Producer("lister", filled.namesrv) as producer:

        def moves() -> bool:
            producer.send(Message("list-b", b"more"))
            page.wait_for_timeout(100)
            return float(column(page, 5)[0].replace("< ", "") or 0) > 0 and page.locator("tbody polyline").count() == 1

        until(moves)


def test_a_list_is_filtered_by_words_and_kind(browser: Browser, filled: Site) -> None:
    page = browser.open("/topics")
    page.get_by_label("Filter").fill("LIST-")
    shows(page, 1, "list-a", "list-b", "list-c")
    page.get_by_role("checkbox", name=re.compile("^Retry")).click()
    shows(page, 1, "%RETRY%list-readers", "list-a", "list-b", "list-c")
    page.get_by_role("checkbox", name=re.compile("^Normal")).click()
    shows(page, 1, "%RETRY%list-readers")
    browser.arrives("/topics?filter=LIST-&kind=retry")
    page = browser.open("/topics?kind=system&filter=TBW")
    shows(page, 1, "TBW102")
    page.get_by_role("button", name="Operations of topic TBW102").click()
    page.get_by_role("menuitem").first.wait_for()
    assert page.get_by_role("menuitem").count() == 4, "a topic of the system is only looked at"
    page.get_by_role("menuitem", name="Status").click()
    browser.arrives("/topics/TBW102#status")
    page.locator(".q-card:focus").get_by_role("heading", name="Queues and offsets").wait_for()
    assert page.get_by_role("button", name="Delete the topic").count() == 0


def test_a_list_is_worked_with_the_keyboard_alone(browser: Browser, filled: Site) -> None:
    page = browser.open("/topics?filter=list-")
    heading = page.get_by_role("columnheader", name="Topic", exact=True)
    assert heading.get_attribute("aria-sort") == "none"
    heading.focus()
    for key, order, names in (("Enter", "ascending", "abc"), ("Space", "descending", "cba")):
        page.keyboard.press(key)
        page.locator(f"th[aria-sort={order}]:focus").wait_for()
        shows(page, 1, *(f"list-{one}" for one in names))
    button = page.get_by_role("button", name="Operations of topic list-b")
    button.focus()
    page.keyboard.press("Enter")
    page.locator(".q-menu:focus").get_by_role("menuitem", name="Status").wait_for()
    before = column(page, 7)
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.locator("[role=menuitem]:focus").filter(has_text="Route").wait_for()
    until(lambda: page.wait_for_timeout(50) or column(page, 7) != before)
    page.locator("[role=menuitem]:focus").filter(has_text="Route").wait_for()  # the open menu survives new figures
    page.keyboard.press("Escape")
    page.locator("button:focus[aria-label='Operations of topic list-b']").wait_for()
    page.keyboard.press("Enter")
    page.locator(".q-menu:focus").wait_for()
    page.get_by_role("menuitem", name="Route").focus()
    page.keyboard.press("Enter")
    browser.arrives("/topics/list-b#route")
    page.locator(".q-card:focus").get_by_role("heading", name="Route").wait_for()


def test_groups_are_shown_with_members_kind_and_lag(browser: Browser, filled: Site) -> None:
    page = browser.open("/groups?filter=list-")
    shows(page, 2, "push · clustering · in order")
    shows(page, 3, "1")
    assert (column(page, 4), column(page, 5), column(page, 6)) == (["1"], ["0"], [""])
    with sync.Admin(filled.namesrv) as admin:
        admin.groups.create("list-idle")
    page = browser.open("/groups?filter=list-&sort=members&desc=1")
    shows(page, 1, "list-readers", "list-idle")
    page.get_by_role("columnheader", name="Members", exact=True).click()
    shows(page, 1, "list-idle", "list-readers")


def dialog_with(page: Any, text: str) -> Any:
    return page.get_by_role("dialog").filter(has_text=text).last


def lag_of(site: Site, group: str, topic: str) -> Any:
    """Return a group's lag from the command line."""
    with site.tianzhou("group", "lag", group, "-t", topic, "-o", "json") as command:
        assert command.wait() == 0, command.err
        return json.loads(command.out)


def test_unread_messages_are_skipped_after_a_preview_and_the_skip_is_undone(browser: Browser, filled: Site) -> None:
    with sync.Admin(filled.namesrv) as admin:
        admin.groups.create("list-late")
        admin.topics.create("list-unread", read_queue_nums=2, write_queue_nums=2)
        with sync.Producer("lister", filled.namesrv) as producer:
            for _ in range(6):
                producer.send(Message("list-unread", b"unread"))
        until(lambda: sum(one.max_offset for one in admin.topics.stats("list-unread").offset_table.values()) == 6)
        admin.groups.reset("list-late", "list-unread", to_earliest=True)
        page = browser.open("/groups?filter=list-late")
        shows(page, 5, "6")
        assert re.fullmatch(r"\d+ s ago", column(page, 6)[0]), "how long the oldest one waits"
        choose(page, "Operations of group list-late", "Skip unread messages")
        choice = dialog_with(page, "list-unread: 6 unread")
        choice.get_by_role("button", name="Skip unread messages").click()
        preview = dialog_with(page, "messages skipped: 6; messages consumed again: 0; queues moved: 2.")
        preview.get_by_role("row").filter(has_text="broker-a").nth(1).wait_for()
        preview.get_by_role("button", name="Cancel").click()
        preview.wait_for(state="detached")
        assert admin.groups.lag("list-late").total == 6
        choose(page, "Operations of group list-late", "Skip unread messages")
        choice.get_by_role("button", name="Skip unread messages").click()
        preview.get_by_role("button", name="Skip unread messages").click()
        done = dialog_with(page, "list-late goes on behind the last message of list-unread.")
        done.wait_for()
        assert admin.groups.lag("list-late").total == 0
        done.get_by_role("button", name="Undo").click()
        undo = dialog_with(page, "messages skipped: 0; messages consumed again: 6; queues moved: 2.")
        undo.get_by_role("button", name="Undo", exact=True).click()
        page.get_by_text("The earlier offsets of list-late in list-unread are set again.").wait_for()
        queues = lag_of(filled, "list-late", "list-unread")["queues"]
        assert [(one["consumer_offset"], one["lag"]) for one in queues] == [(0, 3), (0, 3)]
        done.get_by_role("button", name="Close").click()
        shows(page, 5, "6")


def test_the_audit_log_undoes_a_reset_unless_a_later_change_would_lose_messages(browser: Browser, filled: Site) -> None:
    with sync.Admin(filled.namesrv) as admin:
        admin.groups.create("list-undo")
        admin.topics.create("list-moved", read_queue_nums=1, write_queue_nums=1)
        with sync.Producer("lister", filled.namesrv) as producer:
            for _ in range(6):
                producer.send(Message("list-moved", b"moved"))
        until(lambda: [one.max_offset for one in admin.topics.stats("list-moved").offset_table.values()] == [6])
        admin.groups.reset("list-undo", "list-moved", to_offset=2)
        page = browser.open("/groups/list-undo")
        page.get_by_role("button", name="Reset offsets").click()
        preview = dialog_with(page, "messages skipped: 4; messages consumed again: 0; queues moved: 1.")
        preview.get_by_role("button", name="Reset offsets").click()
        dialog_with(page, "1 queues of list-moved are reset.").get_by_role("button", name="Close").click()
        assert admin.groups.lag("list-undo").total == 0
        admin.groups.reset("list-undo", "list-moved", to_earliest=True)  # by another tool, to an earlier offset
        page = browser.open("/audit?filter=list-undo in list-moved to latest")
        page.get_by_role("button", name="Undo").click()
        refused = dialog_with(page, "Not undone.")
        refused.get_by_role("cell", name="refused: a later change moved the group further back").wait_for()
        assert refused.get_by_role("button", name="Undo").count() == 0
        refused.get_by_role("button", name="Close").click()

        admin.groups.reset("list-undo", "list-moved", to_latest=True)
        page.get_by_role("button", name="Undo").click()
        dialog_with(page, "Undo: list-undo").get_by_role("button", name="Undo").click()
        until(lambda: admin.groups.lag("list-undo").queues[0].consumer_offset == 2)
        # The page reloads itself after an undo.
        page.get_by_role("cell", name="undone", exact=True).wait_for()
        browser.open("/audit?filter=list-undo").get_by_role("cell", name="undone", exact=True).wait_for()
        page.get_by_role("cell", name="undo reset of offsets").first.wait_for()


def test_the_lag_of_each_group_by_queue_opens_from_a_topics_row(browser: Browser, filled: Site) -> None:
    page = browser.open("/topics?filter=list-a")
    choose(page, "Operations of topic list-a", "Lag by queue")
    dialog = dialog_with(page, "Lag by queue: list-a")
    dialog.get_by_text("Lag 0", exact=True).wait_for()
    found = [row.get_by_role("cell").all_inner_texts() for row in dialog.get_by_role("row").all()]
    expected = lag_of(filled, "list-readers", "list-a")["queues"]
    assert [row for row in found if row] == [
        [
            one["broker"],
            *(str(one[name]) for name in ("queue", "consumer_offset", "broker_offset", "lag")),
            one["member"],
        ]
        for one in expected
    ]
    dialog.get_by_role("link", name="list-readers").wait_for()
    dialog.get_by_role("button", name="Reset offsets").click()
    dialog_with(page, "Reset offsets: list-a").get_by_label("To", exact=True).wait_for()


def test_a_topic_is_deleted_from_the_menu_once_its_name_is_typed(browser: Browser, filled: Site) -> None:
    with sync.Admin(filled.namesrv) as admin:
        admin.topics.create("list-gone")
        page = browser.open("/topics?filter=list-gone")
        page.get_by_role("link", name="list-gone").or_(page.get_by_text("There is nothing here.")).wait_for()
        row(page, "list-gone").wait_for()
        choose(page, "Operations of topic list-gone", "Delete")
        dialog = page.get_by_role("dialog")
        assert dialog.get_by_role("button", name="Delete").is_disabled()
        dialog.get_by_role("textbox").fill("list-gone")
        dialog.get_by_role("button", name="Delete").click()
        page.get_by_text("There is nothing here.").wait_for()
        until(lambda: not admin.topics.exists("list-gone"))
    page = browser.open("/topics?filter=list-c")
    choose(page, "Operations of topic list-c", "Skip unread messages")
    page.get_by_text("No group has consumed a topic here: list-c").wait_for()


def test_operations_are_chinese_on_chinese_pages(browser: Browser, filled: Site) -> None:
    browser.page.goto(f"{browser.site.url}/language/zh")
    page = browser.open("/topics?filter=list-a")
    shows(page, 2, "普通")
    page.get_by_role("button", name="主题 list-a 的操作").click()
    page.get_by_role("menuitem").first.wait_for()
    items = [text.split("\n")[-1] for text in page.get_by_role("menuitem").all_inner_texts()]
    assert items == ["状态", "路由", "消费者", "消息", "各队列堆积", "配置", "发送消息", "重置位点", "跳过堆积", "删除"]
    page.get_by_role("menuitem", name="发送消息").click()
    browser.arrives("/topics/list-a#send")
    page.locator(".q-card:focus").get_by_role("heading", name="发送消息").wait_for()
    page = browser.open("/groups?filter=list-readers")
    shows(page, 2, "推 · 集群 · 顺序")
