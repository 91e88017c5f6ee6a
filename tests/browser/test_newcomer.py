"""A newcomer's path: the README's commands, then the console: find the message, begin again, rescue a dead letter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_site import HEADING, Browser, Site
from processes import serve

from tianzhou import sync
from waiting import until


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    pytest.importorskip("nicegui", reason="the console's packages are not installed")
    with serve(tmp_path, "--console", "--console-port", 0) as server:
        ready = server.ready()
        yield Site(ready["console"], ready["namesrv"], tmp_path)


def command(place: Site, *args: object) -> str:
    """What a command prints; it has to end well."""
    with place.tianzhou(*args) as process:
        assert process.wait() == 0, process.err
        return process.out


def test_from_the_first_command_to_a_rescued_dead_letter(place: Site, chromium: Any) -> None:
    assert "topic orders with 4 queues" in command(place, "topic", "create", "orders", "--queues", 4)
    sent = command(place, "produce", "orders", "--body", '{"id": 1}', "--tags", "created", "--keys", "1")
    assert sent.startswith("SEND_OK")
    consumed = command(place, "consume", "orders", "--group", "billing", "--from-beginning", "--max", 1)
    assert 'tags=created keys=1 {"id": 1}' in consumed

    context = chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en-US")
    browser = Browser(context.new_page(), place)
    browser.page.set_default_timeout(30_000)
    page = browser.open("/messages?topic=orders&by=key&key=1")
    page.get_by_role("link", name=re.compile("^[0-9A-F]{32}$")).click()
    page.get_by_text('"id": 1').wait_for()

    with sync.Admin(place.namesrv) as admin:
        assert until(lambda: admin.groups.lag("billing", "orders").total == 0) is True
        page = browser.open("/groups/billing")
        page.get_by_label("To", exact=True).click()
        page.get_by_role("option", name="the first message").click()
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_text("4 queues of orders are reset.").wait_for()
        assert admin.groups.lag("billing", "orders").total == 1

        def fail(_: object) -> None:
            raise ValueError("not today")

        careless = sync.PushConsumer("billing", place.namesrv, max_reconsume_times=0)
        careless.subscribe("orders", handler=fail)
        with careless:
            until(lambda: admin.dead_letters.count("billing") == 1, "the message that failed is a dead letter")
        page = browser.open("/dead-letters?group=billing")
        page.get_by_text("1 dead letters; 1 are shown").wait_for()
        page.get_by_role("button", name="Send all").click()
        page.get_by_text("1 of 1 dead letters are sent again.").wait_for()
    again = command(place, "consume", "orders", "--group", "billing", "--max", 1)
    assert '{"id": 1}' in again
    assert page.locator(HEADING).count() == 1
    context.close()


def test_the_same_path_at_a_terminal(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        place = Site("", server.ready()["namesrv"], tmp_path)
        command(place, "topic", "create", "orders", "--queues", 4)
        sent = command(place, "produce", "orders", "--body", '{"id": 1}', "--tags", "created", "--keys", "1")
        msg_id = sent.split()[1]
        group = ("consume", "orders", "--group", "billing", "--max", 1)
        assert '{"id": 1}' in command(place, *group, "--from-beginning")
        assert msg_id in command(place, "message", "query", "orders", "--key", 1)
        command(place, "offset", "reset", "billing", "-t", "orders", "--to", "earliest")
        assert '{"id": 1}' in command(place, *group)

        def fail(_: object) -> None:
            raise ValueError("not today")

        command(place, "offset", "reset", "billing", "-t", "orders", "--to", "earliest")
        careless = sync.PushConsumer("billing", place.namesrv, max_reconsume_times=0)
        careless.subscribe("orders", handler=fail)
        with careless, sync.Admin(place.namesrv) as admin:
            until(lambda: admin.dead_letters.count("billing") == 1, "the message that failed is a dead letter")
        assert "1 dead letter of group billing sent again" in command(place, "dlq", "resend", "billing", "--yes")
        assert '{"id": 1}' in command(place, *group)
        with place.tianzhou("doctor", "group", "billing") as process:
            process.wait()
            assert "dead" in process.out, "the doctor names what was given up"


def test_the_readmes_show_that_path() -> None:
    root = Path(__file__).resolve().parents[2]
    lines = (
        "serve --data ./data", "topic create orders --queues 4", "produce orders --body",
        "consume orders --from-beginning", "consume orders --group billing --from-beginning",
        "message query orders --key 1", "offset reset billing -t orders --to earliest", "dlq resend billing",
    )  # fmt: skip
    for name in ("README.md", "README.zh.md"):
        readme = (root / name).read_text(encoding="utf-8")
        assert [line for line in lines if f"tianzhou {line}" not in readme] == []
        assert "serve --console" in readme
