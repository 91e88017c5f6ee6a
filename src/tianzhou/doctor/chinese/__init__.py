"""Findings in Chinese: sentence and remedy of each illness by its name, and translated placeholder values. Pure.

Names of illnesses and evidence stay in English, so that a reader can search for them in the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tianzhou.doctor.chinese import broker, clients, group, machine, topic
from tianzhou.doctor.chinese.failures import failure_in_chinese, question_in_chinese
from tianzhou.doctor.findings import Finding, Report, Unanswered, filled

TEXTS: Final[Mapping[str, tuple[str, str]]] = group.TEXTS | topic.TEXTS | broker.TEXTS | clients.TEXTS | machine.TEXTS
"""Sentence and remedy of each illness by its name, with the placeholders of `Illness.means` and `Illness.fix`."""
_SUBJECTS: Final = {
    "name server": "NameServer", "broker": "Broker", "group": "消费组", "topic": "主题", "member": "成员",
    "address": "地址", "checkpoint": "检查点", "folder": "目录", "file": "文件", "host": "本机",
    "cluster": "集群", "spark": "Spark", "send": "发送", "connect": "连接", "access": "访问控制",
}  # fmt: skip
_LOOKED_AT: Final = {
    "name servers": "NameServer", "brokers": "Broker", "topics": "主题", "groups": "消费组", "addresses": "地址",
    "checkpoints": "检查点", "hosts": "本机",
}  # fmt: skip
AROUND_FINDINGS: Final = (
    "处理：",
    "（完整内容见 -o json）",
    "未能得知 {server} 的{question}：{why}",
    "另有 {count} 项未能得知；完整内容见 -o json",
)
"""Texts of a terminal: before a fix, after shortened evidence, for a request without an answer, and for further
ones."""
_SEVERITIES: Final = {"error": "错误", "warning": "警告", "note": "提示"}
_SERVERS: Final = frozenset({"broker", "server", "kind", "expected"})
"""Placeholders for servers and kinds of servers."""
_AMOUNTS: Final = frozenset({"age", "ahead", "behind", "held", "late", "left", "limits", "since", "took", "waits"})
"""Placeholders for time spans and other numbers with units."""
_UNITS: Final = {
    "ms": "毫秒", "s": "秒", "min": "分钟", "h": "小时", "days": "天", "bytes": "字节", "times": "次",
}  # fmt: skip
_UNIT: Final = re.compile(rf"(?<=\d) ({'|'.join(_UNITS)})\b")


def report_in_chinese(report: Report) -> Report:
    """Return a report with its findings and its unanswered requests in Chinese."""
    return replace(
        report,
        findings=[finding_in_chinese(finding) for finding in report.findings],
        unanswered=[unanswered_in_chinese(one) for one in report.unanswered],
    )


def unanswered_in_chinese(one: Unanswered) -> Unanswered:
    """Return a request without an answer in Chinese: the request, and the cause."""
    return Unanswered(one.server, question_in_chinese(one.question), failure_in_chinese(one.why))


def finding_in_chinese(finding: Finding) -> Finding:
    """Return a finding with its sentence and its fix in Chinese; unchanged when its illness has no translation."""
    if finding.name not in TEXTS:
        return finding
    words = {name: _word(name, word) for name, word in finding.words.items()}
    message, fix = filled(*TEXTS[finding.name], words)
    return replace(finding, message=message, fix=fix)


def subject_in_chinese(subject: str) -> str:
    """Return the subject of a finding or report in Chinese: `消费组 billing` for `group billing`."""
    for kind, chinese in _SUBJECTS.items():
        if subject == kind or subject.startswith(f"{kind} "):
            return chinese + subject.removeprefix(kind)
    return subject


def looked_at_in_chinese(what: str) -> str:
    """Return a key of `Report.looked_at` in Chinese."""
    return _LOOKED_AT.get(what, what)


def summary_in_chinese(report: Report) -> str:
    """Return one line with the diagnosed subjects and the number of findings."""
    subject = subject_in_chinese(report.subject)
    if not report.could_look:
        return f"{subject}：无法检查，因为没有 NameServer 应答"
    counts = [f"{number} 个{_SEVERITIES[severity]}" for severity, number in report.counts().items() if number]
    looked = [f"{looked_at_in_chinese(what)} {number}" for what, number in report.looked_at.items() if number]
    return f"{subject}：{'、'.join(counts) or '健康'}（检查了：{'、'.join(looked) or '无'}）"


def _word(name: str, word: object) -> object:
    if not isinstance(word, str):
        return word
    if name == "why":
        return failure_in_chinese(word)
    if name in _SERVERS:
        return subject_in_chinese(word)
    if name not in _AMOUNTS:
        return word
    text = re.sub(r"(\d+) times in a row", r"连续 \1 次", word).replace("about ", "约 ").replace(", ", "，")
    return _UNIT.sub(lambda unit: f" {_UNITS[unit[1]]}", text)
