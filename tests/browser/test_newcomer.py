"""A newcomer's path: the README's commands, then the console: find the message, start again, resend a dead letter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_site import HEADING, Browser, Site
from processes import Tianzhou, serve

from tianzhou import sync
from waiting import until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tianzhou]:
    """Run `tianzhou serve --console` as a newcomer types it."""
    pytest.importorskip("nicegui", reason="the console's packages are not installed")
    with serve(tmp_path_factory.mktemp("newcomer"), "--console", "--console-port", 0) as server:
        yield server


@pytest.fixture(scope="module")
def place(served: Tianzhou, tmp_path_factory: pytest.TempPathFactory) -> Site:
    ready = served.ready()
    return Site(ready["console"], ready["namesrv"], tmp_path_factory.mktemp("commands"))


def command(place: Site, *args: object) -> str:
    """Return the output of a command; it must end with 0."""
    with place.tianzhou(*args) as process:
        assert process.wait() == 0, process.err
        return process.out


def test_from_the_first_command_to_a_rescued_dead_letter(place: Site, chromium: Any) -> None:
    assert "topic orders with 4 queues" in command(place, "topic", "create", "orders", "--queues", 4)
    sent = command(place, "produce", "orders", "--body", '{"id": 1}', "--tags", "created", "--keys", "1")
    assert sent.startswith("SEND_OK")
    consumed = command(place, "consume", "orders", "--group", "billing", "--from-beginning", "--max", 1)
    assert 'tags=created keys=1 {"id": 1}' in consumed

    browser = Browser(chromium.new_page(), place)
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
        page.get_by_role("dialog").get_by_role("button", name="Reset offsets").click()
        page.get_by_text("4 queues of orders are reset.").wait_for()
        assert admin.groups.lag("billing", "orders").total == 1

        def fail(_: object) -> None:
            raise ValueError("not today")

        careless = sync.PushConsumer("billing", place.namesrv, max_reconsume_times=0)
        careless.subscribe("orders", handler=fail)
        with careless:
            until(lambda: admin.dead_letters.count("billing") == 1, "the message that failed is a dead letter")
        page = browser.open("/dead-letters?group=billing")
        page.get_by_text("1 dead letter", exact=True).wait_for()
        page.get_by_role("button", name="Send all").click()
        question = page.get_by_role("dialog")
        question.get_by_role("textbox").fill("billing")
        question.get_by_role("button", name="Send").click()
        page.get_by_text("1 of 1 dead letters are sent again.").wait_for()
    again = command(place, "consume", "orders", "--group", "billing", "--max", 1)
    assert '{"id": 1}' in again
    assert page.locator(HEADING).count() == 1
    page.close()


def test_the_same_path_at_a_terminal(place: Site) -> None:
    command(place, "topic", "create", "parcels", "--queues", 4)
    sent = command(place, "produce", "parcels", "--body", '{"id": 1}', "--tags", "created", "--keys", "1")
    msg_id = sent.split()[1]
    group = ("consume", "parcels", "--group", "delivery", "--max", 1)
    assert '{"id": 1}' in command(place, *group, "--from-beginning")
    assert msg_id in command(place, "message", "query", "parcels", "--key", 1)
    command(place, "offset", "reset", "delivery", "-t", "parcels", "--to", "earliest")
    assert '{"id": 1}' in command(place, *group)

    def fail(_: object) -> None:
        raise ValueError("not today")

    command(place, "offset", "reset", "delivery", "-t", "parcels", "--to", "earliest")
    careless = sync.PushConsumer("delivery", place.namesrv, max_reconsume_times=0)
    careless.subscribe("parcels", handler=fail)
    with careless, sync.Admin(place.namesrv) as admin:
        until(lambda: admin.dead_letters.count("delivery") == 1, "the message that failed is a dead letter")
    assert "1 dead letter of group delivery sent again" in command(place, "dlq", "resend", "delivery", "--yes")
    assert '{"id": 1}' in command(place, *group)
    with place.tianzhou("doctor", "group", "delivery") as process:
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


def test_serve_brings_a_console_which_ends_with_it(served: Tianzhou, chromium: Any) -> None:
    ready = served.ready()
    page = chromium.new_page()
    page.goto(ready["console"] + "/cluster")
    page.get_by_role("link", name="broker-a").wait_for(timeout=60_000)
    page.close()
    code, _ = served.interrupt()
    assert code == 0
    served.assert_no_traceback()
    until(lambda: not Path(f"/proc/{ready['console_pid']}").exists())
