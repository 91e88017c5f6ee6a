"""Lists of topics and groups: rates from counts, kinds, order, pages, and the operations that a visitor may choose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tianzhou.console import group_list, topic_list
from tianzhou.console.group_list import GroupEntry, group_entries, group_keys, group_operations, group_row
from tianzhou.console.lists import (
    NORMAL,
    SYSTEM,
    ListState,
    age_of,
    ago,
    count_text,
    counts_of,
    cut,
    query_of,
    rate_text,
    state_of,
)  # fmt: skip
from tianzhou.console.measures import LINE_HEIGHT, MAX_SAMPLES, Counter, GroupFigures, TopicFigures, line_of
from tianzhou.console.rota import next_turn
from tianzhou.console.texts import TEXTS, text
from tianzhou.console.topic_list import TopicEntry, topic_entries, topic_keys, topic_operations, topic_row
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, TopicConfig
from tianzhou.model.subscription import ConsumeType, MessageModel
from tianzhou.wire.bodies.clients import Connection, ConsumerConnection
from tianzhou.wire.bodies.offsets import ConsumeStats, QueueProgress, TopicOffset, TopicStats

NOW_MS = 1_800_000_000_000
QUEUE = MessageQueue("orders", "broker-a", 0)


def words(key: str, **values: object) -> str:
    return text("en", key, **values)


def stats(low: int, high: int, last_ms: int = NOW_MS, said: float = 0.0) -> TopicStats:
    return TopicStats({QUEUE: TopicOffset(low, high, last_ms)}, said)


def progress(broker: int, consumer: int, topic: str = "orders", said: float = 0.0) -> ConsumeStats:
    return ConsumeStats({MessageQueue(topic, "broker-a", 0): QueueProgress(broker, consumer)}, said)


def counted(*samples: tuple[int, int]) -> Counter:
    counter = Counter()
    for at_ms, total in samples:
        counter.add(at_ms, total)
    return counter


# --- rates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "rate"),
    [
        ([], None), ([(0, 5)], None), ([(0, 0), (5_000, 50)], 10), ([(0, 0), (30_000, 0), (60_000, 60)], 1),
        # A sample older than a minute counts only without a younger sample to compare with.
        ([(0, 0), (100_000, 9_000), (110_000, 9_010)], 1), ([(0, 0), (100_000, 1_000)], 10),
        # A topic that was deleted and created starts without samples.
        ([(0, 900), (5_000, 10)], None), ([(0, 900), (5_000, 10), (10_000, 20)], 2),
    ],
)  # fmt: skip
def test_the_rate_of_a_counter(samples: list[tuple[int, int]], rate: float | None) -> None:
    assert counted(*samples).rate == rate


def test_a_counter_keeps_a_minute_and_no_more() -> None:
    counter = counted(*((second * 1_000, second * 7) for second in range(1_000)))
    assert len(counter.points()) == 60 <= MAX_SAMPLES
    assert {rate for _, rate in counter.points()} == {7}
    assert counter.rate == 7


def test_the_line_of_a_rate() -> None:
    points = counted((0, 0), (15_000, 0), (30_000, 300), (60_000, 300)).points()
    assert line_of(points) == f"15,{LINE_HEIGHT - 1}.0 30,1.0 60,{LINE_HEIGHT - 1}.0"
    assert line_of(points[:1]) == ""
    assert line_of([(0, 0.0), (5_000, 0.0)]) == "", "nothing came"


def test_figures_of_a_topic() -> None:
    found = TopicFigures()
    found.take(NOW_MS, [stats(10, 100, NOW_MS - 100, said=3.5), stats(0, 5, NOW_MS - 9_000, said=1)])
    assert (found.messages, found.last_ms, found.rate) == (95, NOW_MS - 100, 4.5), "brokers say the first rate"
    found.take(NOW_MS + 10_000, [stats(10, 300), stats(0, 5)])
    assert (found.messages, found.rate) == (295, 20)


def test_a_rate_that_nobody_says_is_unknown_unless_nothing_came() -> None:
    found = TopicFigures()
    found.take(NOW_MS, [stats(0, 5, NOW_MS - 1_000)])
    assert found.rate is None, "a broker of RocketMQ 4 says no rate"
    found = TopicFigures()
    found.take(NOW_MS, [stats(0, 5, NOW_MS - 100_000)])
    assert found.rate == 0


def test_figures_of_a_group() -> None:
    found = GroupFigures()
    member = ConsumerConnection([Connection("c1")], {}, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)
    assert found.take_members([None, member], [SubscriptionGroupConfig("billing")])
    assert not found.take_members([member], [SubscriptionGroupConfig("billing")])
    found.take_order({"PROP_CONSUMEORDERLY": "true"})
    found.take(NOW_MS, "%RETRY%billing", [progress(100, 40), progress(9, 9, "%RETRY%billing", said=2)])
    assert (found.members, found.lag, found.rate, found.topics) == (1, 60, 2, {"orders"})
    assert found.lags == {"orders": 60, "%RETRY%billing": 0}
    assert found.most_behind(3) == ["orders"]
    assert group_list.kind_words(found, words) == "push · clustering · in order"
    found.oldest_ms = 5
    found.take(NOW_MS + 10_000, "%RETRY%billing", [progress(100, 100), progress(9, 9, "%RETRY%billing")])
    assert (found.lag, found.rate, found.oldest_ms) == (0, 6, 0)
    found.take_members([None], [])
    assert (found.members, group_list.kind_words(found, words)) == (0, "")


def test_a_broadcasting_group_has_the_rate_that_brokers_say() -> None:
    found = GroupFigures()
    member = ConsumerConnection([Connection("c1")], {}, ConsumeType.CONSUME_ACTIVELY, MessageModel.BROADCASTING)
    found.take_members([member], [SubscriptionGroupConfig("caches", consume_message_orderly=True)])
    for at_ms in (NOW_MS, NOW_MS + 5_000):
        found.take(at_ms, "%RETRY%caches", [progress(0, 0, said=12)])
    assert found.rate == 12
    assert group_list.kind_words(found, words) == "pull · broadcasting · in order"


# --- whose turn it is --------------------------------------------------------------------------------------------


def turn(asked: dict[str, int], watched: Iterable[str] = (), moving: Iterable[str] = (), most: int = 4) -> list[str]:
    return next_turn(asked, [*watched], [*moving], at_most=most, at_most_quiet=2, quiet_before_ms=100)


def test_what_pages_show_is_measured_first_but_not_alone() -> None:
    asked = {"a": 9, "b": 3, "c": 0, "d": 0, "e": 0, "shown-1": 50, "shown-2": 40, "shown-3": 60}
    assert turn(asked, ["shown-1", "shown-2", "shown-3", "gone"]) == ["shown-2", "shown-1", "c", "d"]
    assert turn({"a": 9, "b": 3, "c": 80, "d": 70}, moving=["c"]) == ["c", "b", "a"], "two quiet ones in a turn"
    assert turn({"a": 101, "b": 200}) == [], "quiet ones rest"
    assert turn({}) == []


def test_every_name_has_its_turn() -> None:
    asked = {f"t{number}": 0 for number in range(1_000)}
    shown, busy = [f"t{number}" for number in range(30)], [f"t{number}" for number in range(30, 60)]
    sizes = set()
    for now_ms in range(1, 100):
        chosen = next_turn(asked, shown, busy, at_most=100, at_most_quiet=20, quiet_before_ms=now_ms)
        sizes.add(len(chosen))
        asked |= dict.fromkeys(chosen, now_ms)
    assert max(sizes) == 100, "no turn is longer"
    assert min(asked.values()) > 99 - 60, "no quiet name waits longer than a round"
    assert {asked[name] for name in (*shown, *busy)} == {99}, "names that move or are shown have every turn"


# --- lists -------------------------------------------------------------------------------------------------------

TABLES = {
    "broker-a": {
        "orders": TopicConfig("orders", 8, 8), "audit": TopicConfig("audit", 4, 2, perm=4),
        "pay": TopicConfig("pay", 1, 1, attributes={"message.type": "TRANSACTION"}),
        "by-account": TopicConfig("by-account", 1, 1, order=True),
    },
    "broker-b": {"orders": TopicConfig("orders", 4, 4)},
}  # fmt: skip


def test_what_topics_are() -> None:
    names = ["orders", "audit", "pay", "by-account", "%RETRY%g", "%DLQ%g", "TBW102", "rmq_sys_X", "unheard-of"]
    entries = {one.name: one for one in topic_entries(names, ["TBW102"], TABLES)}
    assert list(entries) == sorted(names)
    assert {name: one.kind for name, one in entries.items() if one.kind != NORMAL} == {
        "%RETRY%g": topic_list.RETRY, "%DLQ%g": topic_list.DLQ, "TBW102": SYSTEM, "rmq_sys_X": SYSTEM,
    }  # fmt: skip
    assert {name: one.type for name, one in entries.items() if one.type != one.kind} == {
        "pay": "transaction", "by-account": "fifo",
    }  # fmt: skip
    assert (entries["orders"].queues, entries["orders"].brokers) == (12, ("broker-a", "broker-b"))
    assert (entries["unheard-of"].queues, entries["audit"].is_writable) == (None, False)


LOOKS = topic_list.LOOKS


@pytest.mark.parametrize(
    ("entry", "may_change", "offered"),
    [
        (TopicEntry("a", NORMAL, NORMAL), True, (*LOOKS, "lag", "configuration", "send", "reset", "skip", "delete")),
        (TopicEntry("a", NORMAL, NORMAL, 1, False), True, (*LOOKS, "lag", "configuration", "reset", "skip", "delete")),
        (TopicEntry("a", NORMAL, NORMAL), False, (*LOOKS, "lag")),
        (TopicEntry("a", SYSTEM, SYSTEM), True, LOOKS),
        (TopicEntry("%DLQ%g", topic_list.DLQ, "dlq"), True, (*LOOKS, "configuration", "delete")),
        (TopicEntry("%DLQ%g", topic_list.DLQ, "dlq"), False, LOOKS),
    ],
)
def test_operations_that_are_not_allowed_are_not_offered(
    entry: TopicEntry, may_change: bool, offered: tuple[str, ...]
) -> None:
    assert topic_operations(entry, may_change) == offered


def test_operations_of_groups() -> None:
    assert group_operations(GroupEntry("g", NORMAL), True)[-4:] == ("configuration", "reset", "skip", "delete")
    assert group_operations(GroupEntry("g", NORMAL), False) == group_list.LOOKS
    assert group_operations(GroupEntry("TOOLS_CONSUMER", SYSTEM), True) == ("status", "members")


def figures_of(messages: int | None, rate: float | None = None, last_ms: int = 0) -> TopicFigures:
    return TopicFigures(NOW_MS, messages, last_ms, rate)


ENTRIES = [TopicEntry(name, NORMAL, NORMAL, queues) for name, queues in (("a", 8), ("b", None), ("c", 4), ("D", 8))]
FIGURES = {
    "a": figures_of(5, 0.0), "c": figures_of(1_000, 2.0, NOW_MS), "D": figures_of(5, 100.0, NOW_MS - 1),
}  # fmt: skip
GROUPS = {"c": 2}


@pytest.mark.parametrize(
    ("sort", "up", "down"),
    [
        ("", "abcD", "abcD"), ("topic", "Dabc", "cbaD"), ("queues", "caDb", "aDcb"), ("messages", "aDcb", "caDb"),
        ("in", "acDb", "Dcab"), ("groups", "abDc", "cabD"), ("last", "Dcab", "cDab"), ("type", "abcD", "abcD"),
    ],
)  # fmt: skip
def test_a_list_is_sorted_by_every_column_and_what_is_unknown_comes_last(sort: str, up: str, down: str) -> None:
    keys = topic_keys(FIGURES, GROUPS, words)
    assert set(keys) == set(topic_list.COLUMNS)
    for descending, order in ((False, up), (True, down)):
        found = cut(ENTRIES, ListState(kinds=(NORMAL,), sort=sort, descending=descending), keys)
        assert "".join(one.name for one in found.entries) == order


def test_groups_are_sorted_by_every_column() -> None:
    table = {f"g{number}": SubscriptionGroupConfig(f"g{number}") for number in range(4)}
    entries = group_entries({"broker-a": {**table, "TOOLS": SubscriptionGroupConfig("TOOLS")}}, {"TOOLS"})
    assert counts_of(entries) == {SYSTEM: 1, NORMAL: 4}
    figures = {
        f"g{number}": GroupFigures(
            1, lag=number, oldest_ms=1_000 + number, rate=number, members=number,
            way=ConsumeType.CONSUME_PASSIVELY if number else ConsumeType.CONSUME_ACTIVELY,
            topics=frozenset(f"t{one}" for one in range(number)),
        )
        for number in range(3)
    }  # fmt: skip
    keys = group_keys(figures, words)
    assert set(keys) == set(group_list.COLUMNS)
    for sort in group_list.COLUMNS:
        found = cut(entries, ListState(kinds=(NORMAL,), sort=sort, descending=True), keys).entries
        names = [one.name for one in found]
        by_wait = ["g0", "g1", "g2", "g3"]
        expected = {"group": ["g3", "g2", "g1", "g0"], "oldest": by_wait, "kind": ["g1", "g2", "g0", "g3"]}
        assert names == expected.get(sort, ["g2", "g1", "g0", "g3"]), sort
    row = group_row(entries[1], figures["g1"], words, 9_001, True)
    assert (row["lag"], row["oldest"], row["out"], row["topics"]) == ("1", "8 s ago", "1.0", "1")


def test_a_list_is_filtered_and_cut() -> None:
    entries = [TopicEntry(f"Topic-{number:02}", NORMAL, NORMAL) for number in range(45)]
    entries.append(TopicEntry("%DLQ%topic-01", topic_list.DLQ, "dlq"))
    state = ListState(kinds=(NORMAL,), page=3)
    found = cut(entries, state, {})
    assert ([one.name for one in found.entries], found.count, found.page) == (
        [f"Topic-{number}" for number in range(40, 45)], 45, 3,
    )  # fmt: skip
    assert cut(entries, state.changed(page=99), {}).page == 3, "a list that became shorter shows its end"
    found = cut(entries, state.changed(words=" TOPIC-01 ", kinds=(NORMAL, topic_list.DLQ)), {})
    assert [one.name for one in found.entries] == ["Topic-01", "%DLQ%topic-01"]
    assert cut([], state, {}) == cut(entries, state.changed(words="nothing"), {})


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ({}, ListState(kinds=("normal",))),
        (
            {"filter": "or", "kind": "dlq,retry,none", "sort": "in", "desc": "1", "page": "3", "rows": "50"},
            ListState("or", ("retry", "dlq"), "in", True, 3, 50),
        ),
        (
            {"kind": "x", "sort": "__class__", "desc": "1", "page": "-1", "rows": "1000000"},
            ListState(kinds=("normal",)),
        ),
        ({"page": "9" * 400, "rows": "²"}, ListState(kinds=("normal",))),
        ({"kind": "none"}, ListState(kinds=())),  # no box is ticked
    ],
)
def test_an_address_says_what_is_chosen(query: dict[str, str], state: ListState) -> None:
    found = state_of(query, topic_list.KINDS, NORMAL, topic_list.COLUMNS)
    assert found == state
    said = {name: value for name, value in query_of(found, NORMAL).items() if value}
    assert state_of(said, topic_list.KINDS, NORMAL, topic_list.COLUMNS) == state


@pytest.mark.parametrize(
    ("rate", "shown"), [(None, "-"), (0, "0"), (0.01, "< 0.1"), (0.26, "0.3"), (12.34, "12.3"), (12_345.6, "12,346")]
)
def test_rates_for_people(rate: float | None, shown: str) -> None:
    assert rate_text(rate) == shown


def test_counts_and_ages_for_people() -> None:
    assert (count_text(None), count_text(0), count_text(12_345)) == ("-", "0", "12,345")
    seconds = {0: ("s", 0), 59: ("s", 59), 60: ("min", 1), 3_599: ("min", 59), 3_600: ("h", 1), 90_000: ("h", 25)}
    assert {one: age_of(NOW_MS - one * 1_000, NOW_MS) for one in seconds} == seconds
    assert age_of(NOW_MS - 3 * 86_400_000, NOW_MS) == ("d", 3)
    assert age_of(NOW_MS + 5_000, NOW_MS) == ("s", 0), "a broker's clock may be ahead"
    assert ago(0, 0, NOW_MS, words) == "-"
    assert ago(0, 1, NOW_MS, words) == ""
    assert text("zh", "age.min", count=5) == "5 分钟前"


def test_a_row_of_a_topic_that_was_not_measured_yet() -> None:
    row = topic_row(ENTRIES[1], None, 0, words, NOW_MS, False)
    shown: dict[str, Any] = {name: row[name] for name in ("topic", "type", "queues", "messages", "in", "line", "last")}
    assert shown == {
        "topic": "b", "type": "normal", "queues": "-", "messages": "-", "in": "-", "line": "", "last": "-",
    }  # fmt: skip


def test_texts_that_are_put_together() -> None:
    keys = [f"topic.type.{one}" for one in topic_list.TYPES] + [f"topic.kind.{one}" for one in topic_list.KINDS]
    keys += [f"group.kind.{one}" for one in group_list.KINDS] + [f"group.way.{one}" for one in group_list.WAYS.values()]
    keys += [f"age.{unit}" for unit in ("s", "min", "h", "d")] + ["topic.operations", "group.operations"]
    keys += ["group.model.clustering", "group.model.broadcasting", "group.orderly"]
    assert [key for key in keys if key not in TEXTS] == []
