"""Messages in a real browser: found, sent again, consumed directly, traced; dead letters; SQL."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tianzhou import sync
from tianzhou.model import Message, TransactionState
from waiting import until

ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


@pytest.fixture
def admin(site: Any) -> Any:
    with sync.Admin(site.namesrv) as found:
        yield found


def send(namesrv: str, topic: str, *bodies: bytes, **values: Any) -> list[str]:
    with sync.Producer("shop", namesrv) as producer:
        return [producer.send(Message(topic, body, **values)).msg_id for body in bodies]


def choose(page: Any, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_a_message_is_found_by_time_by_key_and_by_id(browser: Any, admin: Any) -> None:
    (msg_id,) = send(browser.site.namesrv, "orders", b'{"amount": [5]}', keys="the-key", tags="open")
    page = browser.open("/messages")
    page.get_by_label("Topic", exact=True).fill("orders")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=msg_id).wait_for()
    choose(page, "Look by", "key")
    page.get_by_label("Key", exact=True).fill("the-key")
    page.get_by_label("Key", exact=True).press("Enter")
    page.wait_for_url("**key=the-key**", wait_until="commit")
    browser.connects()
    page.get_by_text("1 message", exact=True).wait_for()
    choose(page, "Look by", "id")
    page.get_by_label("Message id", exact=True).fill(admin.messages.view("orders", msg_id).offset_msg_id)
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**by=id**", wait_until="commit")
    browser.connects()
    page.get_by_role("link", name=msg_id).click()
    page.get_by_text('"amount": [').wait_for()
    page.get_by_role("tab", name="Hex").click()
    page.get_by_text("7b 22 61 6d 6f 75 6e 74").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("Download the body")).click()
    assert Path(download.value.path()).read_bytes() == b'{"amount": [5]}'


def test_a_message_is_sent_again(browser: Any, admin: Any) -> None:
    (msg_id,) = send(browser.site.namesrv, "orders", b"once more", keys="again", properties={"colour": "red"})
    page = browser.open(f"/message?topic=orders&id={msg_id}")
    page.get_by_role("button", name="Send again").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text(re.compile(f"Message to send again: {msg_id}. Topic orders gets new messages")).wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="hidden")
    assert len(admin.messages.by_key("orders", "again")) == 1, "a cancelled question sends nothing"
    page.get_by_role("button", name="Send again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send", exact=True).click()
    page.get_by_text(re.compile("SEND_OK in queue")).wait_for()
    found = until(lambda: [one for one in admin.messages.by_key("orders", "again") if one.msg_id != msg_id])
    assert (found[0].body, found[0].properties["colour"], found[0].properties["origin_id"]) == (
        b"once more", "red", msg_id,
    )  # fmt: skip
    browser.open("/audit").get_by_text("send message again").first.wait_for()


def test_what_a_group_did_with_a_message_and_it_consumes_it_directly(browser: Any, admin: Any) -> None:
    (msg_id,) = send(browser.site.namesrv, "orders", b"for one")
    seen: list[str] = []
    consumer = sync.PushConsumer("tracked", browser.site.namesrv)
    consumer.subscribe("orders", handler=lambda one: seen.append(one.msg_id))
    with consumer:
        message = admin.messages.view("orders", msg_id)
        until(lambda: [one for one in admin.messages.tracks(message) if one.group == "tracked"], within_s=20)
        page = browser.open(f"/message?topic=orders&id={msg_id}")
        page.get_by_role("link", name="tracked").wait_for()
        before = seen.count(msg_id)
        choose(page, "Consumer group", "tracked")
        page.locator("label").filter(has_text="Member").get_by_text("@").wait_for()
        page.get_by_role("button", name="Consume directly").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text(re.compile("of tracked consumes message .* No offset moves")).wait_for()
        dialog.get_by_role("button", name="Consume directly").click()
        page.get_by_text(re.compile("CR_SUCCESS after")).wait_for()
        assert seen.count(msg_id) == before + 1


def test_dead_letters_are_exported_and_sent_again(browser: Any, admin: Any) -> None:
    admin.topics.create("refunds", read_queue_nums=1, write_queue_nums=1)

    def fail(_: object) -> None:
        raise ValueError("not today")

    consumer = sync.PushConsumer("careless", browser.site.namesrv, max_reconsume_times=0)
    consumer.subscribe("refunds", handler=fail)
    with consumer:
        ids = send(browser.site.namesrv, "refunds", b"0", b"1", b"2", keys="refund")
        until(lambda: admin.dead_letters.count("careless") == 3, within_s=20)
    page = browser.open("/dead-letters?group=careless")
    page.get_by_text("3 dead letters; 3 are shown").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert sorted(line["body"] for line in lines) == ["0", "1", "2"]
    assert {line["msgId"] for line in lines} == set(ids)
    row = page.get_by_role("row").filter(has_text=ids[1])
    row.get_by_role("checkbox").click()
    page.get_by_role("button", name="Send selected").click()
    question = page.get_by_role("dialog").filter(has_text="Dead letters of careless to send again: 1")
    question.get_by_text("They go to careless alone, as new messages.").wait_for()
    question.get_by_role("button", name="Send").click()
    page.get_by_text("1 of 1 dead letters are sent again.").wait_for()

    def sent() -> list[Any]:
        # Only the group gets them, through its retry topic.
        assert len(admin.messages.by_time("refunds")) == 3
        found = admin.messages.by_time("%RETRY%careless")
        return [one for one in found if one.properties.get("origin_kind") == "dead-letter"]

    assert [one.body for one in until(sent)] == [b"1"]
    page.get_by_role("button", name="Send all").click()
    question = page.get_by_role("dialog").filter(has_text="Dead letters of careless to send again: 3")
    question.get_by_role("row").filter(has_text="refunds").get_by_role("cell", name="3", exact=True).wait_for()
    assert question.get_by_role("button", name="Send").is_disabled(), "the name of the group is not typed yet"
    question.get_by_role("textbox").fill("careless")
    question.get_by_role("button", name="Send").click()
    page.get_by_text("3 of 3 dead letters are sent again.").wait_for()
    assert until(lambda: len(sent()) == 4)


def test_a_trace_is_drawn(browser: Any, admin: Any) -> None:
    with sync.Producer("traced", browser.site.namesrv, trace=True) as producer:
        msg_id = producer.send(Message("orders", b"traced")).msg_id
    until(lambda: admin.topics.exists("RMQ_SYS_TRACE_TOPIC") and admin.messages.trace(msg_id), within_s=20)
    page = browser.open(f"/trace?topic=orders&id={msg_id}")
    page.get_by_role("cell", name="sent", exact=True).wait_for()
    page.get_by_role("cell", name="stored", exact=True).wait_for()
    assert page.locator("canvas").count() == 1


def committed(admin: Any, msg_id: str) -> list[Any]:
    """Return the messages of topic orders with an id."""
    return [one for one in admin.messages.by_time("orders", 0, 1 << 60, limit=500) if one.msg_id == msg_id]


def test_what_waits_is_shown(browser: Any, admin: Any) -> None:
    with sync.TransactionProducer(
        "undecided", browser.site.namesrv, check=lambda _: TransactionState.UNKNOWN
    ) as producer:
        half = producer.send_in_transaction(Message("orders", b"half"), lambda *_: TransactionState.UNKNOWN)
        later = producer.send(Message("orders", b"later", delay_level=18))
        until(lambda: admin.transactions.open()[0].halves)
        page = browser.open("/transactions")
        page.get_by_role("row").filter(has_text="undecided").get_by_text(half.msg_id).wait_for()
        page.get_by_role("link", name=half.msg_id).click()
        page.get_by_role("heading", name="Half message").wait_for()
        browser.connects()
        page.get_by_role("button", name="Commit").click()
        page.get_by_role("dialog").get_by_role("button", name="Commit").click()
        browser.arrives("/transactions")
        assert [one.body for one in until(lambda: committed(admin, half.msg_id))] == [b"half"]
        page = browser.open("/delay")
        row = page.get_by_role("row").filter(has_text=later.msg_id)
        row.get_by_text("18", exact=True).wait_for()
        row.get_by_role("link", name=later.msg_id).click()
        page.get_by_role("heading", name="Delayed message", exact=True).wait_for()
        page.get_by_text("later", exact=True).wait_for()


def test_sql_is_answered_with_rows_or_with_words(browser: Any) -> None:
    query = "SELECT tags, count(*) AS n FROM orders WHERE keys LIKE 'order-%' GROUP BY tags"
    page = browser.open(f"/sql?sql={quote(query)}")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("1 row", exact=True).wait_for()
    page.get_by_role("cell", name="10", exact=True).wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert Path(download.value.path()).read_text().splitlines() == ["tags,n", "paid,10"]
    page.get_by_label("SQL", exact=True).fill("SELECT * FROM read_csv('/etc/passwd')")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("file system operations are disabled").wait_for()
    page.get_by_label("SQL", exact=True).fill(ENDLESS)
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled.").wait_for()
    assert "RECURSIVE" in page.url


@pytest.mark.parametrize("path", ["/messages?topic=orders&begin=soon", "/dead-letters?group=g&end=never"])
def test_what_is_no_time_is_said(browser: Any, path: str) -> None:
    browser.open(path).get_by_text("is no time; write it as").wait_for()


@pytest.mark.parametrize("topic", ["x'+alert(1)+'", '"><img src=x>', "{{ 1 }}"])
def test_names_of_strangers_are_only_text(browser: Any, topic: str) -> None:
    browser.page.on("dialog", lambda dialog: browser.complaints.append(dialog.message))
    for path in (f"/messages?topic={quote(topic)}", f"/dead-letters?group={quote(topic)}", f"/sql?sql={quote(topic)}"):
        browser.open(path)
