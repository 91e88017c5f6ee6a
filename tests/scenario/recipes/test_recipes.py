"""Recipes print the output of their pages, and the Chinese pages have the same programs and commands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from recipe_typist import RECIPES, RecipeTypist, blocks_of, typing

from tianzhou.testing import Cluster
from waiting import until

MAX_WORDS = 900
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 3s 1h 2h"
"""The default delay levels, of which level 16 is three seconds instead of thirty minutes."""
PAGES = sorted(path.name for path in RECIPES.glob("*.md") if not path.name.endswith(".zh.md"))
ORDERS = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One broker for all recipes; each has topics and groups of its own, or deletes them."""
    with Cluster(settings={"messageDelayLevel": LEVELS}) as running:
        yield running


@pytest.fixture
def typist(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[RecipeTypist]:
    with typing(tmp_path, cluster, capsys, monkeypatch) as found:
        yield found


def test_unpaid_orders_are_cancelled_and_paid_ones_stay(typist: RecipeTypist) -> None:
    typist.type("unpaid-after-thirty-minutes.md")


def test_the_steps_of_an_order_are_handled_in_their_order(typist: RecipeTypist) -> None:
    typist.type("ordered-by-order-number.md")
    steps = sorted((line.split() for line in typist.lines("ship.log")), key=lambda words: words[0])
    by_order = {order: [" ".join(words[1:]) for words in lines] for order, lines in groupby(steps, lambda one: one[0])}
    assert by_order.pop("1002") == ["created", "paid fails", "paid", "shipped"]
    assert by_order == {order: ["created", "paid", "shipped"] for order in ("1001", "1003", "2001")}


def test_the_three_ways_to_send_print_what_they_promise(typist: RecipeTypist, cluster: Cluster) -> None:
    typist.type("three-ways-to-send.md")
    with cluster.admin() as admin:
        assert admin.topics.describe("payments").message_count == 1001
        until(lambda: admin.topics.describe("clicks").message_count == 1000, "all clicks are stored")


def test_a_backlog_is_relayed_and_skipped(typist: RecipeTypist, cluster: Cluster) -> None:
    def billed() -> int:
        return sum(len(typist.lines(name)) for name in ("bill.log", "wide-1.log", "wide-2.log"))

    typist.type(
        "backlog.md",
        {
            "tianzhou plan consumers --peak 5000 --measured": lambda: until(
                lambda: typist.lines("bill.log"), "a message is measured"
            ),
            "tianzhou group lag billing-wide": lambda: until(
                lambda: typist.lines("wide-1.log") or typist.lines("wide-2.log"), "the new group has a member"
            ),
            "tianzhou group reset": lambda: until(lambda: billed() == ORDERS, "all is billed"),
        },
    )
    with cluster.admin() as admin:
        assert all(typist.lines(name) for name in ("wide-1.log", "wide-2.log")), "both members have a share"
        assert admin.groups.lag("billing", "orders").total == 0


def test_the_alarm_of_a_low_rate_rings(typist: RecipeTypist, cluster: Cluster) -> None:
    """The other commands of that page are typed by tests/spark/pipelines/test_pipeline_pages.py."""
    cluster.create_topic("payment-rates")
    typist.write("success-rate-by-tags.md")
    typist.start(["alarm.py"], "alarm.log")
    with cluster.producer() as producer:
        for rate in (0.9, 0.99):
            window = {"start": "2026-11-30T03:14:20.000Z", "messages": 20, "rate": rate}
            producer.send_body("payment-rates", window)
    until(lambda: typist.lines("alarm.log") == ["2026-11-30T03:14:20.000Z: 90% of 20 payments"], "the alarm rings")


@pytest.mark.parametrize("page", PAGES)
def test_the_chinese_page_has_the_same_programs_and_commands(page: str) -> None:
    chinese = RECIPES / page.replace(".md", ".zh.md")
    assert blocks_of(chinese) == blocks_of(RECIPES / page)
    assert f"]({chinese.name})" in (RECIPES / page).read_text(encoding="utf-8")
    assert f"]({page})" in chinese.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_a_recipe_is_short(page: str) -> None:
    assert len((RECIPES / page).read_text(encoding="utf-8").split()) <= MAX_WORDS
