"""Findings in Chinese: every finding has a translation, and observed values are unchanged."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from tianzhou.doctor import Report, Severity
from tianzhou.doctor.chinese import (
    TEXTS,
    finding_in_chinese,
    looked_at_in_chinese,
    report_in_chinese,
    subject_in_chinese,
)
from tianzhou.doctor.findings import Finding
from tianzhou.doctor.illnesses import broker, group, topic
from tianzhou.doctor.illnesses.group import duration
from tianzhou.doctor.registry import ILLNESSES

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def places(text: str) -> set[tuple[str, str, str]]:
    return {(name, spec or "", how or "") for _, name, spec, how in Formatter().parse(text) if name}


def commands(text: str) -> list[str]:
    """Return commands, settings and pages, which are the same in every language."""
    return sorted(re.findall(r"(?:tianzhou|mqadmin|sysctl|chmod|pip) [a-z-]+|docs/\S+\.md|--[a-z-]+", text))


@pytest.mark.parametrize("name", sorted(ILLNESSES))
def test_every_illness_has_chinese_words_with_the_same_places_and_commands(name: str) -> None:
    assert name in TEXTS, f"{name} has no Chinese: add it to tianzhou/doctor/chinese"
    for english, chinese in zip((ILLNESSES[name].means, ILLNESSES[name].fix), TEXTS[name], strict=True):
        assert CHINESE.search(chinese) or english == "{why}"
        assert places(chinese) == places(english)
        assert commands(chinese) == commands(english)


def test_what_was_read_stays_as_it_is() -> None:
    found = group.BEHIND.found(
        "group billing", {"lag": 12}, group="billing", topic="a b", lag=12, waits=duration(90_000)
    )
    chinese = finding_in_chinese(found)
    assert chinese.message == "消费组 billing 在主题 a b 上堆积 12 条消息，下一条已等待 90 秒。"
    assert chinese.fix == "查看是哪些队列和成员：tianzhou group lag billing -t 'a b'"
    assert (chinese.name, chinese.severity, chinese.subject, chinese.evidence) == (
        found.name, found.severity, found.subject, found.evidence,
    )  # fmt: skip
    assert report_in_chinese(Report("cluster", [found], {"groups": 1})).as_json() == {
        **Report("cluster", [found], {"groups": 1}).as_json(), "findings": [chinese.as_json()],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(850, "850 毫秒"), (42_000, "42 秒"), (420_000, "7 分钟"), (12_600_000, "3.5 小时"), (181_440_000, "2.1 天")],
)
def test_spans_of_time_have_chinese_units(milliseconds: float, text: str) -> None:
    found = topic.PRODUCER_CLOCK.found("topic orders", topic="orders", host="h", ahead=duration(milliseconds))
    assert f"晚 {text}：" in finding_in_chinese(found).message


def test_servers_and_numbers_in_sentences_are_chinese() -> None:
    who = {"broker": "broker broker-a (1)"}
    work = broker.WORK_FAILS.found("broker broker-a", task="flush", since=f"{duration(5_000)}, 3 times in a row", **who)
    assert finding_in_chinese(work).message == "Broker broker-a (1) 有一项工作无法完成：flush 已失败 5 秒，连续 3 次。"
    slave = broker.SLAVE_BEHIND.found("broker broker-a", behind="70 bytes, about 12 s", **who)
    assert finding_in_chinese(slave).message == "Broker broker-a (1) 落后主节点 70 字节，约 12 秒。"
    limits = broker.LIMITS_REACHED.found("broker broker-a", limits="most_topics 3 times, most_groups 1 times", **who)
    assert "most_topics 3 次，most_groups 1 次。" in finding_in_chinese(limits).message


@pytest.mark.parametrize(
    ("subject", "chinese"),
    [("group billing", "消费组 billing"), ("name server 10.0.0.5:9876", "NameServer 10.0.0.5:9876"), ("host", "本机"),
     ("grouping", "grouping"), ("broker a (1)", "Broker a (1)")],
)  # fmt: skip
def test_subjects_are_chinese(subject: str, chinese: str) -> None:
    assert subject_in_chinese(subject) == chinese


def test_what_was_looked_at_is_chinese() -> None:
    assert [looked_at_in_chinese(one) for one in ("name servers", "topics", "moons")] == ["NameServer", "主题", "moons"]


def test_a_finding_of_an_unknown_illness_stays_in_english() -> None:
    found = Finding("plague", Severity.error, "broker a", "m", {}, "f")
    assert finding_in_chinese(found) == found
