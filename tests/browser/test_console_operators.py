"""Operators' actions in the browser take effect at the servers, and their searches show results."""

from __future__ import annotations

import json
import re
from typing import Any

from tianzhou import sync
from tianzhou.model import Message
from waiting import until


def only_broker(browser: Any) -> Any:
    with sync.Admin(browser.site.namesrv) as admin:
        (found,) = admin.cluster.status()
    return found


def broker_config(browser: Any) -> dict[str, str]:
    with sync.Admin(browser.site.namesrv) as admin:
        found: dict[str, str] = admin.cluster.broker_config(only_broker(browser).address)
    return found


def change_key(page: Any, value: str) -> None:
    page.get_by_label("New value").fill(value)
    page.get_by_role("button", name="Save").click()


def test_a_cluster_leads_to_its_brokers(browser: Any) -> None:
    browser.open("/cluster").get_by_role("link", name="broker-a").click()
    browser.arrives("/brokers/broker-a?id=0")
    browser.page.get_by_label("Filter").last.fill("bootTimestamp")
    browser.page.get_by_role("cell", name=only_broker(browser).runtime["bootTimestamp"]).wait_for()
    browser.page.get_by_label("Filter").first.fill("fileReserved")
    browser.arrives("/brokers/broker-a?id=0&filter=fileReserved")
    page = browser.open("/brokers/broker-a?id=0&filter=fileReserved")
    page.get_by_role("link", name="fileReservedTime").wait_for()
    assert page.get_by_role("link", name="brokerName").count() == 0
    browser.open("/brokers/broker-x").get_by_text("no broker broker-x; name servers know broker-a 0").wait_for()


def test_a_key_of_a_broker_is_changed_and_one_that_cannot_be_shows_why(browser: Any) -> None:
    page = browser.open("/brokers/broker-a?id=0&key=fileReservedTime")
    change_key(page, "71")
    page.get_by_text("fileReservedTime is 71 now.").wait_for()
    assert broker_config(browser)["fileReservedTime"] == "71"
    before = broker_config(browser)["brokerName"]
    page = browser.open("/brokers/broker-a?id=0&key=brokerName")
    change_key(page, "another")
    page.get_by_text(re.compile("brokerName.*(restart|cannot|not)")).first.wait_for()
    assert broker_config(browser)["brokerName"] == before


def test_write_permission_is_wiped_and_added(browser: Any) -> None:
    def permission() -> int:
        with sync.Admin(browser.site.namesrv) as admin:
            return int(admin.topics.route("orders").queue_datas[0].perm)

    page = browser.open("/brokers/broker-a")
    page.get_by_role("button", name="Wipe write permission").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("broker-a")
    dialog.get_by_role("button", name="Wipe write permission").click()
    page.get_by_text(re.compile(r"\d+ topics? changed at name server")).first.wait_for()
    assert permission() == 4
    page.get_by_role("button", name="Add write permission").click()
    page.get_by_role("dialog").get_by_role("button", name="Add write permission").click()
    until(lambda: permission() == 6)


def test_limits_of_senders_are_set_refused_at_the_field_and_deleted(browser: Any) -> None:
    page = browser.open("/limits")
    page.get_by_label("Name, or *").fill("a b")
    page.get_by_label("Messages a second").fill("500")
    page.get_by_role("button", name="Set limit").click()
    page.get_by_role("alert").get_by_text("limit of topic 'a b': ").wait_for()
    with sync.Admin(browser.site.namesrv) as admin:
        assert admin.send_limits.list() == []
        page.get_by_label("Name, or *").fill("*")
        page.get_by_label("Messages at once").fill("1000")
        page.get_by_role("button", name="Set limit").click()
        page.get_by_text("topic *: 500 messages/s (burst 1000) at broker-a").wait_for()
        with browser.site.tianzhou("limit", "list", "-o", "json") as command:
            assert command.wait() == 0, command.err
            (limit,) = json.loads(command.out)
        names = ("scope", "name", "rate", "burst", "bytes")
        assert [limit[name] for name in names] == ["topic", "*", 500, 1000, None]
        page.get_by_role("row").filter(has_text="topic *").get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        page.get_by_text("topic *: no limit any more at broker-a").wait_for()
        assert admin.send_limits.list() == []
    page = browser.open("/audit")
    page.get_by_role("cell", name="topic *: 500 messages/s (burst 1000) at all brokers").first.wait_for()


def test_clean_ups_are_asked_for_once_more(browser: Any) -> None:
    page = browser.open("/ops")
    for name in ("Clean expired consume queues", "Clean unused topics", "Delete expired commit log"):
        page.get_by_role("button", name=name).click()
        page.get_by_role("dialog").get_by_role("button", name=name).click()
        page.get_by_text("Cleaned: broker-a").last.wait_for()
        page.get_by_role("dialog").wait_for(state="detached")
    browser.open("/audit")
    for name in ("clean expired consume queues", "clean unused topics", "delete expired commit log"):
        assert browser.page.get_by_role("cell", name=name).count() == 2  # begun, and done


def test_kv_entries_and_settings_of_name_servers(browser: Any) -> None:
    page = browser.open("/ops?namespace=shop")
    page.get_by_label("Key of an entry").fill("currency")
    page.get_by_label("Its value").fill("EUR")
    page.get_by_role("button", name="Put").click()
    page.get_by_role("cell", name="currency").wait_for()
    with sync.Admin(browser.site.namesrv) as admin:
        assert admin.cluster.get_kv("shop", "currency") == "EUR"
        assert admin.cluster.kv_entries("shop") == {"currency": "EUR"}
        assert admin.cluster.kv_entries("nothing") == {}
        page.get_by_role("button", name="Delete", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill("currency")
        dialog.get_by_role("button", name="Delete").click()
        until(lambda: admin.cluster.get_kv("shop", "currency") is None)
        page = browser.open("/ops?key=returnOrderTopicConfigToBroker")
        change_key(page, "false")
        page.get_by_text("returnOrderTopicConfigToBroker is false now.").wait_for()
        (values,) = admin.cluster.namesrv_config().values()
        assert values["returnOrderTopicConfigToBroker"] == "false"


def test_producers_and_who_they_are(browser: Any) -> None:
    with sync.Producer("mail-room", browser.site.namesrv) as producer:
        producer.send(Message("orders", b"{}"))
        browser.open("/producers")
        until(lambda: browser.open("/producers").get_by_role("link", name="mail-room").count(), every_s=0.5)
        browser.page.get_by_role("link", name="mail-room").click()
        browser.arrives("/producers?group=mail-room")
        browser.page.get_by_role("cell", name="PYTHON").last.wait_for()
    page = browser.open("/producers?group=nobody-at-all")
    page.get_by_text("No producer of this group is connected.").wait_for()


def test_the_doctor_says_what_ails_a_group(browser: Any) -> None:
    with sync.Admin(browser.site.namesrv) as admin:
        admin.groups.create("lonely")
    page = browser.open("/doctor?group=lonely")
    page.get_by_text("group-without-members").wait_for()
    page.get_by_role("link", name="group lonely").click()
    browser.arrives("/groups/lonely")
    page = browser.open("/doctor")
    page.get_by_text("looked at").wait_for()
    page.get_by_label("Look at").click()
    page.get_by_role("option", name="a topic", exact=True).click()
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Examine").click()
    browser.arrives("/doctor?topic=orders")


def test_the_doctor_speaks_chinese_on_chinese_pages(browser: Any) -> None:
    browser.page.goto(f"{browser.site.url}/language/zh")
    page = browser.open("/doctor?group=unheard-of")
    page.get_by_role("heading", name="没有任何 Broker 认识消费组 unheard-of").wait_for()
    page.get_by_text(re.compile("用以下命令查找.tianzhou group list")).wait_for()
    page.get_by_role("link", name="消费组 unheard-of").click()
    browser.arrives("/groups/unheard-of")
    page.get_by_text("没有 Broker 认识消费组 unheard-of").wait_for()
    assert browser.complaints.pop().endswith("404 (Not Found)")


def test_a_proof_shows_three_numbers_that_are_the_same(browser: Any) -> None:
    page = browser.open("/proof")
    page.get_by_label("Messages").fill("50")
    page.get_by_role("button", name="Prove it").click()
    page.get_by_text("Proven", exact=True).wait_for()
    assert page.get_by_text("50", exact=True).count() >= 3
    with sync.Admin(browser.site.namesrv) as admin:
        until(lambda: not [name for name in admin.topics.names() if name.startswith("tianzhou-proof-")])


def test_a_proof_is_cancelled(browser: Any) -> None:
    def topics() -> list[str]:
        with sync.Admin(browser.site.namesrv) as admin:
            return [name for name in admin.topics.names() if name.startswith("tianzhou-proof-")]

    page = browser.open("/proof")
    page.get_by_label("Messages").fill("20000")
    page.get_by_label("Bytes").fill("16384")
    page.get_by_role("button", name="Prove it").click()
    until(topics)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("alert").filter(has_text="cancelled").first.wait_for()
    until(lambda: not topics())
    browser.open("/audit").get_by_role("cell", name="cancel proof").first.wait_for()
    page = browser.open("/proof")
    page.get_by_text("cancelled").first.wait_for()  # every page shows the result of the last one
    page.get_by_label("Messages").fill("5")
    page.get_by_role("button", name="Prove it").click()
    page.get_by_text("Proven", exact=True).wait_for()


def test_a_page_is_worked_with_the_keyboard_alone(browser: Any) -> None:
    page = browser.open("/producers")
    page.get_by_label("Producer group").last.focus()
    page.keyboard.type("nobody-at-all")
    page.keyboard.press("Enter")
    page.get_by_text("No producer of this group is connected.").wait_for()
    assert page.url.endswith("/producers?group=nobody-at-all")
    page = browser.open("/")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == "/cluster":
            break
    page.keyboard.press("Enter")
    browser.arrives("/cluster")
